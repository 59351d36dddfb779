//! Which windows leave the horizon at which window.
//!
//! An identity is remembered for `whole_max` whole windows. At the k-th whole window W_k every window at or before
//! W_(k − whole_max) leaves, and exactly the rows that it inserted are retracted at W_k. Windows that do not end at a
//! commit leave with the next whole one, and move nothing themselves: a transaction that spans a thousand windows, or
//! an adoption, takes nothing out of memory. It is a function of the log alone, so every worker, every replay and the
//! checkpoint's writer find the same (I15).

use std::collections::VecDeque;

use fencepost_model::{CutKind, WindowId};

/// The windows remembered.
#[derive(Clone, Debug)]
pub(crate) struct Horizon {
    whole_max: usize,
    /// Oldest first, with whether the window ends at a commit.
    remembered: VecDeque<(WindowId, bool)>,
    whole: usize,
}

impl Horizon {
    /// A horizon of this many whole windows that remembers nothing yet.
    ///
    /// # Panics
    /// When it is 0: a window would leave before it has counted.
    pub(crate) fn new(whole_max: u32) -> Self {
        assert!(whole_max > 0, "a horizon holds at least one whole window");
        let whole_max = usize::try_from(whole_max).expect("a usize holds 32 bits");
        Self { whole_max, remembered: VecDeque::new(), whole: 0 }
    }

    /// Closes the next window, and returns the windows that leave at it, oldest first.
    ///
    /// # Panics
    /// When the window does not lie above the one closed before.
    pub(crate) fn close(&mut self, window: WindowId, kind: CutKind) -> Vec<WindowId> {
        let last = self.remembered.back().map_or(0, |(last, _)| *last);
        assert!(window > last, "window {window} closes after window {last} (I15)");
        self.remembered.push_back((window, kind.ends_at_commit()));
        self.whole += usize::from(kind.ends_at_commit());
        let mut leaving = Vec::new();
        while self.whole > self.whole_max {
            let (oldest, whole) = self.remembered.pop_front().expect("a whole window is remembered");
            self.whole -= usize::from(whole);
            leaving.push(oldest);
        }
        leaving
    }

    /// The oldest window remembered.
    pub(crate) fn first(&self) -> Option<WindowId> {
        self.remembered.front().map(|(first, _)| *first)
    }

    /// The windows remembered, oldest first.
    pub(crate) fn windows(&self) -> impl Iterator<Item = WindowId> + '_ {
        self.remembered.iter().map(|(window, _)| *window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn partial_windows_leave_with_the_next_whole_one_and_move_nothing() {
        let mut horizon = Horizon::new(2);
        let mut close = |window, kind| horizon.close(window, kind);
        assert!(close(1, CutKind::Whole).is_empty());
        assert!(close(2, CutKind::Partial).is_empty());
        assert!(close(3, CutKind::Incomplete).is_empty());
        assert!(close(4, CutKind::Partial).is_empty());
        assert_eq!(close(7, CutKind::Whole), [1]);
        assert_eq!(close(8, CutKind::Whole), [2, 3]);
        assert_eq!(horizon.windows().collect::<Vec<_>>(), [4, 7, 8]);
        assert_eq!(horizon.first(), Some(4));
    }

    proptest! {
        /// The definition, word for word.
        #[test]
        fn at_the_kth_whole_window_all_up_to_the_one_a_horizon_before_leave(
            kinds in prop::collection::vec(any::<bool>(), 1..60),
            whole_max in 1_u32..6,
        ) {
            let mut horizon = Horizon::new(whole_max);
            let (mut wholes, mut left) = (Vec::new(), 0);
            for (index, whole) in kinds.iter().enumerate() {
                let window = index as u64 + 1;
                let kind = if *whole { CutKind::Whole } else { CutKind::Partial };
                let leaving = horizon.close(window, kind);
                let mut want = Vec::new();
                if *whole {
                    wholes.push(window);
                    if let Some(k) = wholes.len().checked_sub(1 + whole_max as usize) {
                        want = (left + 1..=wholes[k]).collect();
                        left = wholes[k];
                    }
                }
                prop_assert_eq!(leaving, want);
                prop_assert_eq!(horizon.first(), Some(left + 1));
            }
        }
    }
}
