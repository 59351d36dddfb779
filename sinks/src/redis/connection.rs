//! A connection to Redis that is given up at the first error.

use std::time::Duration;

use documented::DocumentedFields;
use redis::{ErrorKind, InfoDict, RedisError, ServerErrorKind};
use serde::{Deserialize, Serialize};

use crate::store::StoreError;

/// Where a Redis store is, and how long to wait for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct RedisConfig {
    /// Connection URL: `redis://[user:password@]host[:port][/database]` or `redis+unix:///path`.
    pub url: String,
    /// What every key of this store begins with. Stores of one Redis must not share it.
    pub key_prefix: String,
    /// Milliseconds to wait for a connection.
    pub connect_timeout_ms: u64,
    /// Milliseconds to wait for an answer. A step may write 100,000 counters, which takes Redis a quarter of a second.
    pub answer_timeout_ms: u64,
}

impl Default for RedisConfig {
    fn default() -> Self {
        Self {
            url: "redis://127.0.0.1:6379".to_owned(),
            key_prefix: "likes:".to_owned(),
            connect_timeout_ms: 2_000,
            answer_timeout_ms: 10_000,
        }
    }
}

/// Connects when needed. After any error the connection is dropped: an answer that comes late would be taken for the
/// answer to the next question.
pub(crate) struct Connection {
    client: redis::Client,
    config: RedisConfig,
    open: Option<redis::Connection>,
}

impl Connection {
    /// Checks the configuration; connects only when first used.
    ///
    /// # Errors
    /// When the URL is no Redis URL.
    pub(crate) fn new(config: &RedisConfig) -> Result<Self, StoreError> {
        let client = redis::Client::open(config.url.as_str()).map_err(|error| {
            StoreError::Refused(format!(
                "not a redis URL: {error}; expected redis://host:port, see [store.NAME] url"
            ))
        })?;
        Ok(Self { client, config: config.clone(), open: None })
    }

    /// Runs commands; the connection outlives them only if they succeed.
    pub(crate) fn with<T>(
        &mut self,
        commands: impl FnOnce(&mut redis::Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut connection = match self.open.take() {
            Some(connection) => connection,
            None => self.connect()?,
        };
        let answer = commands(&mut connection)?;
        self.open = Some(connection);
        Ok(answer)
    }

    fn connect(&self) -> Result<redis::Connection, StoreError> {
        let timeout = Duration::from_millis(self.config.connect_timeout_ms.max(1));
        let mut connection =
            self.client.get_connection_with_timeout(timeout).map_err(|error| self.named(&error))?;
        let timeout = Some(Duration::from_millis(self.config.answer_timeout_ms.max(1)));
        connection.set_read_timeout(timeout)?;
        connection.set_write_timeout(timeout)?;
        let info: InfoDict = redis::cmd("INFO").query(&mut connection)?;
        self.check(&info)?;
        Ok(connection)
    }

    /// Refuses a Redis that would lose counters by design.
    fn check(&self, info: &InfoDict) -> Result<(), StoreError> {
        let address = &self.client.get_connection_info().addr();
        if info.get::<u8>("cluster_enabled") == Some(1) {
            return Err(StoreError::Refused(format!(
                "redis at {address} is a cluster, which this build does not write; point the store at a single redis"
            )));
        }
        match info.get::<String>("maxmemory_policy").as_deref() {
            Some("noeviction") => Ok(()),
            Some(policy) => Err(StoreError::Refused(format!(
                "redis at {address} may evict counters: maxmemory-policy is {policy}; run \
                 `redis-cli config set maxmemory-policy noeviction` and set it in redis.conf"
            ))),
            None => Err(StoreError::Refused(format!(
                "redis at {address} does not say its maxmemory-policy (INFO memory), so it may evict counters; allow \
                 INFO for this user"
            ))),
        }
    }

    fn named(&self, error: &RedisError) -> StoreError {
        let address = &self.client.get_connection_info().addr();
        match classify(error) {
            StoreError::Transient(text) => StoreError::Transient(format!("redis at {address}: {text}")),
            StoreError::Refused(text) => StoreError::Refused(format!("redis at {address}: {text}")),
        }
    }
}

impl From<RedisError> for StoreError {
    fn from(error: RedisError) -> Self {
        classify(&error)
    }
}

/// What does not pass by waiting is refused; all else (time-outs, full memory, replicas, loading) passes.
fn classify(error: &RedisError) -> StoreError {
    let refused = match error.kind() {
        ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig => true,
        ErrorKind::Server(ServerErrorKind::NoPerm | ServerErrorKind::CrossSlot) => true,
        ErrorKind::Server(ServerErrorKind::ResponseError) => {
            // "ERR" alone is anything: of these only a full house and a killed script pass.
            let detail = error.detail().unwrap_or_default();
            !(detail.contains("max number of clients") || detail.contains("killed by user"))
        }
        _ => matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "WRONGTYPE" | "NOPROTO")),
    };
    if refused {
        StoreError::Refused(format!("redis refuses: {error}; check url, user and permissions of the store"))
    } else {
        StoreError::Transient(error.to_string())
    }
}
