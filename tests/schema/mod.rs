//! The tables and SQL functions, on a real Postgres: exact whoever else writes.

mod database;
mod migrations;
mod outbox;
mod set_like;
mod set_likes;

pub(crate) use database::Database;
