//! How one worker's error reaches the others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The first error of any worker of the process. Once it is set, stages keep their capabilities and do nothing more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Failure(Arc<State>);

#[derive(Debug, Default)]
struct State {
    error: Mutex<Option<anyhow::Error>>,
    /// Looked at by every stage at every step.
    is_set: AtomicBool,
}

impl Failure {
    /// Reports an error; the first one is kept.
    pub(crate) fn set(&self, error: anyhow::Error) {
        self.0.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.0.is_set.store(true, Ordering::Release);
    }

    /// Whether there was one.
    pub(crate) fn is_set(&self) -> bool {
        self.0.is_set.load(Ordering::Acquire)
    }

    /// The error, once.
    pub(crate) fn take(&self) -> Option<anyhow::Error> {
        self.0.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
