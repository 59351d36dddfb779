//! How far a lane of the totals log reaches without a gap.

use fencepost_model::{LaneTotals, WindowId};

/// How far a lane's records, read from the start of the retained log, follow one another without a gap.
///
/// A record that repeats what is there is skipped. After a gap nothing follows until the missing window, and all after
/// it, have been written again: a mended log may read g−1, g+1, g+2, …, g, g+1, …
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    first: Option<(WindowId, WindowId)>,
    end: Option<WindowId>,
    beyond_gap: Option<WindowId>,
}

impl Chain {
    /// Takes the next record of the lane in log order.
    pub fn push<I>(&mut self, record: &LaneTotals<I>) {
        let LaneTotals { window, before, .. } = *record;
        let begins = |(_, first_before)| first_before > 0 && before == 0;
        match self.end {
            None => self.begin(window, before),
            // The log is being filled again from the first window. It reaches as far as that has come.
            Some(_) if self.first.is_some_and(begins) => self.begin(window, before),
            Some(end) if before == end => {
                self.end = Some(window);
                self.beyond_gap = self.beyond_gap.filter(|beyond| *beyond > window);
            }
            Some(end) if window > end => {
                self.beyond_gap = Some(self.beyond_gap.map_or(window, |beyond| beyond.min(window)));
            }
            Some(_) => {}
        }
    }

    fn begin(&mut self, window: WindowId, before: WindowId) {
        *self = Self { first: Some((window, before)), end: Some(window), beyond_gap: None };
    }

    /// The first record's window and the window before it; `None` when there was no record.
    pub fn first(&self) -> Option<(WindowId, WindowId)> {
        self.first
    }

    /// The last window reached without a gap; `None` when there was no record.
    pub fn end(&self) -> Option<WindowId> {
        self.end
    }

    /// The least window that stands beyond the end and does not follow it.
    pub fn beyond_gap(&self) -> Option<WindowId> {
        self.beyond_gap
    }
}

#[cfg(test)]
mod tests {
    use fencepost_model::CutKind;
    use proptest::prelude::*;

    use super::*;

    fn chain(windows: impl IntoIterator<Item = WindowId>) -> Chain {
        let mut chain = Chain::default();
        for window in windows {
            chain.push(&LaneTotals::<i64> {
                lane: 0,
                window,
                before: window - 1,
                epoch: 1,
                as_of: 0,
                kind: CutKind::Whole,
                totals: Vec::new(),
                corrections: Vec::new(),
            });
        }
        chain
    }

    /// The oracle: the greatest n such that first..=n stand in the log as a subsequence.
    fn end_of(windows: &[WindowId]) -> Option<WindowId> {
        let first = *windows.first()?;
        let mut end = first;
        while let Some(at) = position_after(windows, first, end) {
            end = windows[at];
        }
        Some(end)
    }

    /// Where `end + 1` stands after a subsequence first..=end, found greedily.
    fn position_after(windows: &[WindowId], first: WindowId, end: WindowId) -> Option<usize> {
        (first..=end + 1).try_fold(0, |from, wanted| {
            windows[from..].iter().position(|window| *window == wanted).map(|at| from + at)
        })
    }

    #[test]
    fn a_log_that_began_late_and_is_filled_from_the_first_window_is_whole_again() {
        let whole = chain((3..=5).chain(1..=7));
        assert_eq!((whole.first(), whole.end(), whole.beyond_gap()), (Some((1, 0)), Some(7), None));
        let broken_off = chain((3..=5).chain(1..=2));
        assert_eq!((broken_off.first(), broken_off.end()), (Some((1, 0)), Some(2)));
        let replayed = chain((1..=5).chain(1..=2));
        assert_eq!(replayed.end(), Some(5), "a replay of a log that is whole takes nothing back");
    }

    proptest! {
        #[test]
        fn the_end_is_that_of_the_longest_unbroken_chain(windows in prop::collection::vec(1..12_u64, 0..40)) {
            let chain = chain(windows.iter().copied());
            // What stands before the first window ever counts no more once that one is there.
            let from = windows.iter().position(|window| *window == 1).unwrap_or(0);
            prop_assert_eq!(chain.end(), end_of(&windows[from..]));
            prop_assert_eq!(chain.first(), windows[from..].first().map(|window| (*window, window - 1)));
        }

        /// Each writer goes on in order from where it stands: crashes, zombies and whole replays.
        #[test]
        fn writers_that_replay_leave_no_gap(starts in prop::collection::vec((1..50_u64, 1..50_u64), 1..8)) {
            let (mut log, mut written) = (Vec::new(), 0);
            for (start, length) in starts {
                let start = start.min(written + 1);
                log.extend(start..start + length);
                written = written.max(start + length - 1);
            }
            let chain = chain(log);
            let first = chain.first().expect("not empty").0;
            prop_assert_eq!((first, chain.end(), chain.beyond_gap()), (1, Some(written), None));
        }
    }

    #[test]
    fn a_gap_is_told_until_it_is_mended() {
        let log = [4, 5, 7, 8, 6, 7, 8, 9];
        let after =
            |n: usize| (chain(log[..n].iter().copied()).end(), chain(log[..n].iter().copied()).beyond_gap());
        assert_eq!(after(2), (Some(5), None));
        assert_eq!(after(4), (Some(5), Some(7)));
        assert_eq!(after(5), (Some(6), Some(7)));
        assert_eq!(after(7), (Some(8), None));
        assert_eq!(after(8), (Some(9), None));
    }
}
