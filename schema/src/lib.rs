//! What a deployment needs in Postgres: edges, outbox, stores, the SQL functions, the publication and the slot.
//!
//! On a first start the order matters, so that no flip can precede the slot and be lost: [`create_tables`], then the
//! topics, then [`create_slot`], and [`create_functions`] last, since `fencepost.set_like` is how flips come about.
//! Each of them makes what is missing and returns its names: to run all again finishes what was half done.

mod migrations;
mod publication;
mod server;
mod slot;

pub use migrations::create_functions;
pub use slot::create_slot;

/// How many days ahead the outbox has partitions.
pub const OUTBOX_DAYS_AHEAD: i32 = 14;

/// Creates the tables, the outbox's partitions, and the publication of the outbox. Returns what was missing.
///
/// # Errors
/// When the server is too old or its `wal_level` is not `logical`, when a publication of the name publishes something
/// else, or when the schema is that of a newer build.
pub fn create_tables(client: &mut postgres::Client, publication: &str) -> anyhow::Result<Vec<String>> {
    server::check(client)?;
    let mut made = migrations::create_tables(client)?;
    made.extend(migrations::make_outbox_partitions(client)?);
    made.extend(publication::create(client, publication)?);
    Ok(made)
}
