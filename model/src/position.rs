use serde::{Deserialize, Serialize};

/// Where an event stands in its source; strictly rising in every partition of the log.
///
/// Written in JSON as `[epoch, lsn, index]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "(u64, u64, u32)", into = "(u64, u64, u32)")]
pub struct Position {
    /// Epoch of the relay: raised by each adoption of another primary, so it orders positions before the LSN does.
    pub epoch: u64,
    /// Final LSN of the transaction (the LSN of its commit record), known while its rows stream.
    pub lsn: u64,
    /// Index of the event among the outbox rows of its transaction.
    pub index: u32,
}

impl Position {
    /// The index that lies behind every event of a transaction: the position of a cut that includes it whole.
    pub const WHOLE: u32 = u32::MAX;

    /// The position just after the whole transaction with this final LSN.
    pub fn after_transaction(epoch: u64, lsn: u64) -> Self {
        Self { epoch, lsn, index: Self::WHOLE }
    }
}

impl From<(u64, u64, u32)> for Position {
    fn from((epoch, lsn, index): (u64, u64, u32)) -> Self {
        Self { epoch, lsn, index }
    }
}

impl From<Position> for (u64, u64, u32) {
    fn from(position: Position) -> Self {
        (position.epoch, position.lsn, position.index)
    }
}
