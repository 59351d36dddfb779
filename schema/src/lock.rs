use anyhow::{Context, bail};
use postgres::Client;

/// Key of the advisory lock: "fencepos" in ASCII.
const KEY: i64 = 0x6665_6e63_6570_6f73;

/// Runs `work` while no one else migrates this database.
pub(crate) fn hold<T>(
    client: &mut Client,
    work: impl FnOnce(&mut Client) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    client.execute("SELECT pg_advisory_lock($1)", &[&KEY]).context("waiting for another migration to end")?;
    let result = work(client);
    // A connection that broke has lost the lock with it; the work's own error tells more.
    let unlocked = client.execute("SELECT pg_advisory_unlock($1)", &[&KEY]);
    match (result, unlocked) {
        (Ok(_), Err(error)) => {
            bail!("the connection broke after a migration: {error}; run fencepost migrate again")
        }
        (result, _) => result,
    }
}
