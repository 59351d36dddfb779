//! `fencepost migrate`: the only command that creates.

use anyhow::Context;
use postgres::{Client, NoTls};

use fencepost_sinks::StoreConfig;
use fencepost_sources::log::topics;

use crate::config::Config;

/// Tables and publication, topics, slot, and then the functions, so that no flip precedes the slot. Stores last: one
/// that is away keeps nobody from writing.
pub(super) fn run(config: &Config) -> anyhow::Result<()> {
    let mut client = Client::connect(&config.postgres.url, NoTls).context("connecting to Postgres")?;
    let mut made = fencepost_schema::create_tables(&mut client, &config.relay.publication)?;
    topics::create(&config.kafka)?;
    made.extend(fencepost_schema::create_slot(&mut client, &config.relay.slot)?);
    made.extend(fencepost_schema::create_functions(&mut client)?);
    for (name, store) in &config.store {
        let StoreConfig::Postgres(store) = store else { continue };
        let mut client =
            Client::connect(&store.url, NoTls).with_context(|| format!("connecting to store {name}"))?;
        made.extend(fencepost_schema::create_store(&mut client, &store.schema)?);
    }
    tracing::info!(?made, topic_prefix = config.kafka.topic_prefix, "migrated");
    Ok(())
}
