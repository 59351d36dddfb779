//! What an applier offers to a lane: one or several windows in a row, as one atomic step of its fence.

use fencepost_model::{Fence, Id, LaneTotals};

/// Counters, and what is added to them at once, lie strictly between minus this and this, so that a store that
/// reckons in doubles (Lua) is exact.
pub const AMOUNT_LIMIT: i64 = 1 << 53;

/// A step of a lane: add the amounts, and move the fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer<I> {
    /// The lane.
    pub lane: u8,
    /// Where its fence has to stand.
    pub before: Fence,
    /// Where it moves to: of the same generation, above `before`.
    pub after: Fence,
    /// (item, amount), by item: no item twice, no zero, all within [`AMOUNT_LIMIT`].
    pub amounts: Vec<(I, i64)>,
}

/// An amount that no counter can take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the totals of item {item} up to window {window} are beyond 2^53, which no counter can hold; look for a wrong row \
     in the corrections table"
)]
pub struct AmountError {
    item: String,
    window: u64,
}

impl<I: Id> Offer<I> {
    /// Joins records that follow one another from the fence into one step for the store of this name.
    ///
    /// Corrections of other stores are left out, and so are those computed at or before the lane's base cut: the
    /// rebuild that set the base has them in.
    ///
    /// # Errors
    /// When an amount is beyond [`AMOUNT_LIMIT`].
    ///
    /// # Panics
    /// When there is no record, or they do not follow.
    pub fn join<'a>(
        store: &str,
        before: Fence,
        records: impl Iterator<Item = &'a LaneTotals<I>>,
    ) -> Result<Self, AmountError> {
        let mut lane = None;
        let mut after = before;
        let mut amounts = Vec::new();
        for record in records {
            assert_eq!(record.before, after.window, "offered windows follow one another (I26)");
            assert!(record.epoch >= after.epoch, "the epoch never falls (I26)");
            assert_eq!(*lane.get_or_insert(record.lane), record.lane, "an offer is of one lane (I26)");
            amounts.extend_from_slice(&record.totals);
            let corrections = record.corrections.iter().filter(|correction| {
                correction.cut > before.base_cut
                    && correction.store.as_deref().is_none_or(|name| name == store)
            });
            amounts.extend(corrections.map(|correction| (correction.item, correction.amount)));
            after = Fence {
                epoch: record.epoch,
                window: record.window,
                as_of: record.as_of,
                kind: record.kind,
                ..after
            };
        }
        let lane = lane.expect("an offer joins at least one record");
        Ok(Self { lane, before, after, amounts: summed(amounts, after.window)? })
    }
}

/// One amount an item, by item, zero sums dropped.
fn summed<I: Id>(mut amounts: Vec<(I, i64)>, window: u64) -> Result<Vec<(I, i64)>, AmountError> {
    // A single window without corrections is sorted already: the sort then is one pass.
    amounts.sort_by_key(|(item, _)| *item);
    let mut sums: Vec<(I, i64)> = Vec::with_capacity(amounts.len());
    for same in amounts.chunk_by(|one, next| one.0 == next.0) {
        let item = same[0].0;
        let sum: i128 = same.iter().map(|(_, amount)| i128::from(*amount)).sum();
        match i64::try_from(sum) {
            Ok(0) => {}
            Ok(sum) if sum.unsigned_abs() < AMOUNT_LIMIT.unsigned_abs() => sums.push((item, sum)),
            _ => return Err(AmountError { item: item.to_string(), window }),
        }
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_model::{CutKind, TotalCorrection};

    fn record(window: u64, totals: &[(i64, i64)]) -> LaneTotals<i64> {
        LaneTotals {
            lane: 3,
            window,
            before: window - 1,
            epoch: 1,
            as_of: 100,
            kind: CutKind::Partial,
            totals: totals.to_vec(),
            corrections: Vec::new(),
        }
    }

    fn correction(item: i64, store: Option<&str>, amount: i64, cut: u64) -> TotalCorrection<i64> {
        TotalCorrection { item, store: store.map(str::to_owned), id: 1, amount, cut }
    }

    fn fence(window: u64) -> Fence {
        Fence { window, base_cut: 5, ..Fence::unapplied(2) }
    }

    #[test]
    fn windows_in_a_row_become_one_step() {
        let records = [record(8, &[(1, 2), (4, 1)]), record(9, &[(1, 1), (4, -1), (7, 3)])];
        let offer = Offer::join("redis", fence(7), records.iter()).expect("small amounts");
        assert_eq!((offer.lane, offer.amounts), (3, vec![(1, 3), (7, 3)]));
        assert_eq!(
            offer.after,
            Fence { epoch: 1, window: 9, as_of: 100, kind: CutKind::Partial, ..fence(7) }
        );
    }

    #[test]
    fn a_store_takes_its_own_corrections_from_beyond_its_base_cut() {
        let mut record = record(8, &[(1, 2)]);
        record.corrections = vec![
            correction(1, None, 10, 6),
            correction(1, Some("redis"), 100, 6),
            correction(1, Some("redis"), 1_000, 5),
            correction(1, Some("postgres"), 10_000, 6),
            correction(2, None, 5, 5),
        ];
        let offer = Offer::join("redis", fence(7), [&record].into_iter()).expect("small amounts");
        assert_eq!(offer.amounts, vec![(1, 112)]);
    }

    #[test]
    fn an_amount_beyond_what_a_counter_holds_is_an_error() {
        for amount in [AMOUNT_LIMIT, -AMOUNT_LIMIT, i64::MIN, i64::MAX] {
            let record = record(8, &[(1, amount)]);
            let error = Offer::join("redis", fence(7), [&record].into_iter()).expect_err("too large");
            assert_eq!(error, AmountError { item: "1".into(), window: 8 });
        }
    }
}
