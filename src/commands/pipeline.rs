//! `fencepost pipeline`.

use std::sync::atomic::AtomicBool;

use crate::config::Config;

pub(super) fn run(config: &Config, replay: bool, stop: &AtomicBool) -> anyhow::Result<()> {
    fencepost_pipeline::run::<i64>(&config.pipeline, &config.kafka, replay, stop)
}
