//! What a deployment needs in Postgres: edges, outbox, stores, the SQL functions, the publication and the slot.
//!
//! On a first start the order matters, so that no flip can precede the slot and be lost: [`create_tables`], then the
//! topics, then [`create_slot`], and [`create_functions`] last, since `fencepost.set_like` is how flips come about.
//! Each of them makes what is missing and returns its names: to run all again finishes what was half done.
//!
//! A store of counters may lie in any database: [`create_store`].

mod lock;
mod migrations;
mod publication;
mod server;
mod slot;

use postgres::Client;

/// How many days ahead the outbox has partitions.
pub const OUTBOX_DAYS_AHEAD: i32 = 14;

/// Creates the tables, the outbox's partitions, and the publication of the outbox. Returns what was missing.
///
/// # Errors
/// When the server is too old or its `wal_level` is not `logical`, when a publication of the name publishes something
/// else, or when the schema is that of a newer build.
pub fn create_tables(client: &mut Client, publication: &str) -> anyhow::Result<Vec<String>> {
    server::check(client)?;
    lock::hold(client, |client| {
        let mut made = migrations::create_tables(client)?;
        made.extend(migrations::make_outbox_partitions(client)?);
        made.extend(publication::create(client, publication)?);
        Ok(made)
    })
}

/// Creates the replication slot that the relay reads from. Returns its name if it was missing.
///
/// Waits for the transactions that are open now to end: the slot starts at a point where none is.
///
/// # Errors
/// When `wal_level` is not `logical`, when a slot of the name belongs to something else, or when Postgres has none left.
pub fn create_slot(client: &mut Client, slot: &str) -> anyhow::Result<Option<String>> {
    server::check(client)?;
    lock::hold(client, |client| slot::create(client, slot))
}

/// Creates the functions that write flips, `fencepost.set_like` and `fencepost.set_likes`, and applies every later
/// migration. Returns what was missing.
///
/// # Errors
/// When [`create_tables`] has not been run, or the schema is that of a newer build.
pub fn create_functions(client: &mut Client) -> anyhow::Result<Vec<String>> {
    lock::hold(client, migrations::create_functions)
}

/// Creates the tables of a store of counters in a schema of its own. Returns what was missing.
///
/// # Errors
/// When the server is too old, the schema cannot be made, or it is that of a newer build.
pub fn create_store(client: &mut Client, schema: &str) -> anyhow::Result<Vec<String>> {
    server::check_version(client)?;
    lock::hold(client, |client| migrations::create_store(client, schema))
}
