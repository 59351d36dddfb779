//! What the totals log must hold, computed the plain way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fencepost_model::placement::{LANES, lane};
use fencepost_model::{Correction, Flip, LaneTotals, TotalCorrection};

use crate::history::History;

/// An identity, and what it claims.
type Identity = (Option<(i64, i64, i64, bool, bool)>, Option<TotalCorrection<i64>>);

fn flip(flip: &Flip<i64>) -> Identity {
    (Some((flip.item, flip.user, flip.op, flip.was, flip.liked)), None)
}

fn correction(c: &Correction<i64>) -> Identity {
    let Correction { id, item, store, amount, cut, at: _ } = c.clone();
    (None, Some(TotalCorrection { item, store, id, amount, cut }))
}

/// The records by lane, in order: an identity counts when no window that is remembered has it.
pub(crate) fn records(history: &History, horizon_windows: usize) -> Vec<Vec<LaneTotals<i64>>> {
    let mut lanes = vec![Vec::new(); usize::from(LANES)];
    let mut remembered: VecDeque<(bool, BTreeSet<Identity>)> = VecDeque::new();
    for slices in &history.windows {
        let marker = &slices[0].marker;
        let mut arrived = BTreeSet::new();
        for slice in slices {
            arrived.extend(slice.flips.iter().map(flip));
            arrived.extend(slice.corrections.iter().map(correction));
        }
        let mut totals: BTreeMap<i64, i64> = BTreeMap::new();
        let mut corrections = BTreeSet::new();
        let is_known = |identity: &&Identity| remembered.iter().any(|(_, window)| window.contains(*identity));
        for (flip, correction) in arrived.iter().filter(|identity| !is_known(identity)) {
            if let Some((item, _, _, was, liked)) = flip {
                *totals.entry(*item).or_default() += i64::from(*liked) - i64::from(*was);
            }
            corrections.extend(correction.clone());
        }
        for number in 0..LANES {
            lanes[usize::from(number)].push(LaneTotals {
                lane: number,
                window: marker.window,
                before: marker.before,
                epoch: marker.position.epoch,
                as_of: marker.as_of,
                kind: marker.kind,
                totals: totals
                    .iter()
                    .filter(|(item, n)| lane(**item) == number && **n != 0)
                    .map(|(item, n)| (*item, *n))
                    .collect(),
                corrections: corrections.iter().filter(|c| lane(c.item) == number).cloned().collect(),
            });
        }
        remembered.push_back((marker.kind.ends_at_commit(), arrived));
        while remembered.iter().filter(|(whole, _)| *whole).count() > horizon_windows {
            remembered.pop_front();
        }
    }
    lanes
}

/// Compares lane by lane, and names the first record that differs.
pub(crate) fn assert_same(found: &[Vec<LaneTotals<i64>>], wanted: &[Vec<LaneTotals<i64>>], what: &str) {
    for (found, wanted) in found.iter().zip(wanted) {
        for (found, wanted) in found.iter().zip(wanted) {
            assert_eq!(found, wanted, "{what}");
        }
        assert_eq!(found.len(), wanted.len(), "{what}: number of records of a lane");
    }
}
