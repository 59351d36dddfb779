//! The pipeline on a log in memory: whatever is read in whatever order, by however many workers, through whatever
//! crashes, the totals log holds what the oracle says, record for record after removing repeats.

#![allow(clippy::unwrap_used, reason = "this is a test throughout")]

mod determinism;
mod faults;
mod history;
mod life;
mod memory_log;
mod oracle;
mod recovery;
