//! End-to-end tests on real Postgres, Kafka and Redis.
