//! The applier: brings a store from its fences to the end of the totals log.
//!
//! A step machine over two ports, the totals log and the store; it neither blocks on anything but them nor reads a
//! clock. Its only state is what it can ask for again: each step
//!
//! 1. asks the store for its fences if they are not known (at the start, and after every error), and seeks the log to
//!    each;
//! 2. reads what the log has ready, within limits, and queues what follows ([`crate::lane`] tells what does);
//! 3. offers each lane its next windows, those furthest behind first, and moves on or adopts the fence that refused.

use std::sync::Arc;

use fencepost_model::placement::LANES;
use fencepost_model::{Fence, Id, WindowId};
use fencepost_sources::log::{LogError, Totals, TotalsReader};
use tracing::{debug, info, warn};

use crate::admission::Refusal;
use crate::lane::{End, Lane, Taken, size};
use crate::metrics::{ApplierMetrics, add};
use crate::offer::{AmountError, Offer};
use crate::store::{Outcome, Store, StoreError};

/// Windows of a lane are joined into one offer up to this many items; a single window may be larger.
const JOINED_ITEMS_MAX: usize = 10_000;

/// Offers of one round trip hold this many items, or one offer.
const ROUND_ITEMS_MAX: usize = 100_000;

/// Reading pauses at this many items read and not applied, or
const QUEUED_ITEMS_MAX: usize = 400_000;

/// at this many records, or
const QUEUED_RECORDS_MAX: usize = 8_192;

/// after this many records in one step, so that a long run of replays does not keep the owner from stopping.
const READS_MAX: usize = 8_192;

/// Examples that a log line gives.
const EXAMPLES_MAX: usize = 5;

/// An applier of one store.
pub struct Applier<I, R, S> {
    name: String,
    generation: u64,
    reader: R,
    store: S,
    /// By lane; `None` when the fences have to be asked for.
    lanes: Option<Vec<Lane<I>>>,
    /// The highest window that each lane was seen at, to tell when one goes back.
    seen: Vec<WindowId>,
    metrics: Arc<ApplierMetrics>,
}

/// Why an applier stops, for now or for good.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// From the store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// From the log. The reader is of no more use: give another by [`Applier::replace_reader`].
    #[error(transparent)]
    Log(#[from] LogError),
    /// The store may not be written as it is.
    #[error(transparent)]
    Admission(#[from] Refusal),
    /// The totals log misses windows.
    #[error(
        "lane {lane} stands at window {fence}, and the totals log has nothing that follows window {tip}: its next \
         record, of window {first}, follows window {first_before}; restart the pipeline, which verifies the log and \
         mends it; if retention has removed the windows between, rebuild the store"
    )]
    Gap {
        /// The lane.
        lane: u8,
        /// The window of its fence.
        fence: WindowId,
        /// The last window that the log leads to from there.
        tip: WindowId,
        /// The first window that does not follow.
        first: WindowId,
        /// The window that it says it follows.
        first_before: WindowId,
    },
    /// The lane was rebuilt, or the store is another's.
    #[error(
        "lane {lane} has generation {found}, but this applier was admitted to generation {admitted}: the store was \
         rebuilt, or an old snapshot was restored; start the applier again, which compares it with fencepost.stores"
    )]
    Generation {
        /// The lane.
        lane: u8,
        /// Of its fence.
        found: u64,
        /// Of the applier.
        admitted: u64,
    },
    /// A lane that had a fence has none.
    #[error(
        "lane {0} has lost its fence, so the store has lost its counters; it is not written until it is rebuilt: run \
         `fencepost apply --store NAME --from-start` while the totals log is complete"
    )]
    Lost(u8),
    /// An amount beyond what counters hold.
    #[error(transparent)]
    Amount(#[from] AmountError),
    /// The store broke its contract.
    #[error(
        "lane {0} refused an offer that follows its fence exactly; the store breaks its contract, report this"
    )]
    Contradiction(u8),
}

impl ApplyError {
    /// Whether it passes: step again, after a while.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Store(StoreError::Transient(_)) | Self::Log(LogError::Transient(_)))
    }
}

/// What an applier last knew of its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The fence that is furthest behind: everything is exact at least as of it.
    pub least: Fence,
    /// Lanes whose fence lies beyond the end of the totals log: they wait for it.
    pub ahead_of_log: usize,
}

impl<I: Id, R: TotalsReader<I>, S: Store<I>> Applier<I, R, S> {
    /// An applier that keeps to one generation of the store of this name. The name decides which corrections are its.
    pub fn new(name: &str, generation: u64, reader: R, store: S, metrics: Arc<ApplierMetrics>) -> Self {
        let seen = vec![0; usize::from(LANES)];
        Self { name: name.to_owned(), generation, reader, store, lanes: None, seen, metrics }
    }

    /// Goes on with another reader, after an error of the log.
    pub fn replace_reader(&mut self, reader: R) {
        self.reader = reader;
        self.lanes = None;
    }

    /// The store's fences as last known; `None` before the first answer and after an error.
    pub fn standing(&self) -> Option<Standing> {
        let lanes = self.lanes.as_ref()?;
        let least = lanes.iter().map(Lane::fence).min_by_key(|fence| fence.window)?;
        Some(Standing { least, ahead_of_log: lanes.iter().filter(|lane| lane.fence_is_ahead()).count() })
    }

    /// Asks whether the store still stands where it was left. Offers tell as much, but while the log is silent there are
    /// none, and a store that goes back then would go unnoticed. To be called now and then when there is nothing to do.
    ///
    /// # Errors
    /// See [`ApplyError`]. After a transient one, step again.
    pub fn verify(&mut self) -> Result<(), ApplyError> {
        let Some(lanes) = self.lanes.take() else { return Ok(()) };
        let fences = self.store.fences().map_err(|error| self.note(error.into()))?;
        if lanes.iter().map(|lane| Some(lane.fence())).eq(fences) {
            self.lanes = Some(lanes);
        }
        Ok(())
    }

    /// Takes one step. `false` when there was nothing to do: wait for the log.
    ///
    /// # Errors
    /// See [`ApplyError`]. After a transient one, step again; all that was in hand is asked for again.
    pub fn step(&mut self) -> Result<bool, ApplyError> {
        self.advance().map_err(|error| self.note(error))
    }

    /// Counts an error that costs a connection to the store.
    fn note(&self, error: ApplyError) -> ApplyError {
        if matches!(error, ApplyError::Store(StoreError::Transient(_))) {
            add(&self.metrics.reconnects, 1);
        }
        error
    }

    fn advance(&mut self) -> Result<bool, ApplyError> {
        // Only a step that ends well keeps what it knows.
        let mut lanes = match self.lanes.take() {
            Some(lanes) => lanes,
            None => self.ask()?,
        };
        let read = self.read(&mut lanes)?;
        let offered = self.offer(&mut lanes)?;
        self.lanes = Some(lanes);
        Ok(read || offered)
    }

    /// Asks for all fences, and seeks the log to each.
    fn ask(&mut self) -> Result<Vec<Lane<I>>, ApplyError> {
        let fences = self.store.fences()?;
        assert_eq!(fences.len(), usize::from(LANES), "a store answers for every lane");
        let mut lanes = Vec::with_capacity(fences.len());
        for (number, fence) in (0..LANES).zip(fences) {
            let fence = fence.ok_or(ApplyError::Lost(number))?;
            self.admit(number, fence)?;
            let lane = Lane::new(number, fence);
            self.reader.seek(number, lane.seek_window())?;
            lanes.push(lane);
        }
        Ok(lanes)
    }

    /// Checks a fence that the store has shown, and notices when it went back.
    fn admit(&mut self, lane: u8, fence: Fence) -> Result<(), ApplyError> {
        if fence.generation != self.generation {
            return Err(ApplyError::Generation { lane, found: fence.generation, admitted: self.generation });
        }
        let seen = &mut self.seen[usize::from(lane)];
        if fence.window < *seen {
            add(&self.metrics.went_back, 1);
            warn!(
                store = self.name,
                lane,
                from = *seen,
                to = fence.window,
                "store went back; its windows are applied again"
            );
        }
        *seen = fence.window;
        Ok(())
    }

    /// Queues what the log has ready.
    fn read(&mut self, lanes: &mut [Lane<I>]) -> Result<bool, ApplyError> {
        let queued = lanes.iter().flat_map(Lane::queue);
        let (mut records, mut items) =
            queued.fold((0, 0), |(records, items), record| (records + 1, items + size(record)));
        for reads in 0..READS_MAX {
            if records >= QUEUED_RECORDS_MAX || items >= QUEUED_ITEMS_MAX {
                return Ok(true);
            }
            match self.reader.poll()? {
                None => return Ok(reads > 0),
                Some(Totals::End { lane }) => self.end(&mut lanes[usize::from(lane)])?,
                Some(Totals::Record(record)) => {
                    let (lane, record_items) = (&mut lanes[usize::from(record.lane)], size(&record));
                    match lane.take(record) {
                        Taken::Queued => (records, items) = (records + 1, items + record_items),
                        Taken::Replay => add(&self.metrics.replays_skipped, 1),
                        Taken::FenceSeen => {}
                        Taken::Gap => add(&self.metrics.gaps_skipped, 1),
                        Taken::GapAfterEnd => {
                            add(&self.metrics.gaps_skipped, 1);
                            self.reader.seek(lane.lane(), lane.seek_window())?;
                        }
                    }
                }
            }
        }
        Ok(true)
    }

    fn end(&mut self, lane: &mut Lane<I>) -> Result<(), ApplyError> {
        match lane.end() {
            End::CaughtUp => {}
            End::FenceAhead => debug!(
                store = self.name,
                lane = lane.lane(),
                fence = lane.fence().window,
                "fence is ahead of the log"
            ),
            End::ReadAgain => self.reader.seek(lane.lane(), lane.seek_window())?,
            End::Gap { tip, first, first_before } => {
                let fence = lane.fence().window;
                return Err(ApplyError::Gap { lane: lane.lane(), fence, tip, first, first_before });
            }
        }
        Ok(())
    }

    /// Makes one round of offers.
    fn offer(&mut self, lanes: &mut [Lane<I>]) -> Result<bool, ApplyError> {
        let mut ready: Vec<&mut Lane<I>> = lanes.iter_mut().filter(|lane| !lane.queue().is_empty()).collect();
        ready.sort_by_key(|lane| lane.fence().window);
        let (mut offers, mut joined, mut items) = (Vec::new(), Vec::new(), 0);
        for lane in &ready {
            let records = lane.joinable(JOINED_ITEMS_MAX);
            items += lane.queue().range(..records).map(size).sum::<usize>();
            if items > ROUND_ITEMS_MAX && !offers.is_empty() {
                break;
            }
            offers.push(Offer::join(&self.name, lane.fence(), lane.queue().range(..records))?);
            joined.push(records);
        }
        if offers.is_empty() {
            return Ok(false);
        }
        let outcomes = self.store.apply(&offers)?;
        assert_eq!(outcomes.len(), offers.len(), "a store answers every offer");
        let mut refusals = Vec::new();
        for (((lane, offer), records), outcome) in ready.into_iter().zip(&offers).zip(joined).zip(outcomes) {
            match outcome {
                Outcome::Applied { set_aside, debts } => {
                    add(&self.metrics.applied_windows, records);
                    add(&self.metrics.applied_items, offer.amounts.len());
                    self.seen[usize::from(offer.lane)] = offer.after.window;
                    lane.applied(offer.after, records);
                    self.report(offer, &set_aside, &debts);
                }
                Outcome::Refused { fence } => {
                    self.refused(lane, offer, fence)?;
                    refusals.push((offer, lane.fence()));
                }
            }
        }
        if let Some((offer, found)) = refusals.first() {
            info!(
                store = self.name, lanes = refusals.len(), lane = offer.lane, expected = %offer.before, %found,
                "offers refused by the fence, which is adopted; another applier writes this store, or it went back"
            );
        }
        Ok(true)
    }

    /// Adopts the fence that refused, and reads on from there.
    fn refused(
        &mut self,
        lane: &mut Lane<I>,
        offer: &Offer<I>,
        fence: Option<Fence>,
    ) -> Result<(), ApplyError> {
        add(&self.metrics.refusals, 1);
        let number = offer.lane;
        let fence = fence.ok_or(ApplyError::Lost(number))?;
        if fence == offer.before {
            return Err(ApplyError::Contradiction(number));
        }
        self.admit(number, fence)?;
        if lane.adopt(fence) {
            self.reader.seek(number, lane.seek_window())?;
        }
        Ok(())
    }

    fn report(&self, offer: &Offer<I>, set_aside: &[String], debts: &[(I, i64)]) {
        let (lane, window) = (offer.lane, offer.after.window);
        if !set_aside.is_empty() {
            add(&self.metrics.set_aside, set_aside.len());
            let kept = &set_aside[..set_aside.len().min(EXAMPLES_MAX)];
            warn!(
                store = self.name,
                lane,
                window,
                counters = set_aside.len(),
                ?kept,
                "counters that were no number were set aside and counted on from zero, so they are too low; find what \
                 writes them, then run `fencepost audit`"
            );
        }
        if !debts.is_empty() {
            add(&self.metrics.debts, debts.len());
            let owed = &debts[..debts.len().min(EXAMPLES_MAX)];
            warn!(
                store = self.name,
                lane,
                window,
                counters = debts.len(),
                ?owed,
                "counters fell below zero and show 0, the rest is kept as debt; find what lowered them, then run \
                 `fencepost audit`"
            );
        }
    }
}
