//! What the pipeline needs of the log, at its start and per worker. Kafka is one implementation, memory the other.

use fencepost_model::WindowId;
use fencepost_sources::log::totals_chain::ChainEnd;
use fencepost_sources::log::{FlipsReader, LogError, PartitionStart, TotalsWriter, Waker};

use crate::FlipsTopic;

/// Where reading starts in order to remember a horizon again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HorizonStart {
    /// The last window that has left the horizon; 0 when none has.
    pub left: WindowId,
    /// Where each partition goes on after it.
    pub starts: Vec<PartitionStart>,
}

/// A log with a flips topic and a totals topic.
pub trait PipelineLog<I>: Send + Sync + 'static {
    /// The topic that events are read from.
    ///
    /// # Errors
    /// See [`LogError`]; so for all that follow.
    fn flips_topic(&self) -> Result<FlipsTopic, LogError>;

    /// What the retained totals log holds, an entry a lane.
    fn totals_chains(&self) -> Result<Vec<ChainEnd>, LogError>;

    /// Where each partition starts when nothing was read; refused when its start is gone.
    fn first_starts(&self) -> Result<Vec<PartitionStart>, LogError>;

    /// Where to start in order to remember the `horizon_windows` whole windows up to this window.
    fn horizon_start(&self, window: WindowId, horizon_windows: u32) -> Result<HorizonStart, LogError>;

    /// A reader of some partitions. The waker is called when there is something to poll for.
    fn flips(&self, starts: &[PartitionStart], waker: Waker) -> Result<Box<dyn FlipsReader<I>>, LogError>;

    /// A writer of some lanes, for this incarnation. The waker is called when records were confirmed.
    fn totals(&self, incarnation: u64, waker: Waker) -> Result<Box<dyn TotalsWriter>, LogError>;
}
