//! Where events come from: the relay from a Postgres outbox to the log, and the log itself.
//!
//! The log is the clock: a window is what stands between two markers of a partition, and everything downstream is a
//! function of it. The relay writes it; pipeline, appliers and audits read it through the ports in [`log`].

pub mod log;
pub mod relay;
