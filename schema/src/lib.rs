//! Migrations and SQL functions of the edge table and its outbox.
