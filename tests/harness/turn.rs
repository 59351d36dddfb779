//! End-to-end tests take turns: each wants the machine, and some measure it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// Whose turn it is, and how many [`Turn`]s that thread holds.
static OWNER: Mutex<Option<(ThreadId, usize)>> = Mutex::new(None);
static FREE: Condvar = Condvar::new();

/// The right to run, while held. A thread may hold several; other threads wait until the last is dropped.
pub(super) struct Turn(());

impl Turn {
    pub(super) fn wait() -> Self {
        let me = thread::current().id();
        let mut owner = FREE
            .wait_while(lock(), |owner| owner.is_some_and(|(thread, _)| thread != me))
            .unwrap_or_else(PoisonError::into_inner);
        let held = owner.map_or(0, |(_, held)| held);
        *owner = Some((me, held + 1));
        Self(())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut owner = lock();
        *owner = owner.and_then(|(thread, held)| (held > 1).then_some((thread, held - 1)));
        FREE.notify_all();
    }
}

fn lock() -> MutexGuard<'static, Option<(ThreadId, usize)>> {
    OWNER.lock().unwrap_or_else(PoisonError::into_inner)
}
