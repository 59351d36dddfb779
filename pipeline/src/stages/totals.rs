//! Totals: one record a lane and window, in the totals log.
//!
//! Invariant (I18): this stage's frontier is beyond window w only once the totals log has confirmed every record of w
//! that this worker makes. It is kept so:
//!
//! 1. Sums, corrections and the window's head arrive under capabilities for w; the first is kept.
//! 2. Once the input frontiers have passed w, nothing more can come: the sums are added up by lane, zeros dropped, and a
//!    record is made for each lane of this worker, also when it is empty, so that every fence can follow.
//! 3. Records are queued at the log, window by window; a full queue keeps the rest for the next time.
//! 4. The capability for w goes when the log has confirmed up to w.
//!
//! Content and order are functions of the log alone (I20): items sorted, corrections sorted.

use std::collections::{BTreeMap, VecDeque};

use differential_dataflow::VecCollection;
use fencepost_model::placement::{LANES, lane};
use fencepost_model::{Id, LaneTotals, TotalCorrection, WindowId};
use fencepost_sources::log::{LogError, TotalsWriter};
use timely::container::CapacityContainerBuilder;
use timely::dataflow::StreamVec;
use timely::dataflow::channels::pact::{Exchange, Pipeline};
use timely::dataflow::operators::Capability;
use timely::dataflow::operators::generic::OutputBuilder;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::scheduling::SyncActivator;

use crate::checkpoint::WindowHead;
use crate::failure::Failure;

/// A record part to be sent: lane, window, bytes.
type Part = (u8, WindowId, Vec<u8>);

/// What a window has gathered until its frontier passes.
struct Gathered<I> {
    capability: Capability<WindowId>,
    head: Option<WindowHead>,
    sums: Vec<(I, i64)>,
    corrections: Vec<TotalCorrection<I>>,
}

/// The totals stage of one worker, apart from timely.
struct Totals<I> {
    /// This worker's lanes.
    lanes: Vec<u8>,
    writer: Box<dyn TotalsWriter>,
    gathered: BTreeMap<WindowId, Gathered<I>>,
    parts: VecDeque<Part>,
    /// Windows whose records were made, and which the log has not confirmed.
    unconfirmed: BTreeMap<WindowId, Capability<WindowId>>,
}

/// Makes the records and sends them; returns a stream without content, whose frontier says what is confirmed.
///
/// The activator wakes the stage when the log has confirmed, or its queue has room.
pub(crate) fn totals<'scope, I: Id>(
    sums: StreamVec<'scope, WindowId, (I, i64)>,
    corrections: VecCollection<'scope, WindowId, TotalCorrection<I>, i64>,
    heads: StreamVec<'scope, WindowId, WindowHead>,
    writer: Box<dyn TotalsWriter>,
    failure: Failure,
) -> (StreamVec<'scope, WindowId, ()>, SyncActivator) {
    let scope = sums.scope();
    let (index, peers) = (scope.index(), scope.peers());
    let mut builder = OperatorBuilder::new("totals".to_owned(), scope);
    let activator = scope.worker().sync_activator_for(builder.operator_info().address.to_vec());
    let by_lane = |(item, _): &(I, i64)| u64::from(lane(*item));
    let mut sums = builder.new_input(sums, Exchange::new(by_lane));
    let by_lane = |(correction, _, _): &(TotalCorrection<I>, WindowId, i64)| u64::from(lane(correction.item));
    let mut corrections = builder.new_input(corrections.inner, Exchange::new(by_lane));
    let mut heads = builder.new_input(heads, Pipeline);
    let (output, confirmed) = builder.new_output::<Vec<()>>();
    let mut output = OutputBuilder::<_, CapacityContainerBuilder<Vec<()>>>::from(output);
    let mut totals = Totals {
        lanes: (0..LANES).filter(|lane| usize::from(*lane) % peers == index).collect(),
        writer,
        gathered: BTreeMap::new(),
        parts: VecDeque::new(),
        unconfirmed: BTreeMap::new(),
    };
    builder.build(move |initial| {
        drop(initial);
        move |frontiers| {
            let _output = output.activate();
            sums.for_each(|capability, rows| {
                let Some(window) = capability.least().copied() else { return };
                totals.at(window, || capability.delayed(&window, 0)).sums.append(rows);
            });
            corrections.for_each(|capability, rows| {
                // Rows of several windows travel together, under the least of them.
                for (correction, window, _) in rows.drain(..) {
                    totals.at(window, || capability.delayed(&window, 0)).corrections.push(correction);
                }
            });
            heads.for_each(|capability, rows| {
                let Some(window) = capability.least().copied() else { return };
                let gathered = totals.at(window, || capability.delayed(&window, 0));
                for head in rows.drain(..) {
                    let twice = gathered.head.replace(head);
                    assert!(twice.is_none(), "window {window} has two heads (I20)");
                }
            });
            if failure.is_set() {
                return;
            }
            let open = |window: &WindowId| frontiers.iter().any(|frontier| frontier.less_equal(window));
            totals.close(open);
            if let Err(error) = totals.send().and_then(|()| totals.confirm()) {
                failure.set(anyhow::Error::new(error).context("cannot write the totals log"));
            }
        }
    });
    (confirmed, activator)
}

impl<I: Id> Totals<I> {
    fn at(
        &mut self,
        window: WindowId,
        capability: impl FnOnce() -> Capability<WindowId>,
    ) -> &mut Gathered<I> {
        self.gathered.entry(window).or_insert_with(|| Gathered {
            capability: capability(),
            head: None,
            sums: Vec::new(),
            corrections: Vec::new(),
        })
    }

    /// Makes the records of every window that is no longer open.
    fn close(&mut self, open: impl Fn(&WindowId) -> bool) {
        while let Some(entry) = self.gathered.first_entry().filter(|entry| !open(entry.key())) {
            let (window, gathered) = entry.remove_entry();
            let Gathered { capability, head, sums, corrections } = gathered;
            let head =
                head.expect("the worker of partition 0 has sent the head of every window that it took");
            assert_eq!(head.window, window, "a head travels at its own window (I20)");
            for record in records(&self.lanes, &head, sums, corrections) {
                let lane = record.lane;
                self.parts.extend(record.encode().into_iter().map(|part| (lane, window, part)));
            }
            self.unconfirmed.insert(window, capability);
        }
    }

    fn send(&mut self) -> Result<(), LogError> {
        while let Some((lane, window, part)) = self.parts.front() {
            if !self.writer.send(*lane, *window, part)? {
                break;
            }
            self.parts.pop_front();
        }
        Ok(())
    }

    fn confirm(&mut self) -> Result<(), LogError> {
        if self.unconfirmed.is_empty() {
            return Ok(());
        }
        let at_the_log = self.writer.unconfirmed()?;
        let to_be_sent = self.parts.front().map(|(_, window, _)| *window);
        match [at_the_log, to_be_sent].into_iter().flatten().min() {
            Some(least) => self.unconfirmed = self.unconfirmed.split_off(&least),
            None => self.unconfirmed.clear(),
        }
        Ok(())
    }
}

/// One record for each of the lanes, by lane.
fn records<I: Id>(
    lanes: &[u8],
    head: &WindowHead,
    sums: Vec<(I, i64)>,
    mut corrections: Vec<TotalCorrection<I>>,
) -> impl Iterator<Item = LaneTotals<I>> {
    let mut totals: BTreeMap<u8, Vec<(I, i64)>> = BTreeMap::new();
    for (item, n) in added_up(sums) {
        totals.entry(lane(item)).or_default().push((item, n));
    }
    corrections.sort_unstable();
    let mut corrected: BTreeMap<u8, Vec<TotalCorrection<I>>> = BTreeMap::new();
    for correction in corrections {
        corrected.entry(lane(correction.item)).or_default().push(correction);
    }
    let WindowHead { window, before, position, as_of, kind } = *head;
    lanes.iter().map(move |lane| LaneTotals {
        lane: *lane,
        window,
        before,
        epoch: position.epoch,
        as_of,
        kind,
        totals: totals.remove(lane).unwrap_or_default(),
        corrections: corrected.remove(lane).unwrap_or_default(),
    })
}

/// By item: the sums of all workers added up, zeros dropped.
fn added_up<I: Id>(mut sums: Vec<(I, i64)>) -> Vec<(I, i64)> {
    sums.sort_unstable_by_key(|(item, _)| *item);
    sums.dedup_by(|(item, n), (kept, total)| {
        let same = item == kept;
        if same {
            *total += *n;
        }
        same
    });
    sums.retain(|(_, total)| *total != 0);
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_added_sorted_and_zeros_dropped() {
        assert_eq!(added_up(vec![(5, 1), (2, -3), (5, 4), (9, 2), (9, -2), (2, 1)]), [(2, -2), (5, 5)]);
        assert_eq!(added_up::<i64>(vec![]), []);
    }
}
