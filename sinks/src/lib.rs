//! Appliers and counter stores, and the fence between them.
//!
//! An applier brings a store from its fences to the end of the totals log. It offers the next window of a lane; the
//! store adds the totals and moves the lane's fence in one atomic write, only if the fence stands exactly at the
//! window before. There is no other state: a replay, a gap, a lost answer, a store that went back and a second applier
//! are all told by the fence alone.

pub mod admission;
mod applier;
mod config;
mod counts;
mod lane;
mod memory;
mod metrics;
mod offer;
mod postgres;
mod redis;
mod registry;
mod run;
mod store;
mod watch;

pub use applier::{Applier, ApplyError, Standing};
pub use config::StoreConfig;
pub use counts::{Count, CountsReader, Debts};
pub use memory::MemoryStore;
pub use metrics::ApplierMetrics;
pub use offer::{AMOUNT_LIMIT, AmountError, Offer};
pub use postgres::{ColumnId, PostgresConfig, PostgresStore};
pub use redis::{RedisConfig, RedisStore};
pub use run::run;
pub use store::{Buildable, Outcome, Store, StoreError};
