//! The audit at rest, without which no fault test ends.
//!
//! The edges are read in one snapshot, the counters a lane at a time: the two meet at one cut only while nothing
//! changes. So the audit proves that nothing did, from the log:
//!
//! 1. Mark the write-ahead log, and wait until a window W that ends at a commit has reached the mark: everything
//!    committed before is in the windows up to W.
//! 2. Wait until the fences of all lanes have reached W.
//! 3. Read the edges in one snapshot, then the counters, each with a fence that still stands at W or beyond: a store may
//!    go back.
//! 4. Mark again, and wait for a window V that has reached this mark. If the windows after W up to V count no event,
//!    edges and counters stood still from W to V, and each was read at the same state (I31). Otherwise no verdict.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use fencepost_model::{Fence, WindowId, WindowRecord};
use fencepost_sinks::{CountsReader, Debts, StoreConfig};
use fencepost_sources::log::KafkaConfig;
use fencepost_sources::log::windows::{self, WindowsReader};
use postgres::{Client, NoTls};

use crate::comparison::{self, Comparison};
use crate::edges::{self, Source};

/// Counters read in one round trip.
const ITEMS_PER_READ: usize = 5_000;

/// How often fences are looked at while they are awaited.
const FENCE_POLL: Duration = Duration::from_millis(20);

/// What an audit found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// The window at whose cut edges and counters were compared.
    pub window: WindowId,
    /// The outcome.
    pub comparison: Comparison<i64>,
}

/// Why there is no verdict: something changed while the audit looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAtRest {
    /// The window at whose cut the comparison began.
    pub window: WindowId,
    /// Events that came after it, before the comparison ended.
    pub events: u64,
}

/// Compares every counter of a store with the edges, once, and changes nothing.
///
/// # Errors
/// When a service does not answer, a read is incomplete, or windows or fences do not reach the cut within `timeout`, which
/// each wait has for itself: how long the edges take to read is not known.
pub fn audit(
    postgres_url: &str,
    kafka: &KafkaConfig,
    store: &StoreConfig,
    timeout: Duration,
) -> anyhow::Result<Result<Audit, NotAtRest>> {
    let mut client = Client::connect(postgres_url, NoTls).context("connecting to Postgres")?;
    let mut counts = CountsReader::open(store)?;
    let mut log = Cuts::open(kafka)?;

    let source = edges::source(&mut client)?;
    let window = log.await_cut(edges::mark(&mut client)?, &source, timeout)?;
    await_fences(&mut counts, window, timeout)?;
    log.events = 0;
    let edges = edges::count(&mut client)?;
    let counters = read_counters(&mut counts, edges.keys().copied(), window)?;
    log.await_cut(edges::mark(&mut client)?, &source, timeout)?;

    let comparison = comparison::compare(&edges, &counters);
    Ok(if log.events == 0 {
        Ok(Audit { window, comparison })
    } else {
        Err(NotAtRest { window, events: log.events })
    })
}

/// The windows of the log, as they come.
struct Cuts {
    windows: WindowsReader,
    latest: Option<WindowRecord>,
    /// Events counted by the windows read.
    events: u64,
}

impl Cuts {
    fn open(kafka: &KafkaConfig) -> anyhow::Result<Self> {
        let latest = windows::last(kafka)?;
        let after = latest.as_ref().map_or(0, |record| record.window);
        Ok(Self { windows: WindowsReader::open(kafka, after)?, latest, events: 0 })
    }

    /// The first window from here on that ends at a commit and has reached `lsn` of this source.
    fn await_cut(&mut self, lsn: u64, source: &Source, timeout: Duration) -> anyhow::Result<WindowId> {
        let deadline = Instant::now() + timeout;
        while !self
            .latest
            .as_ref()
            .is_some_and(|record| record.kind.ends_at_commit() && record.position.lsn >= lsn)
        {
            let Some(record) = self.windows.next_until(deadline)? else {
                let window = self.latest.as_ref().map_or(0, |record| record.window);
                bail!(
                    "the log stands at window {window} and has not reached the end of Postgres' write-ahead log: is the relay running?"
                );
            };
            self.events += record.events();
            self.latest = Some(record);
        }
        let latest = self.latest.as_ref().context("the loop ends with a window")?;
        // Positions of another log say nothing about this one.
        ensure!(
            (&latest.system, latest.timeline) == (&source.system, source.timeline),
            "the log was written from Postgres system {} on timeline {}, and this is system {} on timeline {}: set \
             postgres.url to that database",
            latest.system,
            latest.timeline,
            source.system,
            source.timeline
        );
        Ok(latest.window)
    }
}

fn await_fences(counts: &mut CountsReader, window: WindowId, timeout: Duration) -> anyhow::Result<()> {
    let deadline = Instant::now() + timeout;
    loop {
        let fences = counts.fences()?;
        let behind = |fence: &Option<Fence>| fence.is_none_or(|fence| fence.window < window);
        let Some(lane) = fences.iter().position(behind) else { return Ok(()) };
        if Instant::now() >= deadline {
            let fence = fences[lane].map_or("no fence".to_owned(), |fence| format!("the fence {fence}"));
            bail!(
                "lane {lane} has {fence} and has not reached window {window}: are pipeline and applier running?"
            );
        }
        thread::sleep(FENCE_POLL);
    }
}

/// Every counter that the store or the edges know, with what its lane's debt holds back, each read at a fence that has
/// reached the window.
fn read_counters(
    counts: &mut CountsReader,
    edges: impl Iterator<Item = i64>,
    window: WindowId,
) -> anyhow::Result<BTreeMap<i64, Option<i64>>> {
    let went_back = "the store went back to an older state while it was read: run the audit again";
    let Debts { by_item: debts, fences } = counts.debts::<i64>()?;
    ensure!(fences.iter().all(|fence| fence.is_some_and(|fence| fence.window >= window)), went_back);
    let mut items: BTreeSet<i64> = counts.items()?.into_iter().collect();
    items.extend(debts.keys());
    items.extend(edges);
    let items: Vec<_> = items.into_iter().collect();
    let mut counters = BTreeMap::new();
    for chunk in items.chunks(ITEMS_PER_READ) {
        for count in counts.counts(chunk)? {
            ensure!(count.fence.window >= window, went_back);
            let debt = debts.get(&count.item).copied().unwrap_or(0);
            counters.insert(count.item, count.value.map(|value| value - debt));
        }
    }
    Ok(counters)
}
