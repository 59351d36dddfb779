//! What an applier counts about itself.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use fencepost_model::Fence;

/// Counts since the applier started. Written by the applier, read by whoever reports them.
#[derive(Debug, Default)]
pub struct ApplierMetrics {
    /// Lane windows applied: a window of 64 lanes counts 64.
    pub applied_windows: AtomicU64,
    /// Counters added to.
    pub applied_items: AtomicU64,
    /// Offers that the fence refused.
    pub refusals: AtomicU64,
    /// Times that a lane's fence was found behind where this applier had seen it.
    pub went_back: AtomicU64,
    /// Records of the totals log that were at or behind the fence.
    pub replays_skipped: AtomicU64,
    /// Records that did not follow; read again after a mend.
    pub gaps_skipped: AtomicU64,
    /// Counters that were no number.
    pub set_aside: AtomicU64,
    /// Counters whose sum fell below zero.
    pub debts: AtomicU64,
    /// Transient errors of the store, each followed by a new connection.
    pub reconnects: AtomicU64,
    /// The window of the fence that is furthest behind.
    pub window: AtomicU64,
    /// As of when every counter is exact, in microseconds since 1970.
    pub as_of: AtomicI64,
}

impl ApplierMetrics {
    /// Takes note of the fence that is furthest behind.
    pub(crate) fn stands_at(&self, least: &Fence) {
        self.window.store(least.window, Ordering::Relaxed);
        self.as_of.store(least.as_of, Ordering::Relaxed);
    }
}

/// Adds to a metric.
pub(crate) fn add(metric: &AtomicU64, n: usize) {
    metric.fetch_add(n as u64, Ordering::Relaxed);
}
