use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use fencepost_model::{CutKind, Micros, WindowId, WindowRecord};
use fencepost_sinks::{CountsReader, StoreConfig};
use fencepost_sources::log::windows::{self, WindowsReader};
use fencepost_sources::log::{KafkaConfig, reach};
use postgres::NoTls;
use serde::Serialize;

use crate::config::Config;

/// Windows that a stage lags are counted up to this many.
const LAG_WINDOWS_MAX: usize = 10_000;

/// The history is read for at most this long to count them.
const HISTORY_PATIENCE: Duration = Duration::from_secs(10);

const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// What was seen, each part by itself: one service that is away hides no other.
#[derive(Debug, Serialize)]
pub(super) struct Status {
    /// When it was looked, in microseconds since 1970.
    pub(super) at: Micros,
    pub(super) slot: Part<Slot>,
    /// The log of flips, as far as the relay has brought it.
    pub(super) log: Part<Stage>,
    /// The totals log, as far as the pipeline has brought all its lanes.
    pub(super) totals: Part<Stage>,
    /// The stores by name, each as far as its applier has brought all its lanes.
    pub(super) stores: BTreeMap<String, Part<Stage>>,
    /// Records in the dead-letters topic.
    pub(super) dead_letters: Part<u64>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Part<T> {
    Known(T),
    Unknown { error: String },
}

impl<T> Part<T> {
    fn of<E: Into<anyhow::Error>>(found: Result<T, E>) -> Self {
        match found {
            Ok(found) => Self::Known(found),
            Err(error) => Self::Unknown { error: format!("{:#}", error.into()) },
        }
    }

    fn known(&self) -> Option<&T> {
        if let Self::Known(known) = self { Some(known) } else { None }
    }
}

/// How far a stage has come.
#[derive(Debug, Serialize)]
pub(super) struct Stage {
    /// The last window that it has done; 0 before the first.
    pub(super) window: WindowId,
    /// The label of that window's cut, in microseconds since 1970; `None` before the first window.
    pub(super) as_of: Option<Micros>,
    pub(super) kind: Option<CutKind>,
    /// How long ago that was, in milliseconds.
    pub(super) staleness_ms: Option<i64>,
    /// Windows in the log that it has yet to do, counted up to 10,000; `None` when the log does not tell.
    pub(super) lag_windows: Option<usize>,
    /// Of a store: lanes that have no fence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lanes_missing: Option<usize>,
}

/// The replication slot, which keeps in Postgres what the log has not got.
#[derive(Debug, Serialize)]
pub(super) struct Slot {
    pub(super) name: String,
    /// Whether a relay reads from it.
    pub(super) active: bool,
    /// Bytes of write-ahead log that are not acknowledged.
    pub(super) lag_bytes: i64,
    /// Bytes of write-ahead log that Postgres keeps because of it.
    pub(super) kept_bytes: i64,
}

impl Status {
    /// Whether everything could be asked.
    pub(super) fn is_known(&self) -> bool {
        self.slot.known().is_some()
            && self.log.known().is_some()
            && self.totals.known().is_some()
            && self.stores.values().all(|store| store.known().is_some())
            && self.dead_letters.known().is_some()
    }
}

pub(super) fn look(config: &Config) -> Status {
    // Downstream first: a stage asked later cannot be ahead of what was asked before it.
    let mut stores: BTreeMap<_, _> =
        config.store.iter().map(|(name, store)| (name.clone(), Part::of(store_stage(store)))).collect();
    let mut totals = Part::of(totals_stage(&config.kafka));
    let mut log = Part::of(windows::last(&config.kafka).map(|last| stage(last.as_ref())));
    let at = now();
    let last = log.known().map(|log| log.window);

    let mut stages: Vec<&mut Stage> = [&mut totals, &mut log]
        .into_iter()
        .chain(stores.values_mut())
        .filter_map(|part| if let Part::Known(stage) = part { Some(stage) } else { None })
        .collect();
    let least = stages.iter().map(|stage| stage.window).min().unwrap_or(0);
    let history = last.and_then(|last| history(&config.kafka, least, last).ok());
    for stage in &mut stages {
        stage.staleness_ms = stage.as_of.map(|as_of| (at - as_of).max(0) / 1_000);
        stage.lag_windows =
            history.as_ref().map(|windows| windows.iter().filter(|window| **window > stage.window).count());
    }
    Status {
        at,
        slot: Part::of(slot(config)),
        log,
        totals,
        stores,
        dead_letters: Part::of(reach::dead_letters(&config.kafka)),
    }
}

fn stage(record: Option<&WindowRecord>) -> Stage {
    Stage {
        window: record.map_or(0, |record| record.window),
        as_of: record.map(|record| record.as_of),
        kind: record.map(|record| record.kind),
        staleness_ms: None,
        lag_windows: None,
        lanes_missing: None,
    }
}

fn totals_stage(kafka: &KafkaConfig) -> anyhow::Result<Stage> {
    let window = reach::totals(kafka)?;
    if window == 0 {
        return Ok(stage(None));
    }
    let record = windows::at(kafka, window)?;
    Ok(Stage { window, ..stage(record.as_ref()) })
}

fn store_stage(config: &StoreConfig) -> anyhow::Result<Stage> {
    let fences = CountsReader::open(config)?.fences()?;
    let missing = fences.iter().filter(|fence| fence.is_none()).count();
    let least = fences.into_iter().flatten().min_by_key(|fence| fence.window);
    let least = least.filter(|fence| missing == 0 && fence.window > 0);
    Ok(Stage {
        window: least.map_or(0, |fence| fence.window),
        as_of: least.map(|fence| fence.as_of),
        kind: least.map(|fence| fence.kind),
        lanes_missing: Some(missing),
        ..stage(None)
    })
}

/// The windows of the log after one and up to another, at most as many as are counted.
fn history(kafka: &KafkaConfig, after: WindowId, last: WindowId) -> anyhow::Result<Vec<WindowId>> {
    if after >= last {
        return Ok(Vec::new());
    }
    let mut reader = WindowsReader::open(kafka, after)?;
    let deadline = Instant::now() + HISTORY_PATIENCE;
    let mut windows = Vec::new();
    while windows.len() < LAG_WINDOWS_MAX && windows.last().is_none_or(|read| *read < last) {
        let record = reader.next_until(deadline)?.context("the history of windows was not read in time")?;
        windows.push(record.window);
    }
    Ok(windows)
}

fn slot(config: &Config) -> anyhow::Result<Slot> {
    let mut settings: postgres::Config = config.postgres.url.parse().context("cannot read postgres.url")?;
    let mut client =
        settings.connect_timeout(CONNECT_PATIENCE).connect(NoTls).context("cannot connect to Postgres")?;
    let name = &config.relay.slot;
    let row = client
        .query_opt(
            "SELECT active, pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint, \
             pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint \
             FROM pg_replication_slots WHERE slot_name = $1 AND restart_lsn IS NOT NULL",
            &[name],
        )
        .context("cannot read the replication slot")?
        .with_context(|| {
            format!(
                "there is no replication slot {name} that holds anything: on a first start run `fencepost migrate`; \
                 otherwise changes may be lost, and the relay says what to do"
            )
        })?;
    Ok(Slot { name: name.clone(), active: row.get(0), lag_bytes: row.get(1), kept_bytes: row.get(2) })
}

fn now() -> Micros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
