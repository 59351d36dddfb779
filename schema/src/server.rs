use anyhow::{Context, ensure};
use postgres::Client;

/// The oldest Postgres that the migrations run on: they use SQL function bodies, and publications by way of the root
/// that later versions only add to.
const VERSION_MIN: i32 = 150_000;

/// Refuses a server that cannot feed a relay.
pub(crate) fn check(client: &mut Client) -> anyhow::Result<()> {
    let row = client
        .query_one(
            "SELECT current_setting('server_version_num')::integer, current_setting('server_version'), \
             current_setting('wal_level')",
            &[],
        )
        .context("reading the settings of Postgres")?;
    let (number, version, wal_level): (i32, String, String) = (row.get(0), row.get(1), row.get(2));
    ensure!(
        number >= VERSION_MIN,
        "Postgres is version {version}, at least 15 is needed; upgrade the server"
    );
    ensure!(
        wal_level == "logical",
        "wal_level of Postgres is {wal_level}, and nothing can be read from its log; \
         run ALTER SYSTEM SET wal_level = 'logical', then restart Postgres"
    );
    Ok(())
}
