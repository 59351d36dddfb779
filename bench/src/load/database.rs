use std::error::Error as _;
use std::io;
use std::time::Duration;

use anyhow::Context;
use postgres::error::SqlState;
use postgres::{Client, Config, NoTls, Statement};

use super::calls::Call;

/// A server that is gone is given up on after this long; the call is then made again.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How to reach the database.
pub(crate) fn config(url: &str) -> anyhow::Result<Config> {
    let mut config: Config = url.parse().context("postgres.url is no connection URL; correct it")?;
    config.application_name("fencepost load");
    config.connect_timeout(CONNECT_TIMEOUT);
    Ok(config)
}

/// A connection, with the call prepared.
pub(crate) struct Connection {
    client: Client,
    set_like: Statement,
    set_likes: Statement,
}

impl Connection {
    pub(crate) fn open(config: &Config) -> Result<Self, postgres::Error> {
        let mut client = config.connect(NoTls)?;
        let set_like =
            client.prepare("SELECT changed::integer::bigint FROM fencepost.set_like($1, $2, $3)")?;
        let set_likes = client.prepare("SELECT count(*) FROM fencepost.set_likes($1, $2, $3)")?;
        Ok(Self { client, set_like, set_likes })
    }

    /// Makes the call, and returns how many edges it changed.
    pub(crate) fn make(&mut self, call: &Call) -> Result<u64, postgres::Error> {
        let Call { items, users, likes } = call;
        let row = match (&items[..], &users[..], &likes[..]) {
            ([item], [user], [liked]) => self.client.query_one(&self.set_like, &[item, user, liked])?,
            _ => self.client.query_one(&self.set_likes, &[items, users, likes])?,
        };
        Ok(u64::try_from(row.get::<_, i64>(0)).expect("a count is not negative"))
    }
}

/// Whether the same call may succeed later: the connection was lost or the server is not ready, or it chose this call
/// to give way to others.
pub(crate) fn is_transient(error: &postgres::Error) -> bool {
    let lost = error.is_closed() || error.source().is_some_and(|source| source.is::<io::Error>());
    lost || error.code().is_some_and(|code| {
        code.code().starts_with("08")
            || [
                SqlState::ADMIN_SHUTDOWN,
                SqlState::CRASH_SHUTDOWN,
                SqlState::CANNOT_CONNECT_NOW,
                SqlState::TOO_MANY_CONNECTIONS,
                SqlState::T_R_SERIALIZATION_FAILURE,
                SqlState::T_R_DEADLOCK_DETECTED,
            ]
            .contains(code)
    })
}
