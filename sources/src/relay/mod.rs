//! The relay: committed outbox rows from the write-ahead log, a Kafka transaction per window.
