//! A connection to Postgres that is given up at the first error.

use std::collections::HashMap;
use std::time::Duration;

use documented::DocumentedFields;
use postgres::{Client, NoTls, Statement, Transaction};
use serde::{Deserialize, Serialize};

use super::failure::failure;
use crate::store::StoreError;

/// Where a Postgres store is, and how long to wait for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct PostgresConfig {
    /// Connection URL: `postgres://[user:password@]host[:port]/database`. It need not be the database of the edges.
    pub url: String,
    /// The schema that holds this store's tables. Stores of one database must not share it.
    pub schema: String,
    /// Milliseconds to wait for a connection.
    pub connect_timeout_ms: u64,
    /// Milliseconds that Postgres may take for a statement. A step may write 100,000 counters, each in another page of a
    /// slow disk.
    pub answer_timeout_ms: u64,
}

impl Default for PostgresConfig {
    fn default() -> Self {
        Self {
            url: "postgres://postgres@127.0.0.1:5432/postgres".to_owned(),
            schema: "fencepost".to_owned(),
            connect_timeout_ms: 2_000,
            answer_timeout_ms: 60_000,
        }
    }
}

/// Connects when needed. After any error the connection is dropped, and with it whatever transaction was open.
pub(crate) struct Connection {
    settings: postgres::Config,
    answer_timeout_ms: u64,
    place: String,
    open: Option<Session>,
}

impl Connection {
    /// Checks the configuration; connects only when first used.
    ///
    /// # Errors
    /// When the URL is no Postgres URL.
    pub(crate) fn new(config: &PostgresConfig) -> Result<Self, StoreError> {
        let mut settings: postgres::Config = config.url.parse().map_err(|error| {
            StoreError::Refused(format!(
                "not a postgres URL: {error}; expected postgres://user@host:port/database, see [store.NAME] url"
            ))
        })?;
        let answer_timeout_ms = config.answer_timeout_ms.max(1);
        let answer_timeout = Duration::from_millis(answer_timeout_ms);
        settings
            .application_name("fencepost store")
            .connect_timeout(Duration::from_millis(config.connect_timeout_ms.max(1)))
            .tcp_user_timeout(answer_timeout)
            .keepalives_idle(answer_timeout);
        let place = format!(
            "postgres store in schema {} of database {}",
            config.schema,
            settings.get_dbname().unwrap_or_default()
        );
        Ok(Self { settings, answer_timeout_ms, place, open: None })
    }

    /// Makes queries; the connection outlives them only if they succeed.
    pub(crate) fn with<T>(
        &mut self,
        queries: impl FnOnce(&mut Session) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut session = match self.open.take() {
            Some(session) => session,
            None => self.connect()?,
        };
        let answer = queries(&mut session)?;
        self.open = Some(session);
        Ok(answer)
    }

    /// Makes a change that has reached the disk when it returns: the registry of stores relies on it.
    pub(crate) fn durably<T>(
        &mut self,
        change: impl FnOnce(&mut Transaction<'_>) -> Result<T, postgres::Error>,
    ) -> Result<T, StoreError> {
        self.with(|session| {
            let all = || {
                let mut transaction = session.client.transaction()?;
                transaction.batch_execute("SET LOCAL synchronous_commit = on")?;
                let answer = change(&mut transaction)?;
                transaction.commit()?;
                Ok::<_, postgres::Error>(answer)
            };
            all().map_err(|error| session.failure(&error))
        })
    }

    fn connect(&self) -> Result<Session, StoreError> {
        let failed = |error| failure(&self.place, "[store.NAME]", &error);
        let mut client = self.settings.connect(NoTls).map_err(failed)?;
        // A process that is frozen within a transaction must not keep its lanes from another for ever.
        let timeout = self.answer_timeout_ms;
        let session = format!(
            "SET statement_timeout = {timeout}; SET idle_in_transaction_session_timeout = {timeout};
             SET idle_session_timeout = 0; SET synchronous_commit = off"
        );
        client.batch_execute(&session).map_err(failed)?;
        Ok(Session { client, place: self.place.clone(), prepared: HashMap::new() })
    }
}

/// An open connection, and what was prepared on it.
pub(crate) struct Session {
    pub(super) client: Client,
    place: String,
    prepared: HashMap<String, Statement>,
}

impl Session {
    /// A statement, prepared once. There are few of them.
    pub(super) fn prepare(&mut self, sql: String) -> Result<Statement, postgres::Error> {
        if let Some(statement) = self.prepared.get(&sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(&sql)?;
        self.prepared.insert(sql, statement.clone());
        Ok(statement)
    }

    /// What an error means for whoever waits for the store.
    pub(super) fn failure(&self, error: &postgres::Error) -> StoreError {
        failure(&self.place, "[store.NAME]", error)
    }
}
