use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What all clients together have done.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) calls: AtomicU64,
    pub(crate) flips: AtomicU64,
    pub(crate) no_ops: AtomicU64,
    pub(crate) errors: AtomicU64,
    /// A client has failed: the others stop.
    pub(crate) failed: AtomicBool,
}

/// How far a load has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Time since the start.
    pub elapsed: Duration,
    /// Calls that were answered.
    pub calls: u64,
    /// Edges that those calls changed.
    pub flips: u64,
    /// Edges that those calls found as they should be: set before, or by an attempt whose answer was lost.
    pub no_ops: u64,
    /// Attempts that failed and were made again.
    pub errors: u64,
}

impl Tally {
    pub(crate) fn progress(&self, start: Instant) -> Progress {
        Progress {
            elapsed: start.elapsed(),
            calls: self.calls.load(Ordering::Relaxed),
            flips: self.flips.load(Ordering::Relaxed),
            no_ops: self.no_ops.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
        }
    }
}
