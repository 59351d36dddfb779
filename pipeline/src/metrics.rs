//! What the pipeline counts of itself, shared with whoever shows it.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Counters and gauges of one pipeline process, over all its workers.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Flips taken from the log, replays by identity included.
    pub flips: AtomicU64,
    /// Corrections taken from the log, replays by identity included.
    pub corrections: AtomicU64,
    /// Records left out by their position: replays of what a marker has closed.
    pub known_by_position: AtomicU64,
    /// Arrivals of an identity that is remembered: they count nothing.
    pub known_by_identity: AtomicU64,
    /// The last window that a worker has taken.
    pub taken: AtomicU64,
    /// Every window below it is confirmed by the totals log.
    pub frontier: AtomicU64,
    /// Rows in memory for identities: those inserted and not yet merged away.
    pub remembered_rows: AtomicI64,
    /// Checkpoint frames synced.
    pub frames: AtomicU64,
    /// Calls that synced them: fewer than frames when behind.
    pub syncs: AtomicU64,
}

impl Metrics {
    pub(crate) fn add(counter: &AtomicU64, n: usize) {
        counter.fetch_add(n as u64, Ordering::Relaxed);
    }
}
