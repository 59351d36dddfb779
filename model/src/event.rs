use crate::{Micros, Position, WindowId};

/// One committed change of an edge. Its identity is (item, user, op); its amount is liked − was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flip<I> {
    /// What was liked or unliked.
    pub item: I,
    /// Who did it.
    pub user: I,
    /// Version of the edge, from one sequence: below [`Flip::<I>::OP_LIMIT`].
    pub op: i64,
    /// The edge's state before.
    pub was: bool,
    /// The edge's state after.
    pub liked: bool,
    /// When the row was written, by the database's clock. A label: nothing is ordered or expired by it.
    pub at: Micros,
}

impl<I> Flip<I> {
    /// Ops lie in 1..2^60, so that an op and the two states pack into one integer.
    pub const OP_LIMIT: i64 = 1 << 60;

    /// What the flip adds to its item's count: +1, −1, or 0 when nothing changed.
    pub fn amount(&self) -> i64 {
        i64::from(self.liked) - i64::from(self.was)
    }
}

/// A signed amount for one item in one store (or all of them), computed at a cut. Its identity is its id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Correction<I> {
    /// Primary key of the `corrections` row that it came from.
    pub id: i64,
    /// The item whose counter is corrected.
    pub item: I,
    /// The store to correct; `None` for every store.
    pub store: Option<String>,
    /// What to add.
    pub amount: i64,
    /// The window whose cut the amount was computed at. A store rebuilt at or after this cut has it in already.
    pub cut: WindowId,
    /// When the row was written, by the database's clock.
    pub at: Micros,
}

/// What an outbox row says: something that changes a count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<I> {
    /// A committed change of an edge.
    Flip(Flip<I>),
    /// An amount that mends a counter.
    Correction(Correction<I>),
}

impl<I: crate::Id> Event<I> {
    /// The item whose count it changes.
    pub fn item(&self) -> I {
        match self {
            Event::Flip(flip) => flip.item,
            Event::Correction(correction) => correction.item,
        }
    }

    /// The bucket that, with the item, decides its partition: of the user, or of the correction's id.
    pub fn bucket(&self) -> u8 {
        match self {
            Event::Flip(flip) => crate::placement::bucket(flip.user),
            Event::Correction(correction) => crate::placement::bucket(correction.id),
        }
    }
}

/// An event with the place where it stands in its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Positioned<I> {
    /// Where it stands.
    pub position: Position,
    /// What it says.
    pub event: Event<I>,
}
