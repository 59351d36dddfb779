//! `fencepost migrate`: the only command that creates.

use anyhow::Context;
use postgres::{Client, NoTls};

use fencepost_sources::log::topics;

use crate::config::Config;

/// Tables and publication, topics, slot, and the functions last, so that no flip precedes the slot.
pub(super) fn run(config: &Config) -> anyhow::Result<()> {
    let mut client = Client::connect(&config.postgres.url, NoTls).context("connecting to Postgres")?;
    let mut made = fencepost_schema::create_tables(&mut client, &config.relay.publication)?;
    topics::create(&config.kafka)?;
    made.extend(fencepost_schema::create_slot(&mut client, &config.relay.slot)?);
    made.extend(fencepost_schema::create_functions(&mut client)?);
    tracing::info!(?made, topic_prefix = config.kafka.topic_prefix, "migrated");
    Ok(())
}
