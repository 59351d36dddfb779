use std::collections::BTreeMap;

use anyhow::Context;
use postgres::Client;
use postgres::fallible_iterator::FallibleIterator;

/// The number of liked edges of every item that has edges, in one snapshot.
///
/// # Errors
/// When the read did not complete: then there is no count at all, rather than a partial one.
pub(crate) fn count(client: &mut Client) -> anyhow::Result<BTreeMap<i64, i64>> {
    let query = "SELECT item_id, count(*) FILTER (WHERE liked) FROM fencepost.edges GROUP BY item_id";
    let mut rows = client.query_raw(query, std::iter::empty::<i64>()).context("reading the edges")?;
    let mut counts = BTreeMap::new();
    while let Some(row) = rows.next().context("reading the edges")? {
        counts.insert(row.get(0), row.get(1));
    }
    Ok(counts)
}

/// Whose write-ahead log it is. Positions compare within one source alone.
pub(crate) struct Source {
    pub(crate) system: String,
    pub(crate) timeline: u32,
}

/// Which source this is.
///
/// # Errors
/// When Postgres does not answer, or is a standby.
pub(crate) fn source(client: &mut Client) -> anyhow::Result<Source> {
    let query = "SELECT system_identifier::text, ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int8
        FROM pg_control_system()";
    let row = client.query_one(query, &[]).context("reading what Postgres is")?;
    let timeline = u32::try_from(row.get::<_, i64>(1)).context("the timeline of Postgres")?;
    Ok(Source { system: row.get(0), timeline })
}

/// The end of the write-ahead log, followed by a transaction of its own: once a window that ends at a commit has
/// reached the position returned, everything committed before this call is in that window or an earlier one.
///
/// # Errors
/// When Postgres does not answer.
pub(crate) fn mark(client: &mut Client) -> anyhow::Result<u64> {
    let query = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint";
    let end: i64 = client.query_one(query, &[]).context("reading the end of the write-ahead log")?.get(0);
    client
        .execute("SELECT pg_logical_emit_message(true, 'fencepost', 'audit')", &[])
        .context("marking the write-ahead log")?;
    u64::try_from(end).context("the write-ahead log has a negative end")
}
