use fencepost_model::{Position, WindowId, WindowRecord};

use super::BadRow;
use crate::log::LogError;

/// Where the relay writes windows: everything since the last close becomes visible at once, or never.
///
/// Two implementations: a Kafka transaction a window, and the memory of the tests.
pub trait WindowLog {
    /// Number of partitions of the flips topic.
    fn partitions(&self) -> u32;

    /// Adds a record to the open window.
    ///
    /// # Errors
    /// See [`LogError`]. After an error the open window is lost, and nobody has seen it.
    fn send(&mut self, record: &FlipRecord<'_>) -> Result<(), LogError>;

    /// Adds a row that is no event to the dead letters, with the open window.
    ///
    /// # Errors
    /// As [`WindowLog::send`].
    fn bury(&mut self, position: Position, row: &BadRow, timestamp: WindowId) -> Result<(), LogError>;

    /// Closes the window: a marker in every partition, the record in `windows`, and all of it becomes visible.
    ///
    /// # Errors
    /// See [`LogError`]. After an error the window is in the log whole or not at all; only the log knows which.
    fn close(&mut self, record: &WindowRecord) -> Result<(), LogError>;
}

/// A record of the flips topic, placed.
#[derive(Clone, Copy, Debug)]
pub struct FlipRecord<'a> {
    /// Its partition, by the placement rule.
    pub partition: u32,
    /// `item:bucket`.
    pub key: &'a [u8],
    /// The encoded event.
    pub value: &'a [u8],
    /// Above the window before, at most the window that will close over it.
    pub timestamp: WindowId,
}
