//! Where to resume: one window W for all partitions, from the segments and the totals log. A pure rule (I21).
//!
//! > **W is the greatest window that the totals log holds unbroken in every lane and whose whole horizon the segments
//! > hold.**
//!
//! The totals log itself is asked, never the pipeline's own belief: what it lost behind W is produced again, and what
//! stands behind W already is produced as a repeat that readers skip. Why each case is exact:
//!
//! 1. *Segments behind totals* (a torn tail): W is the last frame; the windows up to the end of totals are repeats.
//! 2. *Segments ahead of totals* (a crash before the totals were sent, or a log that lost its tail): W is the end of
//!    totals; the frames beyond it are superseded, their windows are read again.
//! 3. *Segments lost, or their horizon has a hole*: W is the end of totals; what the horizon remembers at W is read
//!    again from flips, and what that emits is discarded.
//! 4. *Totals emptied by retention*: a log that retention emptied is not a log that lost. The frames say what was
//!    confirmed when they were written; W is the last such window. So it is when only some lanes are emptied: how far
//!    those went, the others do not tell.
//! 5. *Totals empty although a frame knows a confirmed window*: the topic was lost or made anew. Only an operator can
//!    say that it is to be filled again from the first window.

use fencepost_model::WindowId;
use fencepost_sources::log::totals_chain::ChainEnd;

use crate::checkpoint::FrameHead;

/// Where to resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// From the first window, nothing remembered.
    Start,
    /// From the state after a window that the segments hold.
    Checkpoint {
        /// The window.
        window: WindowId,
    },
    /// From the state after a window, to be read again from the flips of its horizon.
    Rebuild {
        /// The window.
        window: WindowId,
    },
}

impl Resume {
    /// The window whose state is resumed from: 0 before the first.
    pub fn window(self) -> WindowId {
        match self {
            Resume::Start => 0,
            Resume::Checkpoint { window } | Resume::Rebuild { window } => window,
        }
    }
}

/// No window to resume from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResumeError {
    /// Case 5.
    #[error(
        "the totals topic is empty, or begins after its first window, although window {confirmed} was confirmed by it: \
         it was lost or created anew; start once with --replay to produce every total again from the flips topic"
    )]
    TotalsLost {
        /// The last window known to have been confirmed.
        confirmed: WindowId,
    },
    /// Retention emptied the totals log, and there is no checkpoint that knows how far it went.
    #[error(
        "retention has emptied the totals topic and the checkpoint knows no confirmed window: restore the checkpoint \
         directory, or start once with --replay if the flips topic still holds its first window"
    )]
    TotalsUnknown,
}

/// Applies the rule.
///
/// # Errors
/// See [`ResumeError`].
pub fn resume(frames: &[FrameHead], lanes: &[ChainEnd], replay: bool) -> Result<Resume, ResumeError> {
    if replay {
        return Ok(Resume::Start);
    }
    let confirmed = frames.iter().map(|head| head.confirmed).max().unwrap_or(0);
    let of_emptied = lanes.iter().any(|lane| lane_end(lane).is_none()).then_some(confirmed);
    let ends = lanes.iter().filter_map(lane_end).chain(of_emptied.filter(|confirmed| *confirmed > 0));
    let totals = ends.min().ok_or(ResumeError::TotalsUnknown)?;
    if totals == 0 {
        return if confirmed > 0 { Err(ResumeError::TotalsLost { confirmed }) } else { Ok(Resume::Start) };
    }
    let held = held_with_their_horizon(frames).filter(|window| *window <= totals).max();
    Ok(held.map_or(Resume::Rebuild { window: totals }, |window| Resume::Checkpoint { window }))
}

/// The last window of the unbroken chain that is known of a lane: 0 when not even the first is there, `None` when
/// retention has emptied it.
fn lane_end(lane: &ChainEnd) -> Option<WindowId> {
    match (lane.first, lane.end) {
        (Some((_, before)), Some(end)) => Some(if lane.log_start == 0 && before != 0 { 0 } else { end }),
        _ if lane.log_start > 0 => None,
        _ => Some(0),
    }
}

/// The windows at which everything remembered is held by frames without a hole.
fn held_with_their_horizon(frames: &[FrameHead]) -> impl Iterator<Item = WindowId> + '_ {
    let mut run_first = 0;
    let mut last = None;
    frames.iter().filter_map(move |head| {
        if last != Some(head.window.before) {
            run_first = head.window.window;
        }
        last = Some(head.window.window);
        (head.complete && head.remembered_from >= run_first).then_some(head.window.window)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::WindowHead;
    use fencepost_model::{CutKind, Position};
    use proptest::prelude::*;

    /// Frames of windows 10, 20, …, each remembering three windows, confirmed two windows behind.
    fn frame(n: u64) -> FrameHead {
        FrameHead {
            window: WindowHead {
                window: n * 10,
                before: n * 10 - 10,
                position: Position::default(),
                as_of: 0,
                kind: CutKind::Whole,
            },
            remembered_from: n.saturating_sub(2).max(1) * 10,
            confirmed: n.saturating_sub(2) * 10,
            complete: true,
            offsets: vec![],
        }
    }

    fn frames(windows: impl IntoIterator<Item = u64>) -> Vec<FrameHead> {
        windows.into_iter().map(frame).collect()
    }

    fn lane(first: u64, end: u64, log_start: i64) -> ChainEnd {
        ChainEnd {
            lane: 0,
            first: (end > 0).then(|| (first * 10, first * 10 - 10)),
            end: (end > 0).then_some(end * 10),
            beyond_gap: None,
            incarnation: None,
            log_start,
            log_end: 100,
        }
    }

    fn lanes(ends: &[u64]) -> Vec<ChainEnd> {
        ends.iter().map(|end| lane(1, *end, 0)).collect()
    }

    fn at(n: u64) -> Result<Resume, ResumeError> {
        Ok(Resume::Checkpoint { window: n * 10 })
    }

    #[test]
    fn nothing_anywhere_starts_at_the_first_window() {
        assert_eq!(resume(&[], &lanes(&[0, 0]), false), Ok(Resume::Start));
    }

    #[test]
    fn the_lesser_of_segments_and_least_lane_decides() {
        assert_eq!(resume(&frames(1..=9), &lanes(&[12, 11]), false), at(9));
        assert_eq!(resume(&frames(1..=9), &lanes(&[8, 7]), false), at(7));
        assert_eq!(resume(&frames(5..=9), &lanes(&[9, 7]), false), at(7), "the horizon of 7 begins at 5");
    }

    #[test]
    fn a_horizon_that_the_segments_do_not_hold_is_read_again() {
        let rebuild = Ok(Resume::Rebuild { window: 70 });
        assert_eq!(resume(&[], &lanes(&[7, 8]), false), rebuild);
        assert_eq!(resume(&frames(6..=9), &lanes(&[7, 8]), false), rebuild);
        let mut incomplete = frames(5..=6);
        incomplete.iter_mut().for_each(|head| head.complete = false);
        assert_eq!(resume(&incomplete, &lanes(&[7, 8]), false), rebuild, "a rebuild that was broken off");
    }

    #[test]
    fn a_hole_below_the_horizon_does_no_harm() {
        assert_eq!(resume(&frames([1, 2, 3, 6, 7, 8]), &lanes(&[9]), false), at(8));
        assert_eq!(resume(&frames([1, 2, 3, 7, 8]), &lanes(&[9]), false), at(3));
    }

    #[test]
    fn a_crash_in_the_first_windows_starts_over() {
        assert_eq!(resume(&frames(1..=2), &lanes(&[1, 0]), false), Ok(Resume::Start));
    }

    #[test]
    fn a_totals_log_emptied_by_retention_has_lost_nothing() {
        let emptied = lane(0, 0, 50);
        assert_eq!(resume(&frames(1..=9), std::slice::from_ref(&emptied), false), at(7));
        assert_eq!(resume(&[], std::slice::from_ref(&emptied), false), Err(ResumeError::TotalsUnknown));
        assert_eq!(
            resume(&frames(1..=9), &[emptied, lane(5, 8, 50)], false),
            at(7),
            "nothing tells that the emptied lane had 8"
        );
    }

    #[test]
    fn a_totals_log_that_was_lost_is_filled_again_only_when_asked() {
        let lost = Err(ResumeError::TotalsLost { confirmed: 70 });
        assert_eq!(resume(&frames(1..=9), &lanes(&[0, 0]), false), lost);
        assert_eq!(
            resume(&frames(1..=9), &[lane(3, 9, 0)], false),
            lost,
            "nothing was removed, yet 1 and 2 are missing"
        );
        assert_eq!(resume(&frames(1..=9), &lanes(&[0, 0]), true), Ok(Resume::Start));
    }

    proptest! {
        /// Whatever survives: W is in every lane's chain, and everything remembered at W is in the segments.
        #[test]
        fn nothing_is_resumed_that_is_not_held(
            survive in prop::collection::vec(any::<bool>(), 20),
            ends in prop::collection::vec(3_u64..20, 1..5),
        ) {
            let survives = |n: u64| survive[usize::try_from(n).unwrap() - 1];
            let held = frames((1..=20).filter(|n| survives(*n)));
            let least = ends.iter().min().unwrap() * 10;
            match resume(&held, &lanes(&ends), false) {
                Ok(Resume::Checkpoint { window }) => {
                    prop_assert!(window <= least);
                    let n = window / 10;
                    for remembered in n.saturating_sub(2).max(1)..=n {
                        prop_assert!(survives(remembered));
                    }
                }
                other => prop_assert_eq!(other, Ok(Resume::Rebuild { window: least })),
            }
        }
    }
}
