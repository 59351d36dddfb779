//! What an operator's tools see of a process: metrics and health, on one port.

mod exposition;
mod readiness;
mod server;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use documented::DocumentedFields;
use fencepost_model::WindowId;
use fencepost_sinks::ApplierMetrics;
use fencepost_sources::relay::RelayMetrics;
use serde::{Deserialize, Serialize};

pub(crate) use server::serve;

/// Metrics and health over HTTP.
#[derive(Clone, Debug, Deserialize, Serialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct HttpConfig {
    /// Address and port on which a process with a role serves `/metrics` (Prometheus), `/healthz` (it lives) and `/readyz`
    /// (its windows are being applied), e.g. `127.0.0.1:9464`. Empty: on none.
    pub(crate) listen: String,
    /// A role that has moved no window for this long is not ready, in milliseconds. Several times `relay.window_ms`.
    pub(crate) quiet_ms_max: u64,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self { listen: String::new(), quiet_ms_max: 10_000 }
    }
}

/// A role that this process runs, by what it counts.
#[derive(Clone, Debug)]
pub(crate) enum Role {
    Relay(Arc<RelayMetrics>),
    Pipeline(Arc<fencepost_pipeline::Metrics>),
    Applier { store: String, metrics: Arc<ApplierMetrics> },
}

impl Role {
    fn name(&self) -> String {
        match self {
            Self::Relay(_) => "relay".to_owned(),
            Self::Pipeline(_) => "pipeline".to_owned(),
            Self::Applier { store, .. } => format!("apply {store}"),
        }
    }

    /// What rises with each window that the role has done; 0 before the first.
    fn window(&self) -> WindowId {
        let window = match self {
            Self::Relay(metrics) => &metrics.window,
            Self::Pipeline(metrics) => &metrics.frontier,
            Self::Applier { metrics, .. } => &metrics.window,
        };
        window.load(Ordering::Relaxed)
    }
}
