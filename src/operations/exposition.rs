//! The roles' own counts under the names that a monitoring system stores.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use fencepost_pipeline::Metrics;
use fencepost_sinks::ApplierMetrics;
use fencepost_sources::relay::RelayMetrics;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::Role;

/// All metrics of a process, read when they are asked for.
#[derive(Debug)]
pub(super) struct Exposition {
    relays: Vec<(Labels, Arc<RelayMetrics>)>,
    pipelines: Vec<(Labels, Arc<Metrics>)>,
    appliers: Vec<(Labels, Arc<ApplierMetrics>)>,
}

type Labels = Vec<(&'static str, String)>;

impl Exposition {
    pub(super) fn new(roles: &[Role]) -> Self {
        let mut exposition = Self { relays: Vec::new(), pipelines: Vec::new(), appliers: Vec::new() };
        for role in roles {
            match role {
                Role::Relay(metrics) => exposition.relays.push((Labels::new(), Arc::clone(metrics))),
                Role::Pipeline(metrics) => exposition.pipelines.push((Labels::new(), Arc::clone(metrics))),
                Role::Applier { store, metrics } => {
                    exposition.appliers.push((vec![("store", store.clone())], Arc::clone(metrics)));
                }
            }
        }
        exposition
    }
}

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        encode(&mut encoder, RELAY, &self.relays)?;
        encode(&mut encoder, PIPELINE, &self.pipelines)?;
        encode(&mut encoder, APPLIER, &self.appliers)
    }
}

/// A metric of those that count in `M`.
struct Family<M> {
    name: &'static str,
    help: &'static str,
    read: Read<M>,
}

enum Read<M> {
    /// Only rises. Its name gets the ending `_total`.
    Counter(fn(&M) -> &AtomicU64),
    /// A window: 0 before the first.
    Window(fn(&M) -> &AtomicU64),
    /// A number that rises and falls.
    Gauge(fn(&M) -> &AtomicI64),
    /// A time in microseconds since 1970, shown in seconds as other metrics are.
    Time(fn(&M) -> &AtomicI64),
}

fn encode<M>(
    encoder: &mut DescriptorEncoder<'_>,
    families: &[Family<M>],
    members: &[(Labels, Arc<M>)],
) -> fmt::Result {
    if members.is_empty() {
        return Ok(());
    }
    for Family { name, help, read } in families {
        let kind = if matches!(read, Read::Counter(_)) { MetricType::Counter } else { MetricType::Gauge };
        let mut family = encoder.encode_descriptor(name, help, None, kind)?;
        for (labels, metrics) in members {
            let metric = family.encode_family(labels)?;
            match read {
                Read::Counter(of) => ConstCounter::new(of(metrics).load(Ordering::Relaxed)).encode(metric)?,
                Read::Window(of) => {
                    let window = of(metrics).load(Ordering::Relaxed);
                    ConstGauge::new(window.cast_signed()).encode(metric)?;
                }
                Read::Gauge(of) => ConstGauge::new(of(metrics).load(Ordering::Relaxed)).encode(metric)?,
                Read::Time(of) => {
                    ConstGauge::new(of(metrics).load(Ordering::Relaxed) as f64 / 1e6).encode(metric)?;
                }
            }
        }
    }
    Ok(())
}

const RELAY: &[Family<RelayMetrics>] = &[
    Family {
        name: "relay_sessions",
        help: "Times that the relay took over the log: at its start and after each failure that passed",
        read: Read::Counter(|relay| &relay.sessions),
    },
    Family { name: "relay_windows", help: "Windows closed", read: Read::Counter(|relay| &relay.windows) },
    Family {
        name: "relay_events",
        help: "Events in the windows closed",
        read: Read::Counter(|relay| &relay.events),
    },
    Family {
        name: "relay_window",
        help: "The last window closed",
        read: Read::Window(|relay| &relay.window),
    },
];

const PIPELINE: &[Family<Metrics>] = &[
    Family {
        name: "pipeline_flips",
        help: "Flips taken from the log, replays by identity included",
        read: Read::Counter(|pipeline| &pipeline.flips),
    },
    Family {
        name: "pipeline_corrections",
        help: "Corrections taken from the log, replays by identity included",
        read: Read::Counter(|pipeline| &pipeline.corrections),
    },
    Family {
        name: "pipeline_known_by_position",
        help: "Records left out by their position: replays of what a marker has closed",
        read: Read::Counter(|pipeline| &pipeline.known_by_position),
    },
    Family {
        name: "pipeline_known_by_identity",
        help: "Arrivals of an identity that is remembered: they count nothing",
        read: Read::Counter(|pipeline| &pipeline.known_by_identity),
    },
    Family {
        name: "pipeline_taken_window",
        help: "The last window that a worker has taken from the log",
        read: Read::Window(|pipeline| &pipeline.taken),
    },
    Family {
        name: "pipeline_frontier_window",
        help: "Every window below it is confirmed by the totals log",
        read: Read::Window(|pipeline| &pipeline.frontier),
    },
    Family {
        name: "pipeline_remembered_rows",
        help: "Rows in memory for identities",
        read: Read::Gauge(|pipeline| &pipeline.remembered_rows),
    },
    Family {
        name: "pipeline_frames",
        help: "Checkpoint frames synced",
        read: Read::Counter(|pipeline| &pipeline.frames),
    },
    Family {
        name: "pipeline_syncs",
        help: "Calls that synced them: fewer than frames when behind",
        read: Read::Counter(|pipeline| &pipeline.syncs),
    },
];

const APPLIER: &[Family<ApplierMetrics>] = &[
    Family {
        name: "applier_lane_windows",
        help: "Lane windows applied: a window of 64 lanes counts 64",
        read: Read::Counter(|applier| &applier.applied_windows),
    },
    Family {
        name: "applier_counters",
        help: "Counters added to",
        read: Read::Counter(|applier| &applier.applied_items),
    },
    Family {
        name: "applier_refusals",
        help: "Offers that the fence refused",
        read: Read::Counter(|applier| &applier.refusals),
    },
    Family {
        name: "applier_went_back",
        help: "Times that a lane's fence was found behind where this applier had seen it",
        read: Read::Counter(|applier| &applier.went_back),
    },
    Family {
        name: "applier_replays_skipped",
        help: "Records of the totals log that were at or behind the fence",
        read: Read::Counter(|applier| &applier.replays_skipped),
    },
    Family {
        name: "applier_gaps_skipped",
        help: "Records of the totals log that did not follow; read again after a mend",
        read: Read::Counter(|applier| &applier.gaps_skipped),
    },
    Family {
        name: "applier_set_aside",
        help: "Counters that were no number",
        read: Read::Counter(|applier| &applier.set_aside),
    },
    Family {
        name: "applier_debts",
        help: "Counters whose sum fell below zero",
        read: Read::Counter(|applier| &applier.debts),
    },
    Family {
        name: "applier_reconnects",
        help: "Transient errors of the store, each followed by a new connection",
        read: Read::Counter(|applier| &applier.reconnects),
    },
    Family {
        name: "applier_window",
        help: "The window of the fence that is furthest behind",
        read: Read::Window(|applier| &applier.window),
    },
    Family {
        name: "applier_as_of_seconds",
        help: "As of when every counter of the store is exact, since 1970; staleness is time() minus this",
        read: Read::Time(|applier| &applier.as_of),
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text;
    use prometheus_client::registry::Registry;

    #[test]
    fn every_count_has_its_name_once_and_stores_are_told_apart() {
        let (relay, pipeline) = (Arc::<RelayMetrics>::default(), Arc::<Metrics>::default());
        relay.events.store(7, Ordering::Relaxed);
        pipeline.remembered_rows.store(-1, Ordering::Relaxed);
        let mut roles = vec![Role::Relay(relay), Role::Pipeline(pipeline)];
        for (store, as_of) in [("near", 1_500_000), ("far", 0)] {
            let metrics = Arc::<ApplierMetrics>::default();
            metrics.as_of.store(as_of, Ordering::Relaxed);
            roles.push(Role::Applier { store: store.to_owned(), metrics });
        }
        let mut registry = Registry::with_prefix("fencepost");
        registry.register_collector(Box::new(Exposition::new(&roles)));
        let mut text = String::new();
        text::encode(&mut text, &registry).expect("a string takes it");
        for line in [
            "fencepost_relay_events_total 7",
            "fencepost_relay_window 0",
            "fencepost_pipeline_remembered_rows -1",
            "fencepost_applier_as_of_seconds{store=\"near\"} 1.5",
            "fencepost_applier_as_of_seconds{store=\"far\"} 0.0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in:\n{text}");
        }
        assert_eq!(text.matches("# TYPE fencepost_applier_window gauge").count(), 1, "{text}");
    }
}
