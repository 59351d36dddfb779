//! What the distinct stage remembers of an event: its identity with its amount.
//!
//! The amount is part of the key, so two records that claim the same identity with different states are two keys, and
//! no order of arrival decides which of them counts.

use fencepost_model::{Flip, Id, TotalCorrection};
use serde::{Deserialize, Serialize};

/// An identity of an event together with what it adds.
pub(crate) trait Identity: differential_dataflow::ExchangeData {
    /// What the first arrival emits; nothing when 0.
    fn amount(&self) -> i64;
}

/// A flip's identity and its states: item, user, and op with the states packed below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct FlipKey<I> {
    /// What was liked or unliked.
    pub(crate) item: I,
    /// Who did it.
    pub(crate) user: I,
    /// op << 2 | was << 1 | liked.
    pub(crate) version: u64,
}

impl<I: Id> FlipKey<I> {
    /// The key of a flip.
    ///
    /// # Panics
    /// When the flip's op is out of range: the codec that read it has refused such ops.
    pub(crate) fn of(flip: &Flip<I>) -> Self {
        assert!((0..Flip::<I>::OP_LIMIT).contains(&flip.op), "op {} is out of range (I13)", flip.op);
        let version = flip.op.cast_unsigned() << 2 | u64::from(flip.was) << 1 | u64::from(flip.liked);
        Self { item: flip.item, user: flip.user, version }
    }
}

impl<I: Id> Identity for FlipKey<I> {
    fn amount(&self) -> i64 {
        let (was, liked) = (self.version >> 1 & 1, self.version & 1);
        liked.cast_signed() - was.cast_signed()
    }
}

impl<I: Id> Identity for TotalCorrection<I> {
    /// One: a correction is passed on whole, its amount is for the stores that it names.
    fn amount(&self) -> i64 {
        1
    }
}

/// The raw arrivals of one partition in one window, replays included: as many rows as were inserted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arrivals<I> {
    /// Flips, sorted once they are in a frame.
    pub(crate) flips: Vec<FlipKey<I>>,
    /// Corrections, sorted once they are in a frame.
    pub(crate) corrections: Vec<TotalCorrection<I>>,
}

impl<I> Default for Arrivals<I> {
    fn default() -> Self {
        Self { flips: Vec::new(), corrections: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_amount_of_its_flip() {
        for (was, liked) in [(false, true), (true, false), (true, true), (false, false)] {
            let flip = Flip { item: 7_i64, user: -9, op: Flip::<i64>::OP_LIMIT - 1, was, liked, at: 5 };
            assert_eq!(FlipKey::of(&flip).amount(), flip.amount());
        }
    }
}
