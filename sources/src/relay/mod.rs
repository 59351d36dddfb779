//! The relay: committed rows of the outbox, in commit order, into windows of the log.
//!
//! [`Relay`] is the rule, [`check`] says whether it may start; both know nothing of sockets. [`run`] joins them to
//! Postgres and Kafka: one start protocol for the first start, each restart and each recovery.
//!
//! 1. Take the lock in Postgres. A second relay stops here and harms nobody.
//! 2. Read the last window of the log, and refuse if it does not match the database, the slot or the topics.
//! 3. Take over the log: a transaction that a predecessor left open is aborted, and it can commit no more.
//! 4. Only now read the last window again: it is the last for good (I10). Go on from exactly its position.

mod change;
mod config;
mod control;
mod failure;
mod housekeeping;
mod machine;
mod metrics;
mod outbox;
mod partitions;
mod pgoutput;
mod refusal;
mod session;
mod stream;
mod window_log;

pub use change::{BadRow, Change};
pub use config::RelayConfig;
pub use failure::Failure;
pub use machine::{Closed, Origin, Pace, Relay};
pub use metrics::RelayMetrics;
pub use pgoutput::{DecodeError, Decoder};
pub use refusal::{Log, Publication, Refusal, Slot, Source, check};
pub use session::run;
pub use window_log::{FlipRecord, WindowLog};
