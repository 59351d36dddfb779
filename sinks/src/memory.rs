//! A store in memory, for tests and the simulation. Its clone is a snapshot that it may go back to.

use std::collections::BTreeMap;

use fencepost_model::placement::LANES;
use fencepost_model::{Fence, Id};

use crate::offer::Offer;
use crate::store::{Outcome, Store, StoreError};

/// Counters and fences in memory, by the same rule as any store's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryStore<I> {
    fences: Vec<Option<Fence>>,
    /// Sums by item, below zero where there is debt.
    sums: BTreeMap<I, i64>,
}

impl<I: Id> MemoryStore<I> {
    /// An empty store: no lane has a fence.
    pub fn new() -> Self {
        Self { fences: vec![None; usize::from(LANES)], sums: BTreeMap::new() }
    }

    /// Gives a fence to the lanes that have none.
    pub fn create(&mut self, generation: u64) {
        for fence in &mut self.fences {
            fence.get_or_insert(Fence::unapplied(generation));
        }
    }

    /// What a reader sees: never below zero.
    pub fn count(&self, item: I) -> i64 {
        self.sum(item).max(0)
    }

    /// Counter minus debt.
    pub fn sum(&self, item: I) -> i64 {
        self.sums.get(&item).copied().unwrap_or(0)
    }
}

impl<I: Id> Default for MemoryStore<I> {
    fn default() -> Self {
        Self::new()
    }
}

impl<I: Id> Store<I> for MemoryStore<I> {
    fn fences(&mut self) -> Result<Vec<Option<Fence>>, StoreError> {
        Ok(self.fences.clone())
    }

    fn apply(&mut self, offers: &[Offer<I>]) -> Result<Vec<Outcome<I>>, StoreError> {
        Ok(offers.iter().map(|offer| self.apply_one(offer)).collect())
    }
}

impl<I: Id> MemoryStore<I> {
    fn apply_one(&mut self, offer: &Offer<I>) -> Outcome<I> {
        let fence = &mut self.fences[usize::from(offer.lane)];
        if *fence != Some(offer.before) || offer.after.epoch < offer.before.epoch {
            return Outcome::Refused { fence: *fence };
        }
        *fence = Some(offer.after);
        let mut debts = Vec::new();
        for (item, amount) in &offer.amounts {
            let sum = self.sums.entry(*item).or_insert(0);
            *sum += amount;
            if *sum < 0 {
                debts.push((*item, -*sum));
            }
        }
        Outcome::Applied { set_aside: Vec::new(), debts }
    }
}
