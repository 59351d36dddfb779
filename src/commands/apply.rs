//! `fencepost apply`.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fencepost_sinks::ApplierMetrics;

use crate::config::Config;
use crate::operations::{self, Role};

pub(super) fn run(config: &Config, name: &str, from_start: bool, stop: &AtomicBool) -> anyhow::Result<()> {
    let metrics = Arc::default();
    let served = Role::Applier { store: name.to_owned(), metrics: Arc::clone(&metrics) };
    let _served = operations::serve(&config.http, vec![served])?;
    role(config, name, from_start, stop, &metrics)
}

pub(super) fn role(
    config: &Config,
    name: &str,
    from_start: bool,
    stop: &AtomicBool,
    metrics: &Arc<ApplierMetrics>,
) -> anyhow::Result<()> {
    let store = config.store(name)?;
    fencepost_sinks::run::<i64>(name, store, &config.kafka, &config.postgres.url, from_start, stop, metrics)
}
