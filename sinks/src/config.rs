//! How a store is configured: one section `[store.NAME]`, by `kind`.

use serde::{Deserialize, Serialize};

use crate::redis::RedisConfig;

/// A store, by its `kind`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum StoreConfig {
    /// Counters in one Redis.
    Redis(RedisConfig),
}
