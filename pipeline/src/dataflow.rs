//! The stages put together, on one worker.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use differential_dataflow::AsCollection;
use differential_dataflow::trace::TraceReader;
use differential_dataflow::trace::implementations::spine_fueled::SpineBatch;
use fencepost_model::{Id, TotalCorrection, WindowId};
use fencepost_sources::log::TotalsWriter;
use timely::dataflow::operators::Probe;
use timely::dataflow::operators::probe::Handle;
use timely::dataflow::operators::vec::{Broadcast, Filter};
use timely::progress::Antichain;
use timely::scheduling::SyncActivator;
use timely::worker::Worker;

use crate::Metrics;
use crate::failure::Failure;
use crate::identity::FlipKey;
use crate::stages::distinct::{Remembered, distinct};
use crate::stages::slices::SourceParts;
use crate::stages::source::{SourceStreams, source};

use crate::stages::sums::sums;
use crate::stages::totals::totals;

/// The dataflow of one worker: whoever steps the worker calls [`Dataflow::advance`] in between.
pub(crate) struct Dataflow<I: Id> {
    index: usize,
    confirmed: Handle<WindowId>,
    frontier: WindowId,
    /// Wakes the source, from any thread.
    pub(crate) source: SyncActivator,
    /// Wakes the totals stage, from any thread.
    pub(crate) totals: SyncActivator,
    remembered: (Remembered<FlipKey<I>>, Remembered<TotalCorrection<I>>),
    remembered_rows: i64,
    metrics: Arc<Metrics>,
}

/// Builds the dataflow on a worker.
pub(crate) fn build<I: Id>(
    worker: &mut Worker,
    parts: SourceParts<I>,
    writer: Box<dyn TotalsWriter>,
    failure: &Failure,
) -> Dataflow<I> {
    let index = worker.next_dataflow_index();
    let confirmed = Handle::new();
    let metrics = Arc::clone(&parts.metrics);
    let resume = parts.checkpoint.restored().window;
    worker.dataflow(|scope| {
        let SourceStreams { flips, corrections, heads, activator } =
            source(scope, parts, confirmed.clone(), failure.clone());
        let (amounts, flips_trace) = distinct(flips, "distinct flips", Arc::clone(&metrics));
        let sums = sums(amounts, resume);
        let (corrections, corrections_trace) =
            distinct(corrections, "distinct corrections", Arc::clone(&metrics));
        let corrections = corrections.inner.filter(move |(_, window, _)| *window > resume).as_collection();
        let (records, totals) = totals(sums, corrections, heads.broadcast(), writer, failure.clone());
        records.probe_with(&confirmed);
        Dataflow {
            index,
            confirmed,
            frontier: 0,
            source: activator,
            totals,
            remembered: (flips_trace, corrections_trace),
            remembered_rows: 0,
            metrics,
        }
    })
}

impl<I: Id> Dataflow<I> {
    /// Follows the confirmed frontier, and returns whether it has moved. What is remembered may then be merged up to it.
    pub(crate) fn advance(&mut self) -> bool {
        let frontier = self.confirmed.with_frontier(|frontier| frontier.first().copied());
        let Some(frontier) = frontier.filter(|frontier| *frontier > self.frontier) else { return false };
        self.frontier = frontier;
        self.metrics.frontier.fetch_max(frontier, Ordering::Relaxed);
        let rows =
            rows_up_to(&mut self.remembered.0, frontier) + rows_up_to(&mut self.remembered.1, frontier);
        self.metrics.remembered_rows.fetch_add(rows - self.remembered_rows, Ordering::Relaxed);
        self.remembered_rows = rows;
        self.activate();
        true
    }

    /// Has the ports asked again at the next step.
    pub(crate) fn activate(&self) {
        // Fails only where the worker has gone, and this is its own thread.
        let _ = (self.source.activate(), self.totals.activate());
    }

    /// Every window below it is confirmed by the totals log, for all workers.
    pub(crate) fn frontier(&self) -> WindowId {
        self.frontier
    }

    /// Takes the dataflow off the worker, with its capabilities: nothing that it holds back is let go.
    pub(crate) fn drop_from(self, worker: &mut Worker) {
        worker.drop_dataflow(self.index);
    }
}

/// Lets a trace merge what lies before the frontier, and counts its rows.
pub(crate) fn rows_up_to<Tr>(trace: &mut Tr, frontier: WindowId) -> i64
where
    Tr: TraceReader<Time = WindowId, Batch: SpineBatch>,
{
    let frontier = Antichain::from_elem(frontier);
    trace.set_logical_compaction(frontier.borrow());
    trace.set_physical_compaction(frontier.borrow());
    let mut rows = 0;
    trace.map_spans(|span| rows += span.inner.as_ref().map_or(0, SpineBatch::len));
    i64::try_from(rows).unwrap_or(i64::MAX)
}
