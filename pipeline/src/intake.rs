//! The agreement between a process's workers on where to stop (I24).
//!
//! A window is finished only when every worker has taken its partitions of it, so workers that are told to stop must
//! stop at the same one: the greatest that any of them had taken when the first heard of it. Admitting a window and
//! hearing of the stop are one step under a lock, so no worker can slip past the others.

use std::sync::{Mutex, MutexGuard, PoisonError};

use fencepost_model::WindowId;

/// What all workers have taken, and whether they take more.
#[derive(Debug)]
pub(crate) struct Intake(Mutex<State>);

#[derive(Clone, Copy, Debug)]
struct State {
    greatest: WindowId,
    stopped: bool,
}

impl Intake {
    /// Nothing taken beyond this window.
    pub(crate) fn new(taken: WindowId) -> Self {
        Self(Mutex::new(State { greatest: taken, stopped: false }))
    }

    /// Whether a worker may take its part of this window.
    pub(crate) fn admit(&self, window: WindowId) -> bool {
        let mut state = self.lock();
        if state.stopped {
            return window <= state.greatest;
        }
        state.greatest = state.greatest.max(window);
        true
    }

    /// From now on no worker begins a window that none has begun.
    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
    }

    /// The last window to be finished, once told to stop.
    pub(crate) fn last(&self) -> Option<WindowId> {
        let state = self.lock();
        state.stopped.then_some(state.greatest)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_the_stop_only_windows_already_begun_are_taken() {
        let intake = Intake::new(5);
        assert!(intake.admit(6) && intake.admit(9));
        assert_eq!(intake.last(), None);
        intake.stop();
        assert_eq!(intake.last(), Some(9));
        assert!(intake.admit(7) && intake.admit(9));
        assert!(!intake.admit(10));
        assert_eq!(intake.last(), Some(9));
    }
}
