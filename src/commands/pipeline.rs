//! `fencepost pipeline`.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fencepost_pipeline::Metrics;

use crate::config::Config;
use crate::operations::{self, Role};

pub(super) fn run(config: &Config, replay: bool, stop: &AtomicBool) -> anyhow::Result<()> {
    let metrics = Arc::default();
    let _served = operations::serve(&config.http, vec![Role::Pipeline(Arc::clone(&metrics))])?;
    role(config, replay, stop, &metrics)
}

pub(super) fn role(
    config: &Config,
    replay: bool,
    stop: &AtomicBool,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<()> {
    fencepost_pipeline::run_measured::<i64>(&config.pipeline, &config.kafka, replay, stop, metrics)
}
