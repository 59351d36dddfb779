use fencepost_model::{Event, Micros};

/// What the replication stream says, in commit order: `Begin`, any number of rows, `Commit`, and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A committed transaction starts.
    Begin {
        /// LSN of its commit record: its place among all transactions.
        final_lsn: u64,
        /// When it committed.
        committed_at: Micros,
    },
    /// The transaction wrote an outbox row.
    Row(Result<Event<i64>, BadRow>),
    /// The transaction is complete.
    Commit {
        /// LSN behind its commit record: what may be acknowledged once all of it is in the log.
        end_lsn: u64,
    },
}

/// An outbox row that says nothing countable.
///
/// It goes to the dead letters, so that a row which the table's constraints should have refused does not stop all that
/// were written after it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("outbox row is no event: {reason}; {row}")]
pub struct BadRow {
    /// What is wrong with it.
    pub reason: &'static str,
    /// The row, as text for a person to read.
    pub row: String,
}

/// An LSN as Postgres writes it.
pub(super) fn lsn(lsn: u64) -> String {
    format!("{:X}/{:X}", lsn >> 32, lsn & 0xffff_ffff)
}
