//! The checkpoint's writer: collects the partitions' pieces into frames, appends them, syncs.
//!
//! A step machine; `thread` drives it. The rules that it keeps:
//!
//! 1. A frame is written only with all partitions, and only after the frame of the window before.
//! 2. All frames that are complete at a step are synced together, then published: one sync serves a backlog.
//! 3. A file goes once all its windows lie below what a restart can need.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::Context;
use crossbeam_channel::Receiver;
use fencepost_model::{Id, WindowId};

use super::frame::{Frame, FrameHead, WindowHead};
use super::handle::{Piece, Shared};
use super::lock::DirectoryLock;
use super::segment::{Place, SegmentName, SegmentWriter};
use crate::Metrics;
use crate::horizon::Horizon;
use crate::identity::Arrivals;

/// What bounds segments, and what frames are like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Partitions of the flips topic.
    pub(crate) partitions: u32,
    /// Windows in a segment.
    pub(crate) segment_windows_max: u32,
    /// A segment is closed once it exceeds this.
    pub(crate) segment_bytes_max: u64,
    /// From this window on, frames hold all that is remembered.
    pub(crate) complete_from: WindowId,
}

/// Writes the frames of one incarnation.
pub(crate) struct FrameWriter<I> {
    dir: PathBuf,
    _lock: DirectoryLock,
    incarnation: u64,
    limits: Limits,
    horizon: Horizon,
    /// The last window written.
    last: WindowId,
    /// Windows of which pieces have come, but not all.
    open: BTreeMap<WindowId, Open<I>>,
    segment: Option<SegmentWriter>,
    /// Files that may go, each with its last window.
    files: BTreeMap<PathBuf, WindowId>,
    shared: Arc<Shared>,
    pub(super) received: Receiver<Piece<I>>,
    metrics: Arc<Metrics>,
}

struct Open<I> {
    window: WindowHead,
    /// By partition.
    pieces: BTreeMap<u32, (i64, Arrivals<I>)>,
}

impl<I: Id> FrameWriter<I> {
    #[expect(clippy::too_many_arguments, reason = "made in one place, from what recovery found")]
    pub(super) fn new(
        (dir, lock): (PathBuf, DirectoryLock),
        incarnation: u64,
        limits: Limits,
        (horizon, last): (Horizon, WindowId),
        files: BTreeMap<PathBuf, WindowId>,
        shared: Arc<Shared>,
        received: Receiver<Piece<I>>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            dir,
            _lock: lock,
            incarnation,
            limits,
            horizon,
            last,
            open: BTreeMap::new(),
            segment: None,
            files,
            shared,
            received,
            metrics,
        }
    }

    /// Takes a piece.
    ///
    /// # Errors
    /// When partitions disagree about a window.
    ///
    /// # Panics
    /// When a partition comes twice: its worker follows its windows.
    pub(crate) fn take(&mut self, piece: Piece<I>) -> anyhow::Result<()> {
        let Piece { window, partition, next_offset, arrivals } = piece;
        let open = self.open.entry(window.window).or_insert_with(|| Open { window, pieces: BTreeMap::new() });
        let other = open.window;
        anyhow::ensure!(
            other == window,
            "partition {partition} of the flips topic disagrees with another about window {}: {window:?}, {other:?}",
            window.window,
        );
        let twice = open.pieces.insert(partition, (next_offset, arrivals));
        assert!(twice.is_none(), "partition {partition} came twice in window {}", window.window);
        Ok(())
    }

    /// Writes and syncs every frame that is complete, and lets go of what nobody needs any more.
    ///
    /// # Errors
    /// When the disk fails; what was published before stays true.
    pub(crate) fn step(&mut self) -> anyhow::Result<()> {
        let mut synced = Vec::new();
        while let Some(open) = self.next_complete() {
            synced.push(
                self.write(open)
                    .with_context(|| format!("cannot write a frame to {}", self.dir.display()))?,
            );
            if self.segment_is_full() {
                self.sync()?;
                self.segment = None;
            }
        }
        if synced.is_empty() {
            return Ok(());
        }
        self.sync()?;
        Metrics::add(&self.metrics.frames, synced.len());
        self.shared.publish(synced);
        self.remove_released()
    }

    /// The next window in order, once all its partitions are there.
    fn next_complete(&mut self) -> Option<Open<I>> {
        let first = self.open.first_entry()?;
        let complete = u32::try_from(first.get().pieces.len()) == Ok(self.limits.partitions);
        complete.then(|| first.remove())
    }

    fn write(&mut self, open: Open<I>) -> std::io::Result<(FrameHead, Place)> {
        let Open { window, pieces } = open;
        assert_eq!(window.before, self.last, "window {} does not follow the last frame", window.window);
        self.horizon.close(window.window, window.kind);
        let remembered_from = self.horizon.first().expect("the window just closed is remembered");
        let offsets = pieces.iter().map(|(partition, (offset, _))| (*partition, *offset)).collect();
        let head = FrameHead {
            window,
            remembered_from,
            confirmed: self.shared.confirmed(),
            complete: window.window >= self.limits.complete_from,
            offsets,
        };
        let frame = Frame::new(head, pieces.into_values().map(|(_, arrivals)| arrivals))?;
        let segment = match &mut self.segment {
            Some(segment) => segment,
            none => {
                let name = SegmentName { incarnation: self.incarnation, first: window.window };
                none.insert(SegmentWriter::create(&self.dir, name)?)
            }
        };
        let place = segment.append(&frame)?;
        self.files.insert(place.path().to_owned(), window.window);
        self.last = window.window;
        Ok((frame.into_head(), place))
    }

    fn segment_is_full(&self) -> bool {
        self.segment.as_ref().is_some_and(|segment| {
            segment.frames() >= self.limits.segment_windows_max
                || segment.bytes() >= self.limits.segment_bytes_max
        })
    }

    fn sync(&self) -> anyhow::Result<()> {
        if let Some(segment) = &self.segment {
            segment.sync().with_context(|| format!("cannot sync a segment of {}", self.dir.display()))?;
            self.metrics.syncs.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn remove_released(&mut self) -> anyhow::Result<()> {
        let floor = self.shared.release();
        let released: Vec<_> =
            self.files.iter().filter(|(_, last)| **last < floor).map(|(path, _)| path.clone()).collect();
        for path in released {
            std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            self.files.remove(&path);
        }
        Ok(())
    }
}
