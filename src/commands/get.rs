//! `fencepost get`.

use std::io::Write;

use fencepost_model::Fence;
use fencepost_sinks::{Count, CountsReader};

use crate::cli::GetArgs;
use crate::config::Config;

pub(super) fn run(config: &Config, args: &GetArgs) -> anyhow::Result<()> {
    let mut counts = CountsReader::open(config.store(&args.store)?)?;
    let mut out = std::io::stdout().lock();
    for Count { item, value, fence } in counts.counts(&args.items)? {
        let Fence { window, as_of, kind, .. } = fence;
        let value = value.map_or("no number".to_owned(), |n| n.to_string());
        writeln!(out, "item {item} count {value} as_of {as_of} kind {kind} window {window}")?;
    }
    Ok(())
}
