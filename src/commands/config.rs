//! `fencepost config`: the configuration in effect, as a file that could be read again.

use std::io::Write;

use anyhow::Context;
use documented::DocumentedFields;
use fencepost_pipeline::PipelineConfig;
use fencepost_sources::log::KafkaConfig;
use fencepost_sources::relay::RelayConfig;
use toml_edit::{DocumentMut, Item, Table, Value};
use url::Url;

use crate::cli::ConfigCommand;
use crate::config::{Config, PostgresConfig};
use crate::operations::HttpConfig;

/// Stands in the place of a password.
const SECRET: &str = "*****";

pub(super) fn run(config: &Config, args: &ConfigCommand) -> anyhow::Result<()> {
    let mut document = effective(config)?;
    if !args.show_secrets {
        hide_secrets(document.as_table_mut());
    }
    write!(std::io::stdout(), "{document}").context("writing the configuration")
}

/// Every setting with its value, below a comment that says what it means.
fn effective(config: &Config) -> anyhow::Result<DocumentMut> {
    let text = toml::to_string(config).context("the configuration cannot be written as TOML")?;
    let mut document: DocumentMut = text.parse().context("the configuration was not written as TOML")?;
    for (index, (section, item)) in document.iter_mut().enumerate() {
        let Item::Table(table) = item else { continue };
        let docs = Config::get_field_docs(section.get()).unwrap_or_default();
        // A table that holds nothing but tables would go without a heading, and its comment with it.
        table.set_implicit(false);
        table.decor_mut().set_prefix(if index == 0 { comment(docs) } else { format!("\n{}", comment(docs)) });
        match section.get() {
            "postgres" => explain(table, |setting| PostgresConfig::get_field_docs(setting).ok()),
            "kafka" => explain(table, |setting| KafkaConfig::get_field_docs(setting).ok()),
            "relay" => explain(table, |setting| RelayConfig::get_field_docs(setting).ok()),
            "pipeline" => explain(table, |setting| PipelineConfig::get_field_docs(setting).ok()),
            "http" => explain(table, |setting| HttpConfig::get_field_docs(setting).ok()),
            "store" => {
                for (name, item) in table.iter_mut() {
                    if let (Some(store), Item::Table(table)) = (config.store.get(name.get()), item) {
                        table.decor_mut().set_prefix("\n");
                        explain(table, |setting| store.docs_of(setting));
                    }
                }
            }
            _ => {}
        }
    }
    Ok(document)
}

fn explain(table: &mut Table, docs: impl Fn(&str) -> Option<&'static str>) {
    for (mut setting, item) in table.iter_mut() {
        let Some(docs) = docs(setting.get()) else { continue };
        match item {
            Item::Table(table) => {
                table.set_implicit(false);
                table.decor_mut().set_prefix(format!("\n{}", comment(docs)));
            }
            _ => setting.leaf_decor_mut().set_prefix(comment(docs)),
        }
    }
}

fn comment(docs: &str) -> String {
    docs.lines().map(|line| format!("# {line}\n")).collect()
}

/// Puts asterisks in the place of passwords: in URLs, and in settings that are named so (`sasl.password`).
fn hide_secrets(table: &mut Table) {
    for (setting, item) in table.iter_mut() {
        let is_password = setting.get().ends_with("password");
        match item {
            Item::Table(table) => hide_secrets(table),
            Item::Value(Value::String(text)) => {
                let hidden =
                    if is_password { Some(SECRET.to_owned()) } else { without_password(text.value()) };
                if let Some(hidden) = hidden {
                    *item = toml_edit::value(hidden);
                }
            }
            _ => {}
        }
    }
}

/// The URL with its password hidden; `None` when the text is no URL, or has no password.
fn without_password(text: &str) -> Option<String> {
    let mut url = Url::parse(text).ok()?;
    url.password()?;
    url.set_password(Some(SECRET)).ok()?;
    Some(url.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_sinks::{RedisConfig, StoreConfig};

    fn config() -> Config {
        let mut config = Config::default();
        config.postgres.url = "postgres://fencepost:hunter2@db/likes".to_owned();
        config.kafka.properties.insert("sasl.password".to_owned(), "hunter2".to_owned());
        config.relay.window_ms = 250;
        let redis = RedisConfig { url: "redis://:hunter2@127.0.0.1/1".to_owned(), ..RedisConfig::default() };
        config.store.insert("redis".to_owned(), StoreConfig::Redis(redis));
        config
    }

    #[test]
    fn what_is_printed_reads_as_the_same_configuration() {
        let text = effective(&config()).expect("TOML").to_string();
        let again: Config = toml::from_str(&text).expect("a configuration");
        assert_eq!(toml::to_string(&again).expect("TOML"), toml::to_string(&config()).expect("TOML"));
    }

    #[test]
    fn every_setting_says_what_it_means() {
        let text = effective(&config()).expect("TOML").to_string();
        let lines: Vec<_> = text.lines().collect();
        for (above, line) in lines.iter().zip(&lines[1..]) {
            // Those under kafka.properties are librdkafka's, sections of stores are the operator's.
            let is_ours = line.contains(" = ") && !line.starts_with(['"', '#']);
            assert!(!is_ours || above.starts_with("# "), "{line:?} has no comment in:\n{text}");
        }
    }

    #[test]
    fn passwords_are_hidden_wherever_they_stand() {
        let mut document = effective(&config()).expect("TOML");
        hide_secrets(document.as_table_mut());
        let text = document.to_string();
        assert!(!text.contains("hunter2"), "{text}");
        assert!(text.contains("postgres://fencepost:*****@db/likes"), "{text}");
        assert_eq!(text.matches(SECRET).count(), 3, "{text}");
    }
}
