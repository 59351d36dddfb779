//! Distinct events: the first arrival of an identity counts, others do not.
//!
//! The arrangement is keyed by identity and amount; the difference is a plain count of arrivals. A key emits its amount
//! at the window in which its count first rises above zero, and nothing ever again: not when it rises further (a
//! replay), not when it falls (its window has left the horizon).
//!
//! Invariant (I14): the count of a key is the number of its arrivals in the windows remembered. Forgetting is an exact
//! retraction of what a window inserted, so counts stay sums of a group, and neither the order of arrival nor when the
//! trace is compacted can matter. It is kept so:
//!
//! 1. Everything stays on the worker: an identity is always in the same partition.
//! 2. Windows are totally ordered, so `threshold_semigroup` sees the count before and after each.
//! 3. `old` may be shown as zero, or as nothing, for a key that has been forgotten; both mean "not remembered".

use std::sync::Arc;

use differential_dataflow::VecCollection;
use differential_dataflow::operators::ThresholdTotal;
use differential_dataflow::operators::arrange::TraceAgent;
use differential_dataflow::operators::arrange::arrangement::arrange_core;
use differential_dataflow::trace::implementations::{KeyBatcher, KeySpine};
use fencepost_model::WindowId;
use timely::dataflow::StreamVec;
use timely::dataflow::channels::pact::Pipeline;

use crate::Metrics;
use crate::identity::Identity;

/// A row into the arrangement: a key, the window, and +1 for an arrival or −1 for one that is forgotten.
pub(crate) type Row<K> = ((K, ()), WindowId, i64);

/// What the arrangement keeps.
pub(crate) type Remembered<K> = TraceAgent<KeySpine<K, WindowId, i64>>;

/// Emits the amount of each key at the window in which its count of arrivals first rises above zero.
///
/// The trace is returned to measure what is remembered; who keeps it must advance it.
pub(crate) fn distinct<'scope, K: Identity>(
    rows: StreamVec<'scope, WindowId, Row<K>>,
    name: &str,
    metrics: Arc<Metrics>,
) -> (VecCollection<'scope, WindowId, K, i64>, Remembered<K>) {
    let arranged = arrange_core::<_, _, KeyBatcher<K, WindowId, i64>, KeySpine<K, WindowId, i64>>(
        rows,
        Pipeline,
        name,
        KeyBatcher::new,
    );
    let trace = arranged.trace.clone();
    let amounts = arranged.threshold_semigroup(move |key: &K, new: &i64, old: Option<&i64>| {
        let old = old.copied().unwrap_or(0);
        assert!(old >= 0 && *new >= 0, "more was retracted of a key than had arrived (I14)");
        let replays = (new - old.max(1)).max(0);
        if replays > 0 {
            Metrics::add(&metrics.known_by_identity, usize::try_from(replays).unwrap_or(0));
        }
        (old <= 0 && *new > 0).then(|| key.amount())
    });
    (amounts, trace)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;
    use std::sync::atomic::Ordering;

    use differential_dataflow::input::InputSession;
    use fencepost_model::CutKind;
    use proptest::prelude::*;
    use timely::dataflow::operators::probe::Handle;
    use timely::dataflow::operators::{Inspect, Probe};

    use super::*;
    use crate::horizon::Horizon;
    use crate::identity::FlipKey;

    type Key = FlipKey<i64>;
    /// (window, key) → amount.
    type Emitted = BTreeMap<(WindowId, Key), i64>;
    /// The keys that arrive in each window, from window 1 on.
    type Arriving = Vec<Vec<Key>>;

    #[derive(Clone, Copy, Debug)]
    enum Pace {
        /// All windows before the first step: one batch.
        OneBatch,
        /// Each window is done before the next one comes.
        AWindowABatch,
        /// The frontier moves every few windows.
        Every(usize),
    }

    /// Inserts what arrives, retracts what leaves, and collects what is emitted.
    fn run(
        arriving: &Arriving,
        horizon_windows: u32,
        pace: Pace,
        merge_effort: Option<isize>,
        workers: usize,
    ) -> (Emitted, i64) {
        let mut config = match workers {
            1 => timely::Config::thread(),
            workers => timely::Config::process(workers),
        };
        let differential = differential_dataflow::Config::default().idle_merge_effort(merge_effort);
        differential_dataflow::configure(&mut config.worker, &differential);
        let (arriving, emitted) = (arriving.clone(), Arc::new(Mutex::new(Emitted::new())));
        let collected = Arc::clone(&emitted);
        let guards = timely::execute(config, move |worker| {
            let (index, peers) = (worker.index() as i64, worker.peers() as i64);
            let is_own = |key: &&Key| key.item.rem_euclid(peers) == index;
            let (mut rows, done) = (InputSession::<WindowId, (Key, ()), i64>::new(), Handle::new());
            let collected = Arc::clone(&collected);
            let mut remembered = worker.dataflow(|scope| {
                let (amounts, remembered) =
                    distinct(rows.to_collection(scope).inner, "flips", Arc::default());
                let collect = move |(key, window, amount): &(Key, WindowId, i64)| {
                    *collected.lock().unwrap().entry((*window, *key)).or_default() += amount;
                };
                amounts.inner.inspect(collect).probe_with(&done);
                remembered
            });
            let mut horizon = Horizon::new(horizon_windows);
            for (window, keys) in (1..).zip(&arriving) {
                rows.advance_to(window);
                keys.iter().filter(is_own).for_each(|key| rows.update((*key, ()), 1));
                for leaving in horizon.close(window, CutKind::Whole) {
                    let left = &arriving[usize::try_from(leaving).unwrap() - 1];
                    left.iter().filter(is_own).for_each(|key| rows.update((*key, ()), -1));
                }
                let flush = match pace {
                    Pace::OneBatch => false,
                    Pace::AWindowABatch => true,
                    Pace::Every(windows) => window % windows as u64 == 0,
                };
                if flush {
                    rows.advance_to(window + 1);
                    rows.flush();
                    worker.step_while(|| done.less_than(&(window + 1)));
                    crate::dataflow::rows_up_to(&mut remembered, window + 1);
                }
            }
            let end = arriving.len() as u64 + 1;
            rows.advance_to(end);
            rows.flush();
            worker.step_while(|| done.less_than(&end));
            crate::dataflow::rows_up_to(&mut remembered, end);
            // With an effort set, a worker with nothing to do merges; more steps than it can need.
            for _ in 0..1_000 * usize::from(merge_effort.is_some()) {
                worker.step();
            }
            crate::dataflow::rows_up_to(&mut remembered, end)
        })
        .unwrap();
        let held = guards.join().into_iter().map(Result::unwrap).sum();
        (Arc::try_unwrap(emitted).unwrap().into_inner().unwrap(), held)
    }

    /// A key counts in a window if no window remembered before it had it.
    fn oracle(arriving: &Arriving, horizon_windows: usize) -> Emitted {
        let mut emitted = Emitted::new();
        for (index, keys) in arriving.iter().enumerate() {
            let remembered = &arriving[index.saturating_sub(horizon_windows)..index];
            for key in keys.iter().filter(|key| !remembered.iter().any(|window| window.contains(key))) {
                if key.amount() != 0 {
                    emitted.insert((index as u64 + 1, *key), key.amount());
                }
            }
        }
        emitted
    }

    fn arriving() -> impl Strategy<Value = Arriving> {
        let key =
            (0..6_i64, 0..3_i64, 0..16_u64).prop_map(|(item, user, version)| FlipKey { item, user, version });
        prop::collection::vec(prop::collection::vec(key, 0..25), 1..25)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        /// Replays within a window and across windows, beyond the horizon too; however windows fall into batches,
        /// whenever the trace is merged, however many workers share the keys.
        #[test]
        fn the_first_arrival_counts(
            arriving in arriving(),
            horizon_windows in 1_u32..8,
            pace in prop_oneof![Just(Pace::OneBatch), Just(Pace::AWindowABatch), (2..6_usize).prop_map(Pace::Every)],
            merge_effort in prop::option::of(0..1_000_isize),
            workers in 1..4_usize,
        ) {
            let (emitted, _) = run(&arriving, horizon_windows, pace, merge_effort, workers);
            prop_assert_eq!(emitted, oracle(&arriving, horizon_windows as usize));
        }
    }

    #[test]
    fn what_has_left_the_horizon_leaves_memory() {
        let window = |w: i64| (0..1_000).map(|user| FlipKey { item: w, user, version: 1 }).collect();
        let mut arriving: Arriving = (0..50).map(window).collect();
        arriving.extend(vec![Vec::new(); 10]);
        let (emitted, held) = run(&arriving, 5, Pace::AWindowABatch, Some(100_000), 1);
        assert_eq!(emitted.len(), 50_000);
        assert_eq!(held, 0, "rows held after everything has left");
    }

    #[test]
    fn replays_are_counted_once_each() {
        let metrics = Arc::new(Metrics::default());
        let counted = Arc::clone(&metrics);
        timely::execute_directly(move |worker| {
            let mut rows = InputSession::<WindowId, (Key, ()), i64>::new();
            worker.dataflow(|scope| {
                distinct(rows.to_collection(scope).inner, "flips", metrics);
            });
            let key = FlipKey { item: 1, user: 2, version: 1 };
            for (window, arrivals) in [(1, 3), (2, 1), (3, -4), (4, 1)] {
                rows.advance_to(window);
                rows.update((key, ()), arrivals);
            }
        });
        assert_eq!(counted.known_by_identity.load(Ordering::Relaxed), 3);
    }
}
