//! The pipeline on a log in memory: whatever is read in whatever order, by however many workers, through whatever
//! crashes, the totals log holds what the oracle says, record for record after removing repeats.

mod determinism;
mod history;
mod life;
mod memory_log;
mod oracle;
mod recovery;
