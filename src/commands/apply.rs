//! `fencepost apply`.

use std::sync::atomic::AtomicBool;

use crate::config::Config;

pub(super) fn run(config: &Config, name: &str, from_start: bool, stop: &AtomicBool) -> anyhow::Result<()> {
    let store = config.store(name)?;
    fencepost_sinks::run::<i64>(name, store, &config.kafka, &config.postgres.url, from_start, stop)
}
