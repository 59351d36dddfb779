//! Reading counters: what `fencepost get` shows and an audit compares.

use std::collections::BTreeMap;

use fencepost_model::Fence;

use crate::config::StoreConfig;
use crate::postgres::{ColumnId, PostgresCounts};
use crate::redis::RedisCounts;
use crate::store::StoreError;

/// A counter as read, exact at the cut of its lane's fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count<I> {
    /// The item.
    pub item: I,
    /// The count; a missing counter is a true zero. `None` when what stands there is no number: the next like sets it
    /// aside.
    pub value: Option<i64>,
    /// The fence of its lane.
    pub fence: Fence,
}

/// What counters that show 0 are owed, all read at one instant: an item's sum is its counter minus its debt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Debts<I> {
    /// By item.
    pub by_item: BTreeMap<I, i64>,
    /// The fence of each lane, by lane; `None` where the store has none.
    pub fences: Vec<Option<Fence>>,
}

/// Reads the counters of one store.
pub struct CountsReader(Kind);

enum Kind {
    Redis(Box<RedisCounts>),
    Postgres(Box<PostgresCounts>),
}

impl CountsReader {
    /// A reader that connects when first used, and again after each error.
    ///
    /// # Errors
    /// When the store's configuration is not valid.
    pub fn open(config: &StoreConfig) -> Result<Self, StoreError> {
        Ok(Self(match config {
            StoreConfig::Redis(config) => Kind::Redis(Box::new(RedisCounts::new(config)?)),
            StoreConfig::Postgres(config) => Kind::Postgres(Box::new(PostgresCounts::new(config)?)),
        }))
    }

    /// The fence of each lane, by lane; `None` where the store has none.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn fences(&mut self) -> Result<Vec<Option<Fence>>, StoreError> {
        match &mut self.0 {
            Kind::Redis(counts) => counts.fences(),
            Kind::Postgres(counts) => counts.fences(),
        }
    }

    /// The counters of these items with their lanes' fences, all read at one instant, in the order asked.
    ///
    /// # Errors
    /// See [`StoreError`]; also when a lane has no fence, since nothing says then what its counters are.
    pub fn counts<I: ColumnId>(&mut self, items: &[I]) -> Result<Vec<Count<I>>, StoreError> {
        match &mut self.0 {
            Kind::Redis(counts) => counts.counts(items),
            Kind::Postgres(counts) => counts.counts(items),
        }
    }

    /// Every item that has a counter, by item, each once.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn items<I: ColumnId>(&mut self) -> Result<Vec<I>, StoreError> {
        match &mut self.0 {
            Kind::Redis(counts) => counts.items(),
            Kind::Postgres(counts) => counts.items(),
        }
    }

    /// What counters that show 0 are owed.
    ///
    /// # Errors
    /// See [`StoreError`]; also when a debt is no number.
    pub fn debts<I: ColumnId>(&mut self) -> Result<Debts<I>, StoreError> {
        match &mut self.0 {
            Kind::Redis(counts) => counts.debts(),
            Kind::Postgres(counts) => counts.debts(),
        }
    }
}
