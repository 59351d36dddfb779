use anyhow::{Context, ensure};
use postgres::Client;

/// Creates the slot, unless it is there and the relay's.
pub(crate) fn create(client: &mut Client, slot: &str) -> anyhow::Result<Option<String>> {
    let context = || format!("creating replication slot {slot}");
    let present = client
        .query_opt(
            "SELECT coalesce(plugin, 'none'), coalesce(database, 'none'), current_database()::text \
             FROM pg_replication_slots WHERE slot_name = $1",
            &[&slot],
        )
        .with_context(context)?;
    if let Some(row) = present {
        let (plugin, database, own): (String, String, String) = (row.get(0), row.get(1), row.get(2));
        ensure!(
            plugin == "pgoutput" && database == own,
            "replication slot {slot} has plugin {plugin} and database {database}, not pgoutput and {own}; \
             set relay.slot to another name, or, if nothing needs it, run: SELECT pg_drop_replication_slot('{slot}')"
        );
        return Ok(None);
    }
    tracing::info!(
        slot,
        "creating the replication slot; if this takes long, end the transactions that are open"
    );
    client
        .execute("SELECT pg_create_logical_replication_slot($1, 'pgoutput')", &[&slot])
        .with_context(context)?;
    Ok(Some(format!("replication slot {slot}")))
}
