//! A log in memory: slices come in any order that partitions allow, parts are confirmed late, in part, or never.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use fencepost_model::placement::LANES;
use fencepost_model::totals::PartJoiner;
use fencepost_model::{LaneTotals, WindowId};
use fencepost_pipeline::{FlipsTopic, HorizonStart, PipelineLog};
use fencepost_sources::log::chain::Chain;
use fencepost_sources::log::totals_chain::ChainEnd;
use fencepost_sources::log::{FlipsReader, LogError, PartitionStart, TotalsWriter, Waker, WindowSlice};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::history::History;

/// A partition may be this many windows ahead of the slowest of its reader.
const AHEAD_MAX: usize = 4;

/// A part as it stands in the log: incarnation, bytes.
type Part = (u64, Vec<u8>);

/// What outlives the pipeline.
pub(crate) struct Topics {
    pub(crate) history: History,
    /// By lane.
    totals: Mutex<Vec<Vec<Part>>>,
    /// Set once every lane holds the last window.
    pub(crate) complete: AtomicBool,
    /// Lives that read a horizon again.
    pub(crate) rebuilds: AtomicUsize,
    /// Lives that began at the first window.
    pub(crate) starts: AtomicUsize,
    /// Whether retention has emptied the totals.
    pub(crate) emptied: AtomicBool,
}

impl Topics {
    pub(crate) fn new(history: History) -> Arc<Self> {
        Arc::new(Self {
            history,
            totals: Mutex::new(vec![Vec::new(); usize::from(LANES)]),
            complete: AtomicBool::new(false),
            rebuilds: AtomicUsize::new(0),
            starts: AtomicUsize::new(0),
            emptied: AtomicBool::new(false),
        })
    }

    /// Everything in the lanes, repeats included.
    pub(crate) fn raw(&self) -> Vec<Vec<(u64, LaneTotals<i64>)>> {
        let join = |parts: &Vec<Part>| {
            let mut joiner = PartJoiner::default();
            parts
                .iter()
                .filter_map(|(who, part)| {
                    joiner.push(*who, part).expect("our own part").map(|record| (*who, record))
                })
                .collect()
        };
        self.totals.lock().unwrap().iter().map(join).collect()
    }

    /// What a reader takes: of each lane the records that follow.
    pub(crate) fn records(&self) -> Vec<Vec<LaneTotals<i64>>> {
        let followed = |records: Vec<(u64, LaneTotals<i64>)>| {
            let mut fence = 0;
            let mut taken: Vec<LaneTotals<i64>> = Vec::new();
            for (_, record) in records {
                if record.before == fence {
                    fence = record.window;
                    taken.push(record);
                } else {
                    let repeat = taken.iter().find(|taken| taken.window == record.window);
                    assert!(repeat.is_none_or(|first| *first == record), "a repeat differs: {record:?}");
                }
            }
            taken
        };
        self.raw().into_iter().map(followed).collect()
    }

    /// The log loses the last records of some lanes.
    pub(crate) fn lose_tails(&self, random: &mut StdRng, records_max: usize) {
        for parts in &mut *self.totals.lock().unwrap() {
            let lost = random.random_range(0..=records_max);
            // A lane that lost everything is another case: the topic was made anew.
            parts.truncate(parts.len().saturating_sub(lost).max(1));
        }
        self.complete.store(false, Ordering::Release);
    }

    /// The log loses a record in the middle of a lane.
    pub(crate) fn lose_middle(&self, lane: usize) {
        let parts = &mut self.totals.lock().unwrap()[lane];
        assert!(parts.len() > 4, "there is no middle");
        parts.remove(parts.len() / 2);
        self.complete.store(false, Ordering::Release);
    }

    /// Retention removes all totals, or an operator the topic.
    pub(crate) fn empty_totals(&self, by_retention: bool) {
        self.totals.lock().unwrap().iter_mut().for_each(Vec::clear);
        self.emptied.store(by_retention, Ordering::Release);
        self.complete.store(false, Ordering::Release);
    }

    fn append(&self, lane: u8, part: Part) {
        self.totals.lock().unwrap()[usize::from(lane)].push(part);
    }

    fn note_completion(&self) {
        let last = self.history.last();
        let ends = self.chains().into_iter().all(|chain| chain.end == Some(last));
        if ends {
            self.complete.store(true, Ordering::Release);
        }
    }

    pub(crate) fn chains(&self) -> Vec<ChainEnd> {
        let lanes = self.raw().into_iter().zip(0..);
        let chain = |(records, lane): (Vec<(u64, LaneTotals<i64>)>, u8)| {
            let mut chain = Chain::default();
            records.iter().for_each(|(_, record)| chain.push(record));
            ChainEnd {
                lane,
                first: chain.first(),
                end: chain.end(),
                beyond_gap: chain.beyond_gap(),
                incarnation: records.iter().map(|(who, _)| *who).max(),
                log_start: if self.emptied.load(Ordering::Acquire) { 1_000 } else { 0 },
                log_end: 0,
            }
        };
        lanes.map(chain).collect()
    }
}

/// What a reader may do instead of reading.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// The brokers are away.
    Away,
    /// The reader panics.
    Panic,
    /// A partition skips a window.
    Hole,
    /// Another partition's marker of the window differs.
    OtherMarker,
}

/// One pipeline's view of the topics, with its faults.
pub(crate) struct MemoryLog {
    pub(crate) topics: Arc<Topics>,
    pub(crate) seed: u64,
    /// What happens when so many slices have been read.
    pub(crate) fault: Option<(Fault, usize)>,
    /// Parts that may still be appended before `crash` is set.
    pub(crate) parts_left: Arc<AtomicUsize>,
    pub(crate) crash: Arc<AtomicBool>,
}

impl PipelineLog<i64> for MemoryLog {
    fn flips_topic(&self) -> Result<FlipsTopic, LogError> {
        Ok(FlipsTopic { id: "flips".to_owned(), partitions: self.topics.history.partitions })
    }

    fn totals_chains(&self) -> Result<Vec<ChainEnd>, LogError> {
        Ok(self.topics.chains())
    }

    fn first_starts(&self) -> Result<Vec<PartitionStart>, LogError> {
        self.topics.starts.fetch_add(1, Ordering::Relaxed);
        Ok(self.starts_after(0))
    }

    fn horizon_start(&self, window: WindowId, horizon_windows: u32) -> Result<HorizonStart, LogError> {
        self.topics.rebuilds.fetch_add(1, Ordering::Relaxed);
        let mut whole = 0;
        let left = self
            .topics
            .history
            .markers()
            .rev()
            .skip_while(|marker| marker.window > window)
            .find(|marker| {
                whole += u32::from(marker.kind.ends_at_commit());
                whole > horizon_windows
            })
            .map_or(0, |marker| marker.window);
        Ok(HorizonStart { left, starts: self.starts_after(left) })
    }

    fn flips(&self, starts: &[PartitionStart], _waker: Waker) -> Result<Box<dyn FlipsReader<i64>>, LogError> {
        let cursor = |start: &PartitionStart| {
            let mut windows = self.topics.history.windows.iter();
            let read =
                |slices: &Vec<WindowSlice<i64>>| slices[start.partition as usize].next_offset <= start.offset;
            let next = windows.position(|slices| !read(slices)).unwrap_or(self.topics.history.windows.len());
            let before = next
                .checked_sub(1)
                .map_or(0, |last| self.topics.history.windows[last][start.partition as usize].marker.window);
            assert_eq!(before, start.window, "the offset does not stand after the window");
            (start.partition, next)
        };
        Ok(Box::new(Reader {
            cursors: starts.iter().map(cursor).collect(),
            topics: Arc::clone(&self.topics),
            fault: self.fault,
            random: StdRng::seed_from_u64(
                self.seed ^ u64::from(starts.first().map_or(0, |start| start.partition)),
            ),
        }))
    }

    fn totals(&self, incarnation: u64, _waker: Waker) -> Result<Box<dyn TotalsWriter>, LogError> {
        Ok(Box::new(Writer {
            topics: Arc::clone(&self.topics),
            parts_left: Arc::clone(&self.parts_left),
            crash: Arc::clone(&self.crash),
            incarnation,
            pending: VecDeque::new(),
            random: StdRng::seed_from_u64(self.seed.rotate_left(7)),
        }))
    }
}

impl MemoryLog {
    fn starts_after(&self, window: WindowId) -> Vec<PartitionStart> {
        let history = &self.topics.history;
        let slices = history.windows.iter().find(|slices| slices[0].marker.window == window);
        let start = |partition| PartitionStart {
            partition,
            offset: slices.map_or(0, |slices| slices[partition as usize].next_offset),
            window,
            position: slices.map_or_else(Default::default, |slices| slices[0].marker.position),
        };
        (0..history.partitions).map(start).collect()
    }
}

struct Reader {
    /// (partition, index of the next window).
    cursors: Vec<(u32, usize)>,
    topics: Arc<Topics>,
    fault: Option<(Fault, usize)>,
    random: StdRng,
}

impl FlipsReader<i64> for Reader {
    fn poll(&mut self) -> Result<Option<WindowSlice<i64>>, LogError> {
        if self.cursors.is_empty() || self.random.random_ratio(1, 8) {
            return Ok(None);
        }
        let slowest = self.cursors.iter().map(|(_, next)| *next).min().unwrap_or(0);
        let drawn = self.random.random_range(0..self.cursors.len());
        let (partition, next) = &mut self.cursors[drawn];
        if *next >= slowest + AHEAD_MAX {
            return Ok(None);
        }
        let mut slice =
            self.topics.history.windows.get(*next).map(|slices| slices[*partition as usize].clone());
        *next += usize::from(slice.is_some());
        if let (Some((fault, left)), Some(slice)) = (&mut self.fault, &mut slice) {
            match left.checked_sub(1) {
                Some(fewer) => *left = fewer,
                None => match fault {
                    Fault::Away => return Err(LogError::Transient("the brokers are away".to_owned())),
                    Fault::Panic => panic!("the reader panics, as it was told"),
                    Fault::Hole => slice.marker.before += 1,
                    Fault::OtherMarker => slice.marker.as_of += 1,
                },
            }
        }
        Ok(slice)
    }
}

struct Writer {
    topics: Arc<Topics>,
    parts_left: Arc<AtomicUsize>,
    crash: Arc<AtomicBool>,
    incarnation: u64,
    /// Sent, and neither in the log nor confirmed.
    pending: VecDeque<(u8, WindowId, Vec<u8>)>,
    random: StdRng,
}

impl TotalsWriter for Writer {
    fn send(&mut self, lane: u8, window: WindowId, part: &[u8]) -> Result<bool, LogError> {
        let room = self.pending.len() < 100 && !self.random.random_ratio(1, 50);
        if room {
            self.pending.push_back((lane, window, part.to_vec()));
        }
        Ok(room)
    }

    fn unconfirmed(&mut self) -> Result<Option<WindowId>, LogError> {
        for _ in 0..self.random.random_range(0..=64) {
            if self.crash.load(Ordering::Acquire) {
                break;
            }
            let Some((lane, _, part)) = self.pending.pop_front() else { break };
            self.topics.append(lane, (self.incarnation, part));
            if self.parts_left.fetch_sub(1, Ordering::AcqRel) <= 1 {
                self.crash.store(true, Ordering::Release);
            }
        }
        if self.pending.is_empty() {
            self.topics.note_completion();
        }
        Ok(self.pending.iter().map(|(_, window, _)| *window).min())
    }
}

impl Drop for Writer {
    /// A crash: of what was on its way, some has arrived.
    fn drop(&mut self) {
        let arrived = self.random.random_range(0..=self.pending.len());
        for (lane, _, part) in self.pending.drain(..arrived) {
            self.topics.append(lane, (self.incarnation, part));
        }
    }
}
