//! The log: flips in windows, the history of windows, and the totals by lane.
//!
//! Four topics: `flips` (events and markers, a window a transaction), `windows` (one record a window), `totals` (a
//! partition a lane) and `dead-letters`. Everything else reaches the log through the ports below and knows nothing of
//! Kafka.

mod assembler;
pub mod chain;
mod client;
mod config;
mod dead_letters;
pub mod dump;
mod error;
mod flips_reader;
mod offsets;
pub mod reach;
mod scan;
mod sweep;
pub mod topic_id;
pub mod topics;
pub mod totals_chain;
mod totals_reader;
mod totals_writer;
mod transaction;
pub mod windows;

pub use config::KafkaConfig;
pub use error::LogError;
pub use flips_reader::KafkaFlipsReader;
pub use totals_reader::KafkaTotalsReader;
pub use totals_writer::KafkaTotalsWriter;
pub use transaction::KafkaWindowLog;

use fencepost_model::{Correction, Flip, LaneTotals, Marker, Position, WindowId};

/// Called by an adapter's thread when there is something to poll for: wakes the one who steps.
pub type Waker = Box<dyn Fn() + Send>;

/// What a partition of the flips topic holds of one window, read whole and checked against its marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowSlice<I> {
    /// The partition.
    pub partition: u32,
    /// The marker that closed the window there.
    pub marker: Marker,
    /// Offset to go on reading from once this window is done.
    pub next_offset: i64,
    /// The flips, in the order of their positions; those known by position are left out.
    pub flips: Vec<Flip<I>>,
    /// The corrections, in the order of their positions; those known by position are left out.
    pub corrections: Vec<Correction<I>>,
    /// How many records were left out because their position was known.
    pub known_by_position: u64,
}

/// Where to start reading a partition of the flips topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionStart {
    /// The partition.
    pub partition: u32,
    /// The offset to read from.
    pub offset: i64,
    /// The window of the last marker before that offset; 0 at the start of the log.
    pub window: WindowId,
    /// The position of that marker.
    pub position: Position,
}

/// Reads the flips topic, window by window.
pub trait FlipsReader<I>: Send {
    /// The next slice that is ready, or `None` when there is none yet; never blocks.
    ///
    /// Slices of a partition come in the order of its windows, and a partition is never more than a few windows ahead
    /// of the slowest of this reader.
    ///
    /// # Errors
    /// See [`LogError`]. After an error the reader is of no more use.
    fn poll(&mut self) -> Result<Option<WindowSlice<I>>, LogError>;
}

/// Appends to the totals topic. Parts of a lane arrive in the order they are sent.
pub trait TotalsWriter {
    /// Queues a part of a lane's record for the window. `false` when the queue is full: try again later.
    ///
    /// # Errors
    /// See [`LogError`]; a delivery that failed for good is reported here or by [`TotalsWriter::unconfirmed`].
    fn send(&mut self, lane: u8, window: WindowId, part: &[u8]) -> Result<bool, LogError>;

    /// The least window that has a part which the log has not confirmed, or `None` when all are; never blocks.
    ///
    /// # Errors
    /// See [`LogError`].
    fn unconfirmed(&mut self) -> Result<Option<WindowId>, LogError>;
}

/// What a totals reader has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Totals<I> {
    /// A complete record, as it stands in the log: repeats and gaps included, the caller's fence tells them.
    Record(LaneTotals<I>),
    /// The reader has passed every record that the lane's partition held when it was asked for its end. Comes once
    /// after each catch-up.
    End {
        /// The lane.
        lane: u8,
    },
}

/// Reads the totals topic, lane by lane.
pub trait TotalsReader<I>: Send {
    /// Goes to the first record of the lane that may follow `window` (0: to the start of the retained log). What was
    /// read of this lane before is dropped.
    ///
    /// # Errors
    /// See [`LogError`].
    fn seek(&mut self, lane: u8, window: WindowId) -> Result<(), LogError>;

    /// The next record or end, or `None` when there is none yet; never blocks.
    ///
    /// # Errors
    /// See [`LogError`]. After an error the reader is of no more use.
    fn poll(&mut self) -> Result<Option<Totals<I>>, LogError>;
}
