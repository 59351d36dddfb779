use anyhow::{Context, ensure};
use postgres::Client;
use refinery::{Runner, Target};

use crate::OUTBOX_DAYS_AHEAD;

mod embedded {
    refinery::embed_migrations!("migrations");
}

mod embedded_store {
    refinery::embed_migrations!("store");
}

/// refinery's history of what was applied.
const HISTORY_TABLE: &str = "fencepost.migrations";

/// The same of a store, in its schema, which may be that of the edges.
const STORE_HISTORY_TABLE: &str = "store_migrations";

/// The last migration that comes before the slot. All later ones come after it.
const LAST_OF_TABLES: i32 = 4;

/// Applies the migrations of the tables: all that no flip can come from.
pub(crate) fn create_tables(client: &mut Client) -> anyhow::Result<Vec<String>> {
    client.batch_execute("CREATE SCHEMA IF NOT EXISTS fencepost").context("creating schema fencepost")?;
    apply(client, runner().set_target(Target::Version(LAST_OF_TABLES)))
}

/// Applies all other migrations.
pub(crate) fn create_functions(client: &mut Client) -> anyhow::Result<Vec<String>> {
    let last = runner()
        .get_last_applied_migration(client)
        .context("reading fencepost.migrations; run fencepost migrate, which creates the tables first")?;
    ensure!(
        last.is_some_and(|last| last.version() >= LAST_OF_TABLES),
        "the tables are not complete; run fencepost migrate, which creates them first"
    );
    apply(client, runner())
}

/// Applies the migrations of a store to a schema, which is made if it is missing.
pub(crate) fn create_store(client: &mut Client, schema: &str) -> anyhow::Result<Vec<String>> {
    let context = || format!("creating schema {schema} of a store");
    let quoted: String = client.query_one("SELECT quote_ident($1)", &[&schema]).with_context(context)?.get(0);
    client.batch_execute(&format!("CREATE SCHEMA IF NOT EXISTS {quoted}")).with_context(context)?;
    let mut runner = embedded_store::migrations::runner();
    runner.set_migration_table_name(format!("{quoted}.{STORE_HISTORY_TABLE}"));
    client.batch_execute(&format!("SET search_path TO {quoted}")).with_context(context)?;
    let applied = apply(client, runner.set_grouped(true));
    client.batch_execute("RESET search_path").with_context(context)?;
    Ok(applied?.into_iter().map(|migration| format!("{migration} of the store in schema {schema}")).collect())
}

/// Makes the outbox's partitions that are missing.
pub(crate) fn make_outbox_partitions(client: &mut Client) -> anyhow::Result<Option<String>> {
    let made: i32 = client
        .query_one("SELECT fencepost.make_outbox_partitions($1)", &[&OUTBOX_DAYS_AHEAD])
        .context("making partitions of fencepost.outbox")?
        .get(0);
    Ok((made > 0).then(|| format!("{made} outbox partitions")))
}

fn runner() -> Runner {
    let mut runner = embedded::migrations::runner();
    runner.set_migration_table_name(HISTORY_TABLE);
    // In one transaction with its history: a migration is never half done.
    runner.set_grouped(true)
}

fn apply(client: &mut Client, runner: Runner) -> anyhow::Result<Vec<String>> {
    let report = runner.run(client).context(
        "applying the migrations; if a newer build has made the schema, run fencepost migrate of that build",
    )?;
    Ok(report.applied_migrations().iter().map(|migration| format!("migration {migration}")).collect())
}
