//! The fence rule over arbitrary histories: logs with replays, gaps mended later and two writers; two appliers; stores
//! that go back; answers that are lost. Nothing is lost and nothing counted twice, at any fence.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use fencepost_model::{CutKind, Fence, LaneTotals};
use fencepost_sinks::{Applier, ApplierMetrics, ApplyError, MemoryStore, Offer, Outcome, Store, StoreError};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::totals_log::{MemoryReader, TotalsLog};

const LANES_USED: u8 = 2;
const ITEMS: u8 = 3;
const STEPS_MAX: usize = 10_000;

/// A lane's part in a history: what the flips add up to, and in what order the pipeline's incarnations wrote it.
#[derive(Clone, Debug)]
struct LaneHistory {
    /// Amounts by item, one row a window.
    chain: Vec<Vec<i64>>,
    /// Runs of windows as they stand in the log: (first, length).
    runs: Vec<(prop::sample::Index, usize)>,
    /// Records of a zombie, each at a place in the log.
    zombie: Vec<(prop::sample::Index, prop::sample::Index)>,
    /// Where the last incarnation starts over, at or before the end of the chain that it finds.
    mend: usize,
}

#[derive(Clone, Debug)]
enum Act {
    Step(usize),
    Restart(usize),
    Append(usize),
    Snapshot,
    GoBack(prop::sample::Index),
    LoseAnswer,
    LoseQuestion,
}

fn lane_history() -> impl Strategy<Value = LaneHistory> {
    let amounts = prop::collection::vec(-3..5_i64, usize::from(ITEMS));
    (
        prop::collection::vec(amounts, 1..15),
        prop::collection::vec((any::<prop::sample::Index>(), 1..8_usize), 0..5),
        prop::collection::vec(any::<(prop::sample::Index, prop::sample::Index)>(), 0..4),
        any::<usize>(),
    )
        .prop_map(|(chain, runs, zombie, mend)| LaneHistory { chain, runs, zombie, mend })
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => (0..2_usize).prop_map(Act::Step),
        1 => (0..2_usize).prop_map(Act::Restart),
        6 => (1..6_usize).prop_map(Act::Append),
        1 => Just(Act::Snapshot),
        1 => any::<prop::sample::Index>().prop_map(Act::GoBack),
        1 => Just(Act::LoseAnswer),
        1 => Just(Act::LoseQuestion),
    ]
}

impl LaneHistory {
    /// Windows are numbered with holes, as real ones are.
    fn window(index: usize) -> u64 {
        (index as u64 + 1) * 10
    }

    fn record(&self, lane: u8, index: usize) -> LaneTotals<i64> {
        let totals = (0..ITEMS).zip(&self.chain[index]).filter(|(_, amount)| **amount != 0);
        LaneTotals {
            lane,
            window: Self::window(index),
            before: if index == 0 { 0 } else { Self::window(index - 1) },
            epoch: 1 + index as u64 / 5,
            as_of: index as i64,
            kind: CutKind::Whole,
            totals: totals.map(|(item, amount)| (item_of(lane, item), *amount)).collect(),
            corrections: Vec::new(),
        }
    }

    /// The chain's windows in the order they stand in the log: any runs, the zombie's between them, then the mend, which
    /// writes on from a place at or before the end of the chain that it finds.
    fn log(&self) -> Vec<usize> {
        let windows = self.chain.len();
        let mut log: Vec<usize> = Vec::new();
        for (first, length) in &self.runs {
            let first = first.index(windows);
            log.extend(first..(first + length).min(windows));
        }
        for (place, window) in &self.zombie {
            log.insert(place.index(log.len() + 1), window.index(windows));
        }
        let mut chain_end = 0;
        for window in &log {
            chain_end += usize::from(*window == chain_end);
        }
        log.extend(self.mend % (chain_end + 1)..windows);
        log
    }

    /// What the lane's counters are at a fence.
    fn sums(&self, fence: Fence) -> Vec<i64> {
        let applied = (0..self.chain.len()).take_while(|index| Self::window(*index) <= fence.window);
        applied.fold(vec![0; usize::from(ITEMS)], |mut sums, index| {
            sums.iter_mut().zip(&self.chain[index]).for_each(|(sum, amount)| *sum += amount);
            sums
        })
    }
}

fn item_of(lane: u8, item: u8) -> i64 {
    i64::from(lane * ITEMS + item)
}

/// A store behind a network that loses questions and answers.
#[derive(Clone)]
struct FarStore(Arc<Mutex<Far>>);

struct Far {
    store: MemoryStore<i64>,
    answers_lost: usize,
    questions_lost: usize,
}

fn lost() -> StoreError {
    StoreError::Transient("the connection was lost".into())
}

impl Store<i64> for FarStore {
    fn fences(&mut self) -> Result<Vec<Option<Fence>>, StoreError> {
        self.0.lock().expect("no panic holds it").store.fences()
    }

    fn apply(&mut self, offers: &[Offer<i64>]) -> Result<Vec<Outcome<i64>>, StoreError> {
        let mut far = self.0.lock().expect("no panic holds it");
        if far.questions_lost > 0 {
            far.questions_lost -= 1;
            return Err(lost());
        }
        let outcomes = far.store.apply(offers);
        if far.answers_lost > 0 {
            far.answers_lost -= 1;
            return Err(lost());
        }
        outcomes
    }
}

struct World {
    lanes: Vec<LaneHistory>,
    /// Per lane, what is not yet in the log.
    unwritten: Vec<std::vec::IntoIter<usize>>,
    log: TotalsLog,
    store: FarStore,
    snapshots: Vec<MemoryStore<i64>>,
    appliers: Vec<Applier<i64, MemoryReader, FarStore>>,
    metrics: Arc<ApplierMetrics>,
    tells_end_again: bool,
}

impl World {
    fn new(lanes: Vec<LaneHistory>, tells_end_again: bool, metrics: Arc<ApplierMetrics>) -> Self {
        let mut store = MemoryStore::new();
        store.create(1);
        let unwritten = lanes.iter().map(|lane| lane.log().into_iter()).collect();
        let snapshots = vec![store.clone()];
        let store = FarStore(Arc::new(Mutex::new(Far { store, answers_lost: 0, questions_lost: 0 })));
        let mut world = Self {
            lanes,
            unwritten,
            log: TotalsLog::new(),
            store,
            snapshots,
            appliers: Vec::new(),
            metrics,
            tells_end_again,
        };
        world.appliers = vec![world.applier(), world.applier()];
        world
    }

    fn applier(&self) -> Applier<i64, MemoryReader, FarStore> {
        let reader = self.log.reader(self.tells_end_again);
        Applier::new("memory", 1, reader, self.store.clone(), Arc::clone(&self.metrics))
    }

    /// A step; an applier that refuses a gap is started again, as its supervisor would.
    fn step(&mut self, who: usize) -> bool {
        match self.appliers[who].step() {
            Ok(worked) => worked,
            Err(error) if error.is_transient() => true,
            Err(ApplyError::Gap { .. }) => {
                self.appliers[who] = self.applier();
                true
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn append(&mut self, records: usize) {
        for ((lane, history), unwritten) in (0..).zip(&self.lanes).zip(&mut self.unwritten) {
            for index in unwritten.by_ref().take(records) {
                self.log.append(history.record(lane, index));
            }
        }
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Step(who) => drop(self.step(*who)),
            Act::Restart(who) => self.appliers[*who] = self.applier(),
            Act::Append(records) => self.append(*records),
            Act::Snapshot => self.snapshots.push(self.far(|far| far.store.clone())),
            Act::GoBack(to) => {
                // What is later than the state gone back to has never been.
                self.snapshots.truncate(to.index(self.snapshots.len()) + 1);
                let snapshot = self.snapshots[self.snapshots.len() - 1].clone();
                self.far(|far| far.store = snapshot);
            }
            Act::LoseAnswer => self.far(|far| far.answers_lost += 1),
            Act::LoseQuestion => self.far(|far| far.questions_lost += 1),
        }
    }

    fn far<T>(&self, with: impl FnOnce(&mut Far) -> T) -> T {
        with(&mut self.store.0.lock().expect("no panic holds it"))
    }

    fn fences(&self) -> Vec<Fence> {
        let fences = self.far(|far| far.store.fences()).expect("memory does not fail");
        fences.into_iter().map(|fence| fence.expect("every lane was created")).collect()
    }

    /// At every fence the lane's counters are the sums of the chain up to it.
    fn check(&self) -> Result<(), TestCaseError> {
        for ((lane, history), fence) in (0..).zip(&self.lanes).zip(self.fences()) {
            let counters: Vec<i64> =
                (0..ITEMS).map(|item| self.far(|far| far.store.sum(item_of(lane, item)))).collect();
            prop_assert_eq!(counters, history.sums(fence), "lane {} at {}", lane, fence);
        }
        Ok(())
    }

    /// The log is complete and faults are over: both appliers come to rest.
    fn rest(&mut self) {
        self.append(usize::MAX);
        self.far(|far| (far.answers_lost, far.questions_lost) = (0, 0));
        for _ in 0..STEPS_MAX {
            if [self.step(0), self.step(1)] == [false, false] {
                for applier in &mut self.appliers {
                    applier.verify().expect("faults are over");
                }
                if [self.step(0), self.step(1)] == [false, false] {
                    return;
                }
            }
        }
        panic!("the appliers never come to rest");
    }
}

#[test]
fn nothing_is_lost_or_counted_twice() {
    let metrics = Arc::new(ApplierMetrics::default());
    let histories = (
        prop::collection::vec(lane_history(), usize::from(LANES_USED)),
        any::<bool>(),
        prop::collection::vec(act(), 0..60),
    );
    let mut runner = TestRunner::new(Config { cases: 2_000, ..Config::default() });
    let run = runner.run(&histories, |(lanes, tells_end_again, acts)| {
        let mut world = World::new(lanes, tells_end_again, Arc::clone(&metrics));
        for act in &acts {
            world.act(act);
            world.check()?;
        }
        world.rest();
        world.check()?;
        for (history, fence) in world.lanes.iter().zip(world.fences()) {
            prop_assert_eq!(fence.window, LaneHistory::window(history.chain.len() - 1));
        }
        Ok(())
    });
    run.unwrap_or_else(|error| panic!("{error}"));
    let ApplierMetrics { refusals, went_back, replays_skipped, gaps_skipped, reconnects, .. } = &*metrics;
    for (metric, what) in [
        (refusals, "refusals"),
        (went_back, "stores that went back"),
        (replays_skipped, "replays"),
        (gaps_skipped, "gaps"),
        (reconnects, "lost connections"),
    ] {
        assert!(metric.load(Ordering::Relaxed) > 100, "the histories had no {what}");
    }
}

#[test]
fn a_gap_that_nothing_mends_stops_the_applier_and_says_where() {
    let history = LaneHistory { chain: vec![vec![1, 1, 1]; 5], runs: vec![], zombie: vec![], mend: 0 };
    let mut world = World::new(vec![history.clone()], false, Arc::default());
    for index in [0, 1, 3, 4] {
        world.log.append(history.record(0, index));
    }
    let error = loop {
        match world.appliers[0].step() {
            Ok(worked) => assert!(worked, "the gap went unseen"),
            Err(error) => break error,
        }
    };
    let ApplyError::Gap { lane, tip, first, first_before, .. } = error else { panic!("{error}") };
    assert_eq!((lane, tip, first, first_before), (0, 20, 40, 30));
    assert!(error.to_string().contains("restart the pipeline"), "{error}");
}

#[test]
fn a_fence_ahead_of_the_log_waits() {
    let history = LaneHistory { chain: vec![vec![1, 1, 1]; 5], runs: vec![], zombie: vec![], mend: 0 };
    let mut world = World::new(vec![history.clone()], false, Arc::default());
    world.append(usize::MAX);
    world.rest();
    world.log = TotalsLog::new();
    world.log.append(history.record(0, 0));
    world.appliers = vec![world.applier()];
    while world.appliers[0].step().expect("it waits") {}
    assert_eq!(world.appliers[0].standing().map(|standing| standing.ahead_of_log), Some(1));
    for index in 1..5 {
        world.log.append(history.record(0, index));
    }
    while world.appliers[0].step().expect("it waits") {}
    assert_eq!(world.appliers[0].standing().map(|standing| standing.ahead_of_log), Some(0));
    world.check().expect("nothing was counted twice");
}

#[test]
fn another_generation_and_a_lost_fence_stop_the_applier() {
    let mut world = World::new(vec![], false, Arc::default());
    while world.appliers[0].step().expect("an empty log") {}
    let mut rebuilt = MemoryStore::new();
    rebuilt.create(2);
    world.far(|far| far.store = rebuilt);
    world.appliers = vec![world.applier()];
    assert!(matches!(
        world.appliers[0].step(),
        Err(ApplyError::Generation { lane: 0, found: 2, admitted: 1 })
    ));
    world.far(|far| far.store = MemoryStore::new());
    assert!(matches!(world.appliers[0].step(), Err(ApplyError::Lost(0))));
}
