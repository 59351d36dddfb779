//! End-to-end tests on real Postgres, Kafka and Redis.

mod deployment;
mod harness;
mod stack;
