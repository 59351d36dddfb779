//! Which slices are taken when: the source of a worker, apart from timely.
//!
//! Invariant (I16, I19): no more than `windows_in_flight` windows are taken that the totals log has not confirmed, and a
//! window is given up by this worker only once it is closed here and synced.
//!
//! A step, in this order:
//!
//! 1. Restore: what the frames remember is inserted at the window resumed from, a frame a step.
//! 2. Settle: windows that are confirmed are in flight no more.
//! 3. Read ahead: ask the reader as long as some partition has no slice at hand. The reader keeps partitions within a
//!    few windows of each other, so what is held for the others is bounded.
//! 4. Take: slices whose window may be begun go to the dataflow, at their window, and to the checkpoint.
//! 5. Close: once all partitions are past w, what leaves the horizon at w is retracted at w.
//! 6. Give up: the frontier goes past every window that is closed and synced.
//!
//! While a lost horizon is read again from the log, its windows lie at or before the one resumed from: their rows are
//! inserted at that window, and they are in flight until their frames are synced.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::Context;
use fencepost_model::{Correction, Id, TotalCorrection, WindowId};
use fencepost_sources::log::{FlipsReader, WindowSlice};

use super::distinct::Row;
use crate::Metrics;
use crate::checkpoint::{Checkpoint, Piece, WindowHead};
use crate::horizon::Horizon;
use crate::identity::{Arrivals, FlipKey};
use crate::intake::Intake;

/// Slices taken in one step, at most: other operators get their turn in between.
const SLICES_A_STEP_MAX: usize = 16;

/// What the source of a worker works with.
pub(crate) struct SourceParts<I> {
    /// This worker's partitions.
    pub(crate) partitions: Vec<u32>,
    /// Reads them.
    pub(crate) reader: Box<dyn FlipsReader<I>>,
    /// Where frames go and come from.
    pub(crate) checkpoint: Checkpoint<I>,
    /// Agrees with the other workers where to stop.
    pub(crate) intake: Arc<Intake>,
    /// Windows in flight, at most.
    pub(crate) windows_in_flight: usize,
    /// Where to count.
    pub(crate) metrics: Arc<Metrics>,
}

/// What a step gives to the dataflow: containers of rows that share a window.
pub(super) struct Step<I> {
    pub(super) flips: Vec<(WindowId, Vec<Row<FlipKey<I>>>)>,
    pub(super) corrections: Vec<(WindowId, Vec<Row<TotalCorrection<I>>>)>,
    pub(super) heads: Vec<WindowHead>,
    /// Where the capabilities may go, once all of this is sent.
    pub(super) frontier: WindowId,
    /// Whether there is more to do at once.
    pub(super) more: bool,
}

impl<I: Id> Step<I> {
    fn insert(&mut self, window: WindowId, arrivals: &Arrivals<I>, difference: i64) {
        let flips = arrivals.flips.iter().map(|key| ((*key, ()), window, difference)).collect();
        self.flips.push((window, flips));
        let corrections = arrivals.corrections.iter().map(|key| ((key.clone(), ()), window, difference));
        self.corrections.push((window, corrections.collect()));
    }
}

/// A partition of this worker.
struct Partition<I> {
    /// The last window taken.
    taken: WindowId,
    /// Read, but not yet taken.
    held: VecDeque<WindowSlice<I>>,
}

/// The slices of a worker's partitions.
pub(super) struct Slices<I> {
    parts: SourceParts<I>,
    partitions: BTreeMap<u32, Partition<I>>,
    /// The window resumed from.
    resume: WindowId,
    /// Frames still to be restored.
    restore: VecDeque<WindowId>,
    horizon: Horizon,
    /// Windows taken by some partition of this worker and not closed.
    heads: BTreeMap<WindowId, WindowHead>,
    /// Windows begun here and not settled.
    in_flight: BTreeSet<WindowId>,
    /// The last window that all partitions of this worker are past.
    closed: WindowId,
    /// Windows closed here and not known to be synced.
    unsynced: VecDeque<WindowId>,
    /// The last window closed here whose frame is synced.
    synced: WindowId,
}

impl<I: Id> Slices<I> {
    pub(super) fn new(parts: SourceParts<I>) -> Self {
        let restored = parts.checkpoint.restored();
        let (resume, last) = (restored.window, restored.last);
        let horizon = restored.horizon.clone();
        let partition = |partition: &u32| (*partition, Partition { taken: last, held: VecDeque::new() });
        Self {
            resume,
            restore: horizon.windows().collect(),
            horizon,
            partitions: parts.partitions.iter().map(partition).collect(),
            heads: BTreeMap::new(),
            in_flight: BTreeSet::new(),
            closed: last,
            unsynced: VecDeque::new(),
            synced: last,
            parts,
        }
    }

    /// Whether the worker has no partition.
    pub(super) fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }

    /// The window resumed from: the first time at which anything is sent.
    pub(super) fn resume(&self) -> WindowId {
        self.resume
    }

    /// Takes what is ready. Every window below `confirmed` is confirmed by the totals log.
    pub(super) fn step(&mut self, confirmed: WindowId) -> anyhow::Result<Step<I>> {
        let mut step = Step {
            flips: Vec::new(),
            corrections: Vec::new(),
            heads: Vec::new(),
            frontier: self.resume,
            more: false,
        };
        if let Some(window) = self.restore.pop_front() {
            for arrivals in self.parts.checkpoint.read(window, &self.parts.partitions)? {
                step.insert(self.resume, &arrivals, 1);
            }
            step.more = true;
            return Ok(step);
        }
        self.settle(confirmed);
        let read = self.read_ahead()?;
        let taken = self.take(&mut step)?;
        self.close(&mut step)?;
        step.frontier = self.frontier();
        step.more = taken > 0 || read == SLICES_A_STEP_MAX;
        Ok(step)
    }

    fn settle(&mut self, confirmed: WindowId) {
        let (resume, durable) = (self.resume, self.parts.checkpoint.durable());
        self.in_flight.retain(
            |window| {
                if *window <= resume { *window > durable } else { *window >= confirmed }
            },
        );
    }

    fn read_ahead(&mut self) -> anyhow::Result<usize> {
        let mut read = 0;
        while read < SLICES_A_STEP_MAX && self.partitions.values().any(|partition| partition.held.is_empty())
        {
            let Some(slice) = self.parts.reader.poll().context("cannot read the flips topic")? else { break };
            let partition = self.partitions.get_mut(&slice.partition).with_context(|| {
                format!("the reader gave partition {}, which was not asked for", slice.partition)
            })?;
            partition.held.push_back(slice);
            read += 1;
        }
        Ok(read)
    }

    fn take(&mut self, step: &mut Step<I>) -> anyhow::Result<usize> {
        let mut taken = 0;
        let partitions = self.parts.partitions.clone();
        while taken < SLICES_A_STEP_MAX {
            let before = taken;
            for partition in &partitions {
                if let Some(slice) = self.next_admitted(*partition) {
                    self.take_slice(slice, step)?;
                    taken += 1;
                }
            }
            if taken == before {
                break;
            }
        }
        Ok(taken)
    }

    /// The partition's next slice, if its window may be begun or is.
    fn next_admitted(&mut self, partition: u32) -> Option<WindowSlice<I>> {
        let held = &mut self.partitions.get_mut(&partition)?.held;
        let window = held.front()?.marker.window;
        let room = self.in_flight.len() < self.parts.windows_in_flight || self.in_flight.contains(&window);
        (room && self.parts.intake.admit(window)).then(|| held.pop_front())?
    }

    fn take_slice(&mut self, slice: WindowSlice<I>, step: &mut Step<I>) -> anyhow::Result<()> {
        let WindowSlice { partition: number, marker, next_offset, flips, corrections, known_by_position } =
            slice;
        let head = WindowHead::from(&marker);
        let partition = self.partitions.get_mut(&number).expect("slices are held by partition");
        anyhow::ensure!(
            head.before == partition.taken,
            "partition {number} of the flips topic goes on with window {} after {}, but window {} was the last one read",
            head.window,
            head.before,
            partition.taken,
        );
        partition.taken = head.window;
        self.heads.insert(head.window, head);
        self.in_flight.insert(head.window);
        self.count(&head, flips.len(), corrections.len(), known_by_position);
        let arrivals = Arrivals {
            flips: flips.iter().map(FlipKey::of).collect(),
            corrections: corrections.into_iter().map(key_of).collect(),
        };
        step.insert(head.window.max(self.resume), &arrivals, 1);
        if number == 0 && head.window > self.resume {
            step.heads.push(head);
        }
        self.parts.checkpoint.put(Piece { window: head, partition: number, next_offset, arrivals })
    }

    fn count(&self, head: &WindowHead, flips: usize, corrections: usize, known_by_position: u64) {
        let metrics = &self.parts.metrics;
        Metrics::add(&metrics.flips, flips);
        Metrics::add(&metrics.corrections, corrections);
        metrics.known_by_position.fetch_add(known_by_position, Ordering::Relaxed);
        metrics.taken.fetch_max(head.window, Ordering::Relaxed);
    }

    /// Closes, in order, every window that all partitions are past.
    fn close(&mut self, step: &mut Step<I>) -> anyhow::Result<()> {
        let Some(passed) = self.partitions.values().map(|partition| partition.taken).min() else {
            return Ok(());
        };
        while let Some(entry) = self.heads.first_entry().filter(|entry| *entry.key() <= passed) {
            let head = entry.remove();
            for leaving in self.horizon.close(head.window, head.kind) {
                assert!(
                    leaving <= self.parts.checkpoint.durable(),
                    "window {leaving} leaves before it is synced (I16)"
                );
                for arrivals in self.parts.checkpoint.read(leaving, &self.parts.partitions)? {
                    step.insert(head.window, &arrivals, -1);
                }
            }
            self.closed = head.window;
            self.unsynced.push_back(head.window);
        }
        Ok(())
    }

    /// The least time at which this worker may still send.
    fn frontier(&mut self) -> WindowId {
        let durable = self.parts.checkpoint.durable();
        while let Some(window) = self.unsynced.front().copied().filter(|window| *window <= durable) {
            self.synced = window;
            self.unsynced.pop_front();
        }
        if self.synced < self.resume { self.resume } else { self.synced + 1 }
    }
}

fn key_of<I>(correction: Correction<I>) -> TotalCorrection<I> {
    let Correction { id, item, store, amount, cut, at: _ } = correction;
    TotalCorrection { item, store, id, amount, cut }
}
