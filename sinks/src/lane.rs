//! What an applier knows of one lane: its fence, and the records that follow it.
//!
//! The totals log of a lane is a chain of records, each naming the window before it, with repeats: a pipeline that
//! restarts writes again what it is not sure of, and one that mends a gap writes on from there. So the log may read
//! g−1, g+1, g+2, g, g+1, g+2, g+3. The lane takes the first record that follows the *tip* (the fence, or the last
//! record queued behind it) and passes over all others:
//!
//! - at or before the tip: a replay, never needed again;
//! - beyond it, but not following: a *gap*. The record is needed, but it comes again after the one that is missing,
//!   since whoever mends a gap writes on from it. Only at the end of the log is a gap a loss.
//!
//! A gap is judged between two ends (I27): it was noticed at a tip, and the log was read to its end, and nothing followed
//! that tip. If something did, the mending may be under way: the rest is read again, and judged again.

use std::collections::VecDeque;

use fencepost_model::{Fence, LaneTotals, WindowId};

/// A lane's fence and the records read beyond it.
#[derive(Debug)]
pub(crate) struct Lane<I> {
    lane: u8,
    fence: Fence,
    queue: VecDeque<LaneTotals<I>>,
    gap: Option<Gap>,
    /// The log has shown that it reaches the fence, since the last seek.
    reaches_fence: bool,
    /// The reader has told the end since the last seek.
    at_end: bool,
    ahead: bool,
}

#[derive(Clone, Copy, Debug)]
struct Gap {
    /// The tip when it was noticed.
    tip: WindowId,
    /// The first record that did not follow.
    first: WindowId,
    /// The window that it says it follows.
    first_before: WindowId,
    /// The last record passed over.
    last: WindowId,
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It follows: queued.
    Queued,
    /// It is at or before the tip.
    Replay,
    /// It is what told that the log reaches the fence.
    FenceSeen,
    /// It does not follow: passed over.
    Gap,
    /// The same, and the reader has told its end: the lane is to be read again.
    GapAfterEnd,
}

/// What the end of the log says about a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Everything is queued or applied.
    CaughtUp,
    /// Records were passed over, but others followed meanwhile: read again.
    ReadAgain,
    /// Nothing in the log follows the tip, though there is more beyond it.
    Gap { tip: WindowId, first: WindowId, first_before: WindowId },
    /// The log ends before the fence.
    FenceAhead,
}

impl<I> Lane<I> {
    pub(crate) fn new(lane: u8, fence: Fence) -> Self {
        Self {
            lane,
            fence,
            queue: VecDeque::new(),
            gap: None,
            reaches_fence: fence.window == 0,
            at_end: false,
            ahead: false,
        }
    }

    pub(crate) fn lane(&self) -> u8 {
        self.lane
    }

    pub(crate) fn fence(&self) -> Fence {
        self.fence
    }

    pub(crate) fn queue(&self) -> &VecDeque<LaneTotals<I>> {
        &self.queue
    }

    /// Whether the log was found to end before the fence.
    pub(crate) fn fence_is_ahead(&self) -> bool {
        self.ahead
    }

    /// The window to seek to, so that the first record read is the fence's own, if the log has it.
    pub(crate) fn seek_window(&self) -> WindowId {
        self.tip().window.saturating_sub(1)
    }

    /// What the next record has to follow.
    fn tip(&self) -> Tip {
        match self.queue.back() {
            Some(last) => Tip { window: last.window, epoch: last.epoch },
            None => Tip { window: self.fence.window, epoch: self.fence.epoch },
        }
    }

    /// Takes the next record of the log.
    pub(crate) fn take(&mut self, record: LaneTotals<I>) -> Taken {
        assert_eq!(record.lane, self.lane, "a lane takes its own records (I26)");
        let tip = self.tip();
        let first_sight = !self.reaches_fence && record.window >= self.fence.window;
        if first_sight {
            self.reaches_fence = true;
            self.ahead = false;
        }
        if record.window <= tip.window {
            return if first_sight { Taken::FenceSeen } else { Taken::Replay };
        }
        if tip.is_followed_by(&record) {
            if self.gap.is_some_and(|gap| gap.last <= record.window) {
                self.gap = None;
            }
            self.queue.push_back(record);
            return Taken::Queued;
        }
        let gap = self.gap.get_or_insert(Gap {
            tip: tip.window,
            first: record.window,
            first_before: record.before,
            last: record.window,
        });
        gap.last = gap.last.max(record.window);
        if std::mem::take(&mut self.at_end) {
            self.gap = None;
            return Taken::GapAfterEnd;
        }
        Taken::Gap
    }

    /// Takes the end of the log.
    pub(crate) fn end(&mut self) -> End {
        match self.gap {
            Some(Gap { tip, first, first_before, .. }) if tip == self.tip().window => {
                End::Gap { tip, first, first_before }
            }
            Some(_) => {
                self.gap = None;
                End::ReadAgain
            }
            None => {
                self.at_end = true;
                self.ahead = !self.reaches_fence;
                if self.ahead { End::FenceAhead } else { End::CaughtUp }
            }
        }
    }

    /// The fence has moved over the first records of the queue.
    pub(crate) fn applied(&mut self, after: Fence, records: usize) {
        self.queue.drain(..records);
        self.fence = after;
    }

    /// The fence stands elsewhere. Says whether the lane has to be read again from there; if not, the queue goes on.
    pub(crate) fn adopt(&mut self, fence: Fence) -> bool {
        let back = fence.window < self.fence.window;
        self.fence = fence;
        while self.queue.front().is_some_and(|record| record.window <= fence.window) {
            self.queue.pop_front();
        }
        let follows = match self.queue.front() {
            Some(record) => Tip { window: fence.window, epoch: fence.epoch }.is_followed_by(record),
            None => true,
        };
        // What was passed over as a gap may be what follows the new fence.
        let read_again = back || !follows || self.gap.is_some();
        if read_again {
            *self = Self::new(self.lane, fence);
        }
        read_again
    }

    /// How many records from the front of the queue make one offer: at least one, then as many as stay within this
    /// number of items.
    pub(crate) fn joinable(&self, items_max: usize) -> usize {
        let mut items = 0;
        let within = self.queue.iter().take_while(|record| {
            items += size(record);
            items <= items_max
        });
        within.count().max(1).min(self.queue.len())
    }
}

/// Items that a record touches, at most.
pub(crate) fn size<I>(record: &LaneTotals<I>) -> usize {
    record.totals.len() + record.corrections.len()
}

#[derive(Clone, Copy)]
struct Tip {
    window: WindowId,
    epoch: u64,
}

impl Tip {
    fn is_followed_by<I>(self, record: &LaneTotals<I>) -> bool {
        record.before == self.window && record.epoch >= self.epoch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_model::CutKind;

    fn record(window: u64, before: u64, epoch: u64) -> LaneTotals<i64> {
        LaneTotals {
            lane: 0,
            window,
            before,
            epoch,
            as_of: 0,
            kind: CutKind::Whole,
            totals: vec![(1, 1); 10],
            corrections: vec![],
        }
    }

    fn lane(window: u64) -> Lane<i64> {
        Lane::new(0, Fence { window, epoch: 2, ..Fence::unapplied(1) })
    }

    fn take(lane: &mut Lane<i64>, windows: &[u64]) -> Vec<Taken> {
        windows.iter().map(|window| lane.take(record(*window, window - 1, 2))).collect()
    }

    fn queued(lane: &Lane<i64>) -> Vec<u64> {
        lane.queue.iter().map(|record| record.window).collect()
    }

    #[test]
    fn records_passed_over_as_a_gap_are_taken_when_they_come_again() {
        let mut lane = lane(4);
        let taken = take(&mut lane, &[4, 5, 7, 8, 6, 7, 8, 9]);
        use Taken::{FenceSeen, Gap, Queued};
        assert_eq!(taken, [FenceSeen, Queued, Gap, Gap, Queued, Queued, Queued, Queued]);
        assert_eq!(queued(&lane), [5, 6, 7, 8, 9]);
        assert_eq!(lane.end(), End::CaughtUp);
    }

    #[test]
    fn a_gap_that_nothing_mends_is_told_at_the_end() {
        let mut lane = lane(4);
        take(&mut lane, &[4, 5, 7, 8]);
        assert_eq!(lane.end(), End::Gap { tip: 5, first: 7, first_before: 6 });
    }

    #[test]
    fn a_gap_half_mended_at_the_end_is_read_again_and_then_judged() {
        let mut lane = lane(4);
        take(&mut lane, &[5, 8, 9, 6]);
        assert_eq!(lane.end(), End::ReadAgain);
        take(&mut lane, &[8, 9, 6]);
        assert_eq!(lane.end(), End::Gap { tip: 6, first: 8, first_before: 7 });
    }

    #[test]
    fn a_gap_after_the_end_is_read_again() {
        let mut lane = lane(4);
        take(&mut lane, &[4, 5]);
        assert_eq!(lane.end(), End::CaughtUp);
        assert_eq!(take(&mut lane, &[7]), [Taken::GapAfterEnd]);
        assert_eq!(take(&mut lane, &[7]), [Taken::Gap]);
        assert_eq!(lane.end(), End::Gap { tip: 5, first: 7, first_before: 6 });
    }

    #[test]
    fn a_record_of_a_lower_epoch_does_not_follow() {
        let mut lane = lane(4);
        assert_eq!(lane.take(record(5, 4, 1)), Taken::Gap);
        assert_eq!(lane.take(record(5, 4, 2)), Taken::Queued);
        assert_eq!(lane.end(), End::CaughtUp);
    }

    #[test]
    fn a_log_that_ends_before_the_fence_is_told() {
        let mut lane = lane(4);
        assert_eq!(lane.end(), End::FenceAhead);
        assert!(lane.fence_is_ahead());
        take(&mut lane, &[4]);
        assert!(!lane.fence_is_ahead());
        assert_eq!(Lane::<i64>::new(0, Fence::unapplied(1)).end(), End::CaughtUp);
    }

    #[test]
    fn a_newer_fence_goes_on_in_the_queue_and_an_older_one_goes_back() {
        let at = |window| Fence { window, epoch: 2, ..Fence::unapplied(1) };
        let mut lane = lane(4);
        take(&mut lane, &[5, 6, 7]);
        assert!(!lane.adopt(at(6)));
        assert_eq!(queued(&lane), [7]);
        assert!(!lane.adopt(at(9)), "reading goes on: what is at or before 9 is a replay");
        assert_eq!(take(&mut lane, &[8, 9, 10])[2], Taken::Queued);
        assert!(lane.adopt(at(3)));
        assert_eq!((queued(&lane), lane.seek_window()), (vec![], 2));
    }

    #[test]
    fn a_newer_fence_beside_a_gap_is_read_again() {
        let mut lane = lane(4);
        take(&mut lane, &[6, 7]);
        let at = |window| Fence { window, epoch: 2, ..Fence::unapplied(1) };
        assert!(lane.adopt(at(5)));
        assert_eq!(take(&mut lane, &[6, 7]), [Taken::Queued, Taken::Queued]);
    }

    #[test]
    fn as_many_records_are_joined_as_fit_and_one_always_does() {
        let mut lane = lane(4);
        take(&mut lane, &[5, 6, 7]);
        assert_eq!([5, 10, 25, 30, 100].map(|max| lane.joinable(max)), [1, 1, 2, 3, 3]);
    }
}
