//! The configuration: one `fencepost.toml`, then the environment, then flags. Unknown keys are errors.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail};
use documented::DocumentedFields;
use figment::Figment;
use figment::providers::{Env, Format, Toml};
use serde::{Deserialize, Serialize};

use fencepost_pipeline::PipelineConfig;
use fencepost_sinks::StoreConfig;
use fencepost_sources::log::KafkaConfig;
use fencepost_sources::relay::RelayConfig;

use crate::cli::ConfigArgs;
use crate::operations::HttpConfig;

/// The file that is read when none is named.
const DEFAULT_FILE: &str = "fencepost.toml";

/// Variables with the prefix that are flags' own, no keys.
const FLAG_VARIABLES: [&str; 3] = ["config", "log", "log_format"];

/// Everything that can be configured.
#[derive(Clone, Debug, Default, Deserialize, Serialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// The database that holds edges and outbox.
    pub(crate) postgres: PostgresConfig,
    /// Where the log lives, and what its topics are called.
    pub(crate) kafka: KafkaConfig,
    /// How the relay reads Postgres and how it paces windows.
    pub(crate) relay: RelayConfig,
    /// How the pipeline runs.
    pub(crate) pipeline: PipelineConfig,
    /// Metrics and health over HTTP.
    pub(crate) http: HttpConfig,
    /// The stores by name, each in a section of its own: [store.NAME].
    pub(crate) store: BTreeMap<String, StoreConfig>,
}

/// The database that holds edges and outbox.
#[derive(Clone, Debug, Deserialize, Serialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PostgresConfig {
    /// Connection URL.
    pub(crate) url: String,
}

impl Default for PostgresConfig {
    fn default() -> Self {
        Self { url: "postgres://postgres@127.0.0.1:5432/postgres".to_owned() }
    }
}

impl Config {
    /// Reads file, environment and flags; later ones win.
    ///
    /// # Errors
    /// When a file cannot be read, a key is unknown, or a value is of another type; the message names it.
    pub(crate) fn load(args: &ConfigArgs) -> anyhow::Result<Self> {
        let mut figment = Figment::new();
        match &args.config {
            Some(file) => figment = figment.merge(Toml::file_exact(file)),
            None if Path::new(DEFAULT_FILE).exists() => {
                figment = figment.merge(Toml::file_exact(DEFAULT_FILE))
            }
            None => {}
        }
        figment = figment.merge(Env::prefixed("FENCEPOST_").ignore(&FLAG_VARIABLES).split("__"));
        for setting in &args.set {
            let Some((key, value)) = setting.split_once('=') else {
                bail!("--set {setting}: expected KEY=VALUE, e.g. --set relay.window_ms=250");
            };
            figment = figment.merge((key, parse_value(value)));
        }
        figment.extract().context("reading the configuration")
    }

    /// The configuration of a store.
    ///
    /// # Errors
    /// When no store has the name; the message lists those there are.
    pub(crate) fn store(&self, name: &str) -> anyhow::Result<&StoreConfig> {
        self.store.get(name).with_context(|| {
            let known: Vec<_> = self.store.keys().map(String::as_str).collect();
            format!(
                "no store named {name:?} is configured; there are: [{}]; add a section [store.{name}]",
                known.join(", ")
            )
        })
    }
}

/// A flag's value, typed as it would be in the environment.
fn parse_value(text: &str) -> figment::value::Value {
    text.parse().unwrap_or_else(|never| match never {})
}

#[cfg(test)]
mod tests {
    use super::*;
    use figment::Jail;

    fn args(config: Option<&str>, set: &[&str]) -> ConfigArgs {
        ConfigArgs { config: config.map(Into::into), set: set.iter().map(ToString::to_string).collect() }
    }

    #[test]
    #[allow(clippy::result_large_err)]
    fn flags_win_over_environment_over_file() {
        Jail::expect_with(|jail| {
            jail.create_file(
                "a.toml",
                "[relay]\nwindow_ms = 100\n[pipeline]\nworkers = 3\n[kafka]\ntopic_prefix = 'x.'\n",
            )?;
            jail.set_env("FENCEPOST_RELAY__WINDOW_MS", "200");
            jail.set_env("FENCEPOST_KAFKA__TOPIC_PREFIX", "y.");
            let config =
                Config::load(&args(Some("a.toml"), &["relay.window_ms=300"])).expect("a good configuration");
            assert_eq!(config.relay.window_ms, 300);
            assert_eq!(config.kafka.topic_prefix, "y.");
            assert_eq!(config.pipeline.workers, 3);
            Ok(())
        });
    }

    #[test]
    #[allow(clippy::result_large_err)]
    fn unknown_keys_are_errors_that_name_the_key() {
        Jail::expect_with(|jail| {
            jail.create_file("a.toml", "[relay]\nwindow_msec = 100\n")?;
            for bad in [
                Config::load(&args(Some("a.toml"), &[])),
                Config::load(&args(None, &["relay.window_msec=1"])),
                Config::load(&args(Some("missing.toml"), &[])),
                Config::load(&args(None, &["relay.window_ms"])),
            ] {
                let message = format!("{:#}", bad.expect_err("a bad configuration"));
                assert!(
                    ["window_msec", "missing.toml", "KEY=VALUE"].iter().any(|part| message.contains(part)),
                    "{message}"
                );
            }
            jail.set_env("FENCEPOST_RELAYS__X", "1");
            let message = format!("{:#}", Config::load(&args(None, &[])).expect_err("a bad variable"));
            assert!(message.contains("relays"), "{message}");
            Ok(())
        });
    }
}
