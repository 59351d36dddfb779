//! How a store is configured: one section `[store.NAME]`, by `kind`.

use documented::DocumentedFields;
use serde::{Deserialize, Serialize};

use crate::postgres::PostgresConfig;
use crate::redis::RedisConfig;

/// A store, by its `kind`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum StoreConfig {
    /// Counters in one Redis.
    Redis(RedisConfig),
    /// Counters in one schema of a Postgres database.
    Postgres(PostgresConfig),
}

impl StoreConfig {
    /// What a setting of this kind of store means; `None` when there is no such setting.
    pub fn docs_of(&self, setting: &str) -> Option<&'static str> {
        match (setting, self) {
            ("kind", _) => Some("What the store is kept in: redis or postgres."),
            (_, Self::Redis(_)) => RedisConfig::get_field_docs(setting).ok(),
            (_, Self::Postgres(_)) => PostgresConfig::get_field_docs(setting).ok(),
        }
    }
}
