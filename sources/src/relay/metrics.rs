//! What the relay counts of itself, shared with whoever shows it.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Closed;

/// Counts since the relay started. Written by the relay, read by whoever reports them.
#[derive(Debug, Default)]
pub struct RelayMetrics {
    /// Times that it took over the log: at its start, and after each failure that passed.
    pub sessions: AtomicU64,
    /// Windows closed.
    pub windows: AtomicU64,
    /// Events in them.
    pub events: AtomicU64,
    /// The last window closed.
    pub window: AtomicU64,
}

impl RelayMetrics {
    pub(super) fn took_over(&self) {
        self.sessions.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn closed(&self, closed: &Closed) {
        self.windows.fetch_add(1, Ordering::Relaxed);
        self.events.fetch_add(closed.events, Ordering::Relaxed);
        self.window.store(closed.window, Ordering::Relaxed);
    }
}
