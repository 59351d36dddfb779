//! End-to-end tests on real Postgres, Kafka and Redis.

#![allow(clippy::unwrap_used, reason = "all of it is a test")]

mod commands;
mod corrections;
mod counts;
mod crashes;
mod deployment;
mod harness;
mod housekeeping;
mod load;
mod operations;
mod postgres_store;
mod refusals;
mod schema;
mod stack;
mod store_faults;
mod takeovers;
mod two_stores;
