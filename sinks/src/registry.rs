//! The registry of stores in Postgres: which exist, and the life of each.

use postgres::{Client, Config, NoTls};

use crate::postgres::failure;
use crate::store::StoreError;

/// The table `fencepost.stores`.
pub(crate) struct Registry(Client);

impl Registry {
    /// Connects.
    pub(crate) fn open(url: &str) -> Result<Self, StoreError> {
        let config: Config = url.parse().map_err(|error| {
            StoreError::Refused(format!("[postgres] url is no connection URL: {error}; correct it"))
        })?;
        config.connect(NoTls).map(Self).map_err(|error| classify(&error))
    }

    /// Keeps others from admitting or building this store for as long as the registry is open. Somebody who built it
    /// while another clears it would go on from fences whose counters are gone.
    pub(crate) fn hold(&mut self, name: &str) -> Result<(), StoreError> {
        let query = "SELECT pg_try_advisory_lock('fencepost.stores'::regclass::oid::integer, hashtext($1))";
        let row = self.0.query_one(query, &[&name]).map_err(|error| classify(&error))?;
        if row.get(0) {
            return Ok(());
        }
        Err(StoreError::Transient(format!("another process is admitting or building store {name}")))
    }

    /// The generation of a store, if it is registered.
    pub(crate) fn generation(&mut self, name: &str) -> Result<Option<u64>, StoreError> {
        let row = self
            .0
            .query_opt("SELECT generation FROM fencepost.stores WHERE name = $1", &[&name])
            .map_err(|error| classify(&error))?;
        row.map(|row| {
            let generation: i64 = row.get(0);
            u64::try_from(generation).map_err(|_| {
                StoreError::Refused(format!(
                    "fencepost.stores says generation {generation} of store {name}; it must be above 0: correct the row"
                ))
            })
        })
        .transpose()
    }

    /// Registers a store, or its next generation.
    pub(crate) fn register(&mut self, name: &str, generation: u64) -> Result<(), StoreError> {
        let generation = i64::try_from(generation).map_err(|_| {
            StoreError::Refused(format!(
                "store {name} has the impossible generation {generation}; rebuild it"
            ))
        })?;
        self.0
            .execute(
                "INSERT INTO fencepost.stores (name, generation) VALUES ($1, $2)
                 ON CONFLICT (name) DO UPDATE SET generation = excluded.generation
                 WHERE stores.generation < excluded.generation",
                &[&name, &generation],
            )
            .map(drop)
            .map_err(|error| classify(&error))
    }
}

fn classify(error: &postgres::Error) -> StoreError {
    failure("registry of stores in postgres", "[postgres]", error)
}
