//! `fencepost relay`.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fencepost_sources::relay::RelayMetrics;

use crate::config::Config;
use crate::operations::{self, Role};

pub(super) fn run(config: &Config, stop: &AtomicBool) -> anyhow::Result<()> {
    let metrics = Arc::default();
    let _served = operations::serve(&config.http, vec![Role::Relay(Arc::clone(&metrics))])?;
    role(config, stop, &metrics)
}

pub(super) fn role(config: &Config, stop: &AtomicBool, metrics: &RelayMetrics) -> anyhow::Result<()> {
    fencepost_sources::relay::run(&config.postgres.url, &config.relay, &config.kafka, stop, metrics)
}
