//! `fencepost relay`.

use std::sync::atomic::AtomicBool;

use crate::config::Config;

pub(super) fn run(config: &Config, stop: &AtomicBool) -> anyhow::Result<()> {
    fencepost_sources::relay::run(&config.postgres.url, &config.relay, &config.kafka, stop)
}
