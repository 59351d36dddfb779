//! Distinct events: the first arrival of an identity counts, others do not.
//!
//! The arrangement is keyed by identity and amount; the difference is a plain count of arrivals. A key emits its amount
//! at the window in which its count first rises above zero, and nothing ever again: not when it rises further (a
//! replay), not when it falls (its window has left the horizon).
//!
//! Invariant: the count of a key is the number of its arrivals in the windows remembered. Forgetting is an exact
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
        debug_assert!(old >= 0 && *new >= 0, "more was retracted of a key than had arrived");
        let replays = (new - old.max(1)).max(0);
        if replays > 0 {
            Metrics::add(&metrics.known_by_identity, usize::try_from(replays).unwrap_or(0));
        }
        (old <= 0 && *new > 0).then(|| key.amount())
    });
    (amounts, trace)
}
