//! `fencepost load`.

use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::bail;
use fencepost_bench::load::{self, LoadOptions, Progress};
use indicatif::{ProgressBar, ProgressStyle};

use crate::config::Config;

pub(super) fn run(config: &Config, options: &LoadOptions, stop: &AtomicBool) -> anyhow::Result<()> {
    let bar = bar(options);
    let progress = |progress: &Progress| {
        let Progress { elapsed, flips, no_ops, errors, .. } = progress;
        bar.set_position(if options.flips.is_some() { *flips } else { elapsed.as_secs() });
        let rate = *flips as f64 / elapsed.as_secs_f64().max(f64::EPSILON);
        bar.set_message(format!("{flips} flips ({rate:.0}/s), {no_ops} no-ops, {errors} errors"));
    };
    let summary = load::run(&config.postgres.url, options, stop, progress);
    bar.finish_and_clear();
    let summary = summary?;
    writeln!(std::io::stdout(), "{summary}")?;
    if summary.calls == 0 {
        bail!("no call was answered");
    }
    Ok(())
}

/// A bar towards the load's end, or a spinner when it has none. Drawn only on a terminal.
fn bar(options: &LoadOptions) -> ProgressBar {
    let (bar, template) = match (options.flips, options.seconds) {
        (None, None) => (ProgressBar::new_spinner(), "{spinner} {elapsed} {msg}"),
        (flips, seconds) => {
            (ProgressBar::new(flips.or(seconds).unwrap_or(0)), "{bar:40} {percent:>3} % {elapsed} {msg}")
        }
    };
    bar.enable_steady_tick(Duration::from_millis(200));
    bar.with_style(ProgressStyle::with_template(template).expect("the template is valid"))
}
