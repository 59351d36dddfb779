//! A store: counters in lanes, each lane behind its fence.

use fencepost_model::{Fence, Id};

use crate::offer::Offer;

/// A store of counters, as an applier sees it.
///
/// The rule that every implementation keeps, for each offer by itself and atomically: **add all amounts and move the
/// fence, only if the fence stands exactly where the offer says and the epoch does not fall**; else change nothing.
/// A replay does not follow, a gap does not follow, and a store that went back shows it by its fence.
pub trait Store<I> {
    /// The fence of each lane, by lane; `None` where the store has none.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn fences(&mut self) -> Result<Vec<Option<Fence>>, StoreError>;

    /// Makes the offers, one a lane at most, and says what became of each, in the same order.
    ///
    /// # Errors
    /// See [`StoreError`]. After an error each offer may have been applied or not: the fences say.
    fn apply(&mut self, offers: &[Offer<I>]) -> Result<Vec<Outcome<I>>, StoreError>;
}

/// A store that can be built from the start of the totals log.
pub trait Buildable {
    /// The fences that can be read: what stands in place of one counts as none. For who discards them.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn readable_fences(&mut self) -> Result<Vec<Option<Fence>>, StoreError>;

    /// Gives a fence to the lanes that have none. What stands is left alone.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn create(&mut self, generation: u64) -> Result<(), StoreError>;

    /// Whether nothing of the store exists.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn is_empty<I: Id>(&mut self) -> Result<bool, StoreError>;

    /// Removes all that the store holds, and nothing of another. No reader takes for exact what is going, and no applier
    /// adds to it.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn clear<I: Id>(&mut self) -> Result<(), StoreError>;
}

/// What became of an offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<I> {
    /// Amounts added, fence moved.
    Applied {
        /// Where the store keeps what stood in place of a number; the counter was counted on from zero.
        set_aside: Vec<String>,
        /// Items whose sum lies below zero, with how far: they show 0.
        debts: Vec<(I, i64)>,
    },
    /// Nothing changed: the fence stands elsewhere.
    Refused {
        /// Where it stands; `None` when the lane has none.
        fence: Option<Fence>,
    },
}

/// What went wrong with a store, by what the caller does about it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Passes. The answer may be lost though the write was done: ask for the fences again before anything else.
    #[error("{0}")]
    Transient(String),
    /// The store cannot be written as it is: stop, and let an operator decide. The message says what happened, to
    /// what, and what to do next.
    #[error("{0}")]
    Refused(String),
}
