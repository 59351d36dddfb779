use documented::DocumentedFields;
use serde::{Deserialize, Serialize};

use super::Pace;

/// How the relay reads Postgres and how it paces windows.
#[derive(Clone, Debug, Serialize, Deserialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct RelayConfig {
    /// The logical replication slot that keeps what has not been relayed. `fencepost migrate` creates it.
    pub slot: String,
    /// The publication of the outbox. `fencepost migrate` creates it.
    pub publication: String,
    /// Kafka's transactional id, which fences an earlier relay of the same deployment. Empty: the topic prefix
    /// followed by `relay`.
    pub transactional_id: String,
    /// A window is closed when this much time has passed since the one before, in milliseconds: 100–10,000.
    pub window_ms: u64,
    /// A window never holds more events than this; everything downstream is bounded by it: 1–1,000,000.
    pub window_events_max: u64,
    /// How often an empty transaction is written to Postgres, so that windows close while nothing else happens, in
    /// milliseconds. It is never longer than a window.
    pub heartbeat_ms: u64,
    /// The stream is given up and started anew when nothing at all has arrived for this long, in milliseconds. Doubled
    /// each time in a row, since Postgres is silent while it decodes a very large transaction of other tables.
    pub silence_ms: u64,
    /// A partition of the outbox is dropped once its day has ended this many days ago, and the log has all of it: 1–3,650.
    pub outbox_retention_days: u32,
}

impl Default for RelayConfig {
    fn default() -> Self {
        Self {
            slot: "fencepost".to_owned(),
            publication: "fencepost".to_owned(),
            transactional_id: String::new(),
            window_ms: 1_000,
            window_events_max: 200_000,
            heartbeat_ms: 1_000,
            silence_ms: 30_000,
            outbox_retention_days: 7,
        }
    }
}

impl RelayConfig {
    /// The Kafka transactional id.
    pub fn transactional_id(&self, topic_prefix: &str) -> String {
        if self.transactional_id.is_empty() {
            format!("{topic_prefix}relay")
        } else {
            self.transactional_id.clone()
        }
    }

    /// How often to write an empty transaction, in milliseconds.
    pub fn heartbeat_ms(&self) -> u64 {
        self.heartbeat_ms.min(self.window_ms)
    }

    /// When windows close.
    ///
    /// # Errors
    /// Names the field that is out of its range.
    pub fn pace(&self) -> anyhow::Result<Pace> {
        for (name, value, range) in [
            ("window_ms", self.window_ms, 100..=10_000),
            ("window_events_max", self.window_events_max, 1..=1_000_000),
            ("heartbeat_ms", self.heartbeat_ms, 10..=10_000),
            ("silence_ms", self.silence_ms, 1_000..=3_600_000),
            ("outbox_retention_days", self.outbox_retention_days.into(), 1..=3_650),
        ] {
            anyhow::ensure!(
                range.contains(&value),
                "relay.{name} is {value}: set it to {}–{}",
                range.start(),
                range.end()
            );
        }
        // They are spliced into the replication protocol's commands, which know no parameters.
        let plain = |name: &str| {
            (1..=63).contains(&name.len())
                && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
        };
        for (name, value) in [("slot", &self.slot), ("publication", &self.publication)] {
            anyhow::ensure!(plain(value), "relay.{name} is {value:?}: use 1 to 63 of a to z, 0 to 9 and _");
        }
        Ok(Pace { window_ms: self.window_ms, events_max: self.window_events_max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_in_range_and_others_are_named() {
        let config = RelayConfig::default();
        assert_eq!(config.pace().expect("defaults").window_ms, 1_000);
        assert_eq!(config.transactional_id("fencepost."), "fencepost.relay");
        for (wrong, field) in [
            (RelayConfig { window_ms: 99, ..config.clone() }, "window_ms"),
            (RelayConfig { window_events_max: 0, ..config.clone() }, "window_events_max"),
            (RelayConfig { outbox_retention_days: 0, ..config.clone() }, "outbox_retention_days"),
            (RelayConfig { slot: "a b".to_owned(), ..config.clone() }, "slot"),
            (RelayConfig { publication: String::new(), ..config.clone() }, "publication"),
        ] {
            let error = wrong.pace().expect_err("out of range").to_string();
            assert!(error.contains(field), "{error}");
        }
    }
}
