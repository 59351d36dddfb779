//! Sums per worker: what a window adds to each item, before anything is exchanged.
//!
//! A viral item costs its worker one row a window downstream, however many liked it. The distinct stage emits a window's
//! amounts sorted by item and all at once (a window lies in exactly one of its batches), so neighbours are merged as
//! they come and no table is needed; what does not meet its neighbour here is added up by the totals stage.
//!
//! Windows at or before the one resumed from are dropped: their amounts come from what was restored, and the totals log
//! has them.

use std::collections::BTreeMap;

use differential_dataflow::VecCollection;
use fencepost_model::{Id, WindowId};
use timely::dataflow::StreamVec;
use timely::dataflow::channels::pact::Pipeline;
use timely::dataflow::operators::Capability;
use timely::dataflow::operators::generic::Operator;

use crate::identity::FlipKey;

/// A window's sums so far, and the capability to send them.
type Open<I> = (Capability<WindowId>, Vec<(I, i64)>);

/// Adds up amounts by (window, item) on this worker, for windows after `resume`.
pub(crate) fn sums<'scope, I: Id>(
    amounts: VecCollection<'scope, WindowId, FlipKey<I>, i64>,
    resume: WindowId,
) -> StreamVec<'scope, WindowId, (I, i64)> {
    amounts.inner.unary_frontier(Pipeline, "sums", move |_, _| {
        let mut open: BTreeMap<WindowId, Open<I>> = BTreeMap::new();
        move |(input, frontier), output| {
            input.for_each(|capability, amounts| {
                for (key, window, amount) in amounts.drain(..) {
                    if window <= resume {
                        continue;
                    }
                    let (_, sums) =
                        open.entry(window).or_insert_with(|| (capability.delayed(&window, 0), Vec::new()));
                    match sums.last_mut() {
                        Some((item, n)) if *item == key.item => *n += amount,
                        _ => sums.push((key.item, amount)),
                    }
                }
            });
            while let Some(entry) = open.first_entry().filter(|entry| !frontier.less_equal(entry.key())) {
                let (capability, sums) = entry.remove();
                output.session(&capability).give_iterator(sums.into_iter().filter(|(_, n)| *n != 0));
            }
        }
    })
}
