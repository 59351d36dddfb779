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
use super::handle::{Piece, Restored, Shared};
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

/// The directory being written to.
#[derive(Debug)]
pub(crate) struct Home {
    /// Its path.
    pub(crate) path: PathBuf,
    /// Held for as long as it is written to.
    pub(crate) _lock: DirectoryLock,
    /// Files that go once their last window has left the horizon.
    pub(crate) files: BTreeMap<PathBuf, WindowId>,
}

/// Writes the frames of one incarnation.
pub(crate) struct FrameWriter<I> {
    home: Home,
    incarnation: u64,
    limits: Limits,
    horizon: Horizon,
    /// The last window written.
    last: WindowId,
    /// Windows of which pieces have come, but not all.
    open: BTreeMap<WindowId, Open<I>>,
    segment: Option<SegmentWriter>,
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
    pub(super) fn new(
        home: Home,
        incarnation: u64,
        limits: Limits,
        restored: &Restored,
        shared: Arc<Shared>,
        received: Receiver<Piece<I>>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            home,
            incarnation,
            limits,
            horizon: restored.horizon.clone(),
            last: restored.last,
            open: BTreeMap::new(),
            segment: None,
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
        assert!(twice.is_none(), "partition {partition} came twice in window {} (I17)", window.window);
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
                    .with_context(|| format!("cannot write a frame to {}", self.home.path.display()))?,
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
        assert_eq!(window.before, self.last, "window {} does not follow the last frame (I17)", window.window);
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
                none.insert(SegmentWriter::create(&self.home.path, name)?)
            }
        };
        let place = segment.append(&frame)?;
        self.home.files.insert(place.path().to_owned(), window.window);
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
            segment
                .sync()
                .with_context(|| format!("cannot sync a segment of {}", self.home.path.display()))?;
            self.metrics.syncs.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn remove_released(&mut self) -> anyhow::Result<()> {
        let floor = self.shared.release();
        let released: Vec<_> =
            self.home.files.iter().filter(|(_, last)| **last < floor).map(|(path, _)| path.clone()).collect();
        for path in released {
            std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            self.home.files.remove(&path);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use fencepost_model::{CutKind, Position};
    use fencepost_sources::log::totals_chain::ChainEnd;

    use super::*;
    use crate::checkpoint::{Checkpoint, Directory};
    use crate::identity::FlipKey;
    use crate::resume::{Resume, resume};
    use crate::{Fingerprint, FlipsTopic, PipelineConfig};

    struct Begun {
        checkpoint: Checkpoint<i64>,
        writer: FrameWriter<i64>,
        metrics: Arc<Metrics>,
    }

    fn open(dir: &std::path::Path) -> Directory {
        let topic = FlipsTopic { id: "flips".to_owned(), partitions: 2 };
        Directory::open(dir, Fingerprint::new::<i64>(3, topic)).unwrap()
    }

    fn begin(dir: &std::path::Path, resume: Resume) -> Begun {
        let config = PipelineConfig {
            horizon_windows: 3,
            windows_in_flight: 2,
            segment_windows_max: 2,
            ..PipelineConfig::default()
        };
        let directory = open(dir);
        let (incarnation, metrics) = (directory.greatest_incarnation() + 1, Arc::default());
        let (checkpoint, writer) = directory.begin(resume, 0, incarnation, &config, &metrics).unwrap();
        Begun { checkpoint, writer, metrics }
    }

    fn piece(window: WindowId, partition: u32) -> Piece<i64> {
        let head = WindowHead {
            window,
            before: window - 1,
            position: Position::after_transaction(1, window),
            as_of: 0,
            kind: CutKind::Whole,
        };
        let key = FlipKey { item: window.cast_signed(), user: partition.into(), version: 1 };
        let arrivals = Arrivals { flips: vec![key], corrections: Vec::new() };
        Piece { window: head, partition, next_offset: i64::from(partition) * 100, arrivals }
    }

    fn write(begun: &mut Begun, windows: impl IntoIterator<Item = WindowId>) {
        for window in windows {
            begun.writer.take(piece(window, 0)).unwrap();
            begun.writer.take(piece(window, 1)).unwrap();
        }
        begun.writer.step().unwrap();
    }

    fn held(dir: &std::path::Path) -> Vec<WindowId> {
        open(dir).heads().iter().map(|head| head.window.window).collect()
    }

    #[test]
    fn a_frame_waits_for_all_partitions_and_for_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let mut begun = begin(dir.path(), Resume::Start);
        for (window, partition, durable) in [(1, 1, 0), (2, 1, 0), (2, 0, 0), (1, 0, 2)] {
            begun.writer.take(piece(window, partition)).unwrap();
            begun.writer.step().unwrap();
            assert_eq!(begun.checkpoint.durable(), durable);
        }
        let read = begun.checkpoint.read(2, &[1, 0]).unwrap();
        assert_eq!(read, [piece(2, 1).arrivals, piece(2, 0).arrivals]);
    }

    #[test]
    fn a_backlog_is_synced_together() {
        let dir = tempfile::tempdir().unwrap();
        let mut begun = begin(dir.path(), Resume::Start);
        write(&mut begun, 1..=7);
        let counted = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        assert_eq!(
            (counted(&begun.metrics.frames), counted(&begun.metrics.syncs)),
            (7, 4),
            "a sync a segment"
        );
    }

    #[test]
    fn what_is_confirmed_and_beyond_the_horizon_goes() {
        let dir = tempfile::tempdir().unwrap();
        let mut begun = begin(dir.path(), Resume::Start);
        write(&mut begun, 1..=8);
        begun.checkpoint.confirm(7);
        write(&mut begun, [9]);
        drop(begun);
        assert_eq!(
            held(dir.path()),
            [3, 4, 5, 6, 7, 8, 9],
            "window 6 remembers 4 to 6, whose segment begins at 3"
        );
    }

    /// A confirmation that no synced frame knows of is forgotten in a crash; so it takes nothing away.
    #[test]
    fn what_only_memory_knows_as_confirmed_releases_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut begun = begin(dir.path(), Resume::Start);
        write(&mut begun, 1..=8);
        begun.checkpoint.confirm(7);
        write(&mut begun, [9]);
        begun.checkpoint.confirm(10);
        begun.writer.remove_released().unwrap();
        drop(begun);
        let emptied = ChainEnd {
            lane: 0,
            first: None,
            end: None,
            beyond_gap: None,
            incarnation: None,
            log_start: 50,
            log_end: 50,
        };
        let resumed = resume(&open(dir.path()).heads(), &[emptied], false);
        assert_eq!(resumed, Ok(Resume::Checkpoint { window: 6 }));
    }

    #[test]
    fn frames_beyond_the_window_resumed_from_are_believed_no_more() {
        let dir = tempfile::tempdir().unwrap();
        write(&mut begin(dir.path(), Resume::Start), 1..=8);
        let mut second = begin(dir.path(), Resume::Checkpoint { window: 5 });
        assert_eq!(second.checkpoint.restored().horizon.windows().collect::<Vec<_>>(), [3, 4, 5]);
        write(&mut second, [6]);
        drop(second);
        assert_eq!(held(dir.path()), [1, 2, 3, 4, 5, 6]);
        drop(begin(dir.path(), Resume::Checkpoint { window: 6 }));
        assert_eq!(held(dir.path()), [1, 2, 3, 4, 5, 6]);
        drop(begin(dir.path(), Resume::Rebuild { window: 6 }));
        assert_eq!(held(dir.path()), [] as [WindowId; 0]);
    }

    #[test]
    fn a_disk_that_fails_is_reported_and_nothing_is_durable() {
        let dir = tempfile::tempdir().unwrap();
        let mut begun = begin(dir.path(), Resume::Start);
        write(&mut begun, 1..=2);
        std::fs::remove_dir_all(dir.path()).unwrap();
        begun.writer.take(piece(3, 0)).unwrap();
        begun.writer.take(piece(3, 1)).unwrap();
        let error = format!("{:#}", begun.writer.step().unwrap_err());
        assert!(error.contains("cannot write a frame"), "{error}");
        assert_eq!(begun.checkpoint.durable(), 2);
    }
}
