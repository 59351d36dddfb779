//! What an applier's log lines say about its store as time passes.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tracing::{debug, info, warn};

use crate::applier::Standing;

/// How often staleness is logged.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// How often a store that waits for the log is warned about.
const WARN_EVERY: Duration = Duration::from_secs(30);

/// When what was last said.
pub(crate) struct Watch<'a> {
    name: &'a str,
    reported: Option<Instant>,
    warned: Option<Instant>,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(name: &'a str) -> Self {
        Self { name, reported: None, warned: None }
    }

    /// Says what is due.
    pub(crate) fn report(&mut self, standing: Standing) {
        let Standing { least, ahead_of_log } = standing;
        let due = |last: Option<Instant>, every| last.is_none_or(|last: Instant| last.elapsed() >= every);
        if self.reported.is_none() {
            info!(store = self.name, fence = %least, "store stands here, at its least fence");
        }
        if due(self.reported, REPORT_EVERY) {
            self.reported = Some(Instant::now());
            let staleness_ms = now_us().saturating_sub(least.as_of) / 1_000;
            debug!(
                store = self.name,
                window = least.window,
                as_of = least.as_of,
                staleness_ms,
                "store stands"
            );
        }
        if ahead_of_log == 0 {
            self.warned = None;
        } else if due(self.warned, WARN_EVERY) {
            self.warned = Some(Instant::now());
            warn!(
                store = self.name, lanes = ahead_of_log, fence = %least,
                "the store's fences lie beyond the end of the totals log, so it waits for the log: look whether the \
                 totals topic lost its end or was made anew, and whether the pipeline runs"
            );
        }
    }
}

fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
