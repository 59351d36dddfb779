//! A worker's side of the checkpoint: hand in, ask what is durable, read back.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use crossbeam_channel::{Sender, TrySendError};
use fencepost_model::{Id, WindowId};
use fencepost_sources::log::Waker;

use super::frame::{FrameHead, WindowHead};
use super::segment::Place;
use crate::horizon::Horizon;
use crate::identity::Arrivals;

/// One partition's part of a frame.
#[derive(Clone, Debug)]
pub(crate) struct Piece<I> {
    /// What the marker says.
    pub(crate) window: WindowHead,
    /// The partition.
    pub(crate) partition: u32,
    /// Offset to go on reading from.
    pub(crate) next_offset: i64,
    /// What arrived.
    pub(crate) arrivals: Arrivals<I>,
}

/// What was restored.
#[derive(Clone, Debug)]
pub(crate) struct Restored {
    /// The window whose state the dataflow starts from; totals begin after it.
    pub(crate) window: WindowId,
    /// The last window that frames hold; below `window` while the horizon is read again from the log.
    pub(crate) last: WindowId,
    /// The horizon after `last`: its windows have frames, to be inserted at `window`.
    pub(crate) horizon: Horizon,
}

/// What the writer and the workers of a process share.
pub(super) struct Shared {
    frames: Mutex<BTreeMap<WindowId, (FrameHead, Place)>>,
    /// Every window up to it has a synced frame.
    durable: AtomicU64,
    /// Every window below it is confirmed by the totals log.
    frontier: AtomicU64,
    wakes: Mutex<Vec<Waker>>,
}

impl Shared {
    pub(super) fn new(frames: BTreeMap<WindowId, (FrameHead, Place)>, durable: WindowId) -> Self {
        Self {
            frames: Mutex::new(frames),
            durable: AtomicU64::new(durable),
            frontier: AtomicU64::new(0),
            wakes: Mutex::new(Vec::new()),
        }
    }

    /// The last window known to be confirmed; 0 when none is.
    pub(super) fn confirmed(&self) -> WindowId {
        let frontier = self.frontier.load(Ordering::Acquire);
        let frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        frames.range(..frontier).next_back().map_or(0, |(window, _)| *window)
    }

    /// Publishes frames that were synced.
    pub(super) fn publish(&self, synced: Vec<(FrameHead, Place)>) {
        let Some(durable) = synced.last().map(|(head, _)| head.window.window) else { return };
        let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        frames.extend(synced.into_iter().map(|(head, place)| (head.window.window, (head, place))));
        drop(frames);
        self.durable.store(durable, Ordering::Release);
        for wake in self.wakes.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            wake();
        }
    }

    /// Forgets the frames that no recovery can need any more, and returns the window that they lie below: what was
    /// remembered at the last window that the synced frames know as confirmed is the least that a restart reads. What
    /// was confirmed since is not on disk, and a restart may have nothing else to go by.
    pub(super) fn release(&self) -> WindowId {
        let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        let confirmed = frames.values().next_back().and_then(|(head, _)| frames.get(&head.confirmed));
        let Some(floor) = confirmed.map(|(head, _)| head.remembered_from) else { return 0 };
        let kept = frames.split_off(&floor);
        *frames = kept;
        floor
    }
}

/// A worker's handle.
pub(crate) struct Checkpoint<I> {
    pieces: Sender<Piece<I>>,
    shared: Arc<Shared>,
    restored: Restored,
}

impl<I> Clone for Checkpoint<I> {
    fn clone(&self) -> Self {
        let Self { pieces, shared, restored } = self;
        Self { pieces: pieces.clone(), shared: Arc::clone(shared), restored: restored.clone() }
    }
}

impl<I: Id> Checkpoint<I> {
    pub(super) fn new(pieces: Sender<Piece<I>>, shared: Arc<Shared>, restored: Restored) -> Self {
        Self { pieces, shared, restored }
    }

    /// What was restored.
    pub(crate) fn restored(&self) -> &Restored {
        &self.restored
    }

    /// Hands in a partition's part of a window.
    ///
    /// # Errors
    /// When the writer has stopped; its own error says why.
    ///
    /// # Panics
    /// When more is handed in than windows may be in flight.
    pub(crate) fn put(&self, piece: Piece<I>) -> anyhow::Result<()> {
        match self.pieces.try_send(piece) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(_)) => {
                panic!("windows in flight are bounded, so are pieces for the writer (I19)")
            }
            Err(TrySendError::Disconnected(_)) => anyhow::bail!("the checkpoint's writer has stopped"),
        }
    }

    /// Every window up to it has a synced frame.
    pub(crate) fn durable(&self) -> WindowId {
        self.shared.durable.load(Ordering::Acquire)
    }

    /// Every window below the frontier is confirmed by the totals log.
    pub(crate) fn confirm(&self, frontier: WindowId) {
        self.shared.frontier.fetch_max(frontier, Ordering::AcqRel);
    }

    /// Asks to be woken whenever more is durable.
    pub(crate) fn wake(&self, wake: Waker) {
        self.shared.wakes.lock().unwrap_or_else(PoisonError::into_inner).push(wake);
    }

    /// What arrived in a window, by partition in the order asked for.
    ///
    /// # Errors
    /// When the frame cannot be read back.
    pub(crate) fn read(&self, window: WindowId, partitions: &[u32]) -> anyhow::Result<Vec<Arrivals<I>>> {
        let frames = self.shared.frames.lock().unwrap_or_else(PoisonError::into_inner);
        let place = frames.get(&window).map(|(_, place)| place.clone());
        drop(frames);
        let frame = place
            .with_context(|| format!("window {window} is remembered, but has no frame in the checkpoint"))?
            .read()?;
        let arrivals = partitions.iter().map(|partition| frame.arrivals(*partition));
        arrivals
            .collect::<Result<_, _>>()
            .with_context(|| format!("cannot unpack the frame of window {window}"))
    }
}
