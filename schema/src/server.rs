use anyhow::{Context, ensure};
use postgres::Client;

/// The oldest Postgres that the migrations run on: they use SQL function bodies, and publications by way of the root
/// that later versions only add to.
const VERSION_MIN: i32 = 150_000;

/// Refuses a server that is too old for the migrations.
pub(crate) fn check_version(client: &mut Client) -> anyhow::Result<()> {
    let settings = "SELECT current_setting('server_version_num')::integer, current_setting('server_version')";
    let row = client.query_one(settings, &[]).context("reading the version of Postgres")?;
    let (number, version): (i32, String) = (row.get(0), row.get(1));
    ensure!(
        number >= VERSION_MIN,
        "Postgres is version {version}, at least 15 is needed; upgrade the server"
    );
    Ok(())
}

/// Refuses a server that cannot feed a relay.
pub(crate) fn check(client: &mut Client) -> anyhow::Result<()> {
    check_version(client)?;
    let row = client.query_one("SHOW wal_level", &[]).context("reading the settings of Postgres")?;
    let wal_level: String = row.get(0);
    ensure!(
        wal_level == "logical",
        "wal_level of Postgres is {wal_level}, and nothing can be read from its log; \
         run ALTER SYSTEM SET wal_level = 'logical', then restart Postgres"
    );
    Ok(())
}
