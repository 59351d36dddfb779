//! End-to-end tests on real Postgres, Kafka and Redis.

mod harness;
mod stack;
