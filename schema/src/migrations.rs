use anyhow::{Context, bail, ensure};
use postgres::Client;
use refinery::{Runner, Target};

use crate::OUTBOX_DAYS_AHEAD;

mod embedded {
    refinery::embed_migrations!("migrations");
}

/// refinery's history of what was applied.
const HISTORY_TABLE: &str = "fencepost.migrations";

/// The last migration that comes before the slot. All later ones come after it.
const LAST_OF_TABLES: i32 = 4;

/// Key of the advisory lock that lets one migration run at a time: "fencepos" in ASCII.
const LOCK_KEY: i64 = 0x6665_6e63_6570_6f73;

/// Applies the migrations of the tables; they make the functions that no flip comes from, too.
pub(crate) fn create_tables(client: &mut Client) -> anyhow::Result<Vec<String>> {
    locked(client, |client| {
        client.batch_execute("CREATE SCHEMA IF NOT EXISTS fencepost").context("creating schema fencepost")?;
        apply(client, Target::Version(LAST_OF_TABLES))
    })
}

/// Creates the functions that write flips, `set_like` and `set_likes`, and applies every later migration. Returns what
/// was missing.
///
/// # Errors
/// When [`create_tables`](crate::create_tables) has not been run, or the schema is that of a newer build.
pub fn create_functions(client: &mut Client) -> anyhow::Result<Vec<String>> {
    locked(client, |client| {
        let last = runner()
            .get_last_applied_migration(client)
            .context("reading fencepost.migrations; run fencepost migrate, which creates the tables first")?;
        ensure!(
            last.is_some_and(|last| last.version() >= LAST_OF_TABLES),
            "the tables are not complete; run fencepost migrate, which creates them first"
        );
        apply(client, Target::Latest)
    })
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

fn apply(client: &mut Client, target: Target) -> anyhow::Result<Vec<String>> {
    let report = runner().set_target(target).run(client).context(
        "applying the migrations; if the schema fencepost was made by a newer build, run fencepost migrate of that build",
    )?;
    Ok(report.applied_migrations().iter().map(|migration| format!("migration {migration}")).collect())
}

/// Runs `work` while no other migration runs in this database.
fn locked<T>(client: &mut Client, work: impl FnOnce(&mut Client) -> anyhow::Result<T>) -> anyhow::Result<T> {
    client
        .execute("SELECT pg_advisory_lock($1)", &[&LOCK_KEY])
        .context("waiting for another migration to end")?;
    let result = work(client);
    // A connection that broke has lost the lock already; then the work's own error tells more.
    let unlocked = client.execute("SELECT pg_advisory_unlock($1)", &[&LOCK_KEY]);
    match (result, unlocked) {
        (Ok(_), Err(error)) => {
            bail!("the connection broke after a migration: {error}; run fencepost migrate again")
        }
        (result, _) => result,
    }
}
