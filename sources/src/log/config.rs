use std::collections::BTreeMap;
use std::time::Duration;

use documented::DocumentedFields;
use rdkafka::ClientConfig;
use serde::{Deserialize, Serialize};

/// Requests to the brokers that somebody waits for (metadata, offsets) are given up after this long.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the log lives, and what its topics are called.
#[derive(Clone, Debug, Serialize, Deserialize, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct KafkaConfig {
    /// Brokers to ask for the others: `host:port`, separated by commas.
    pub bootstrap_servers: String,
    /// What the names of the topics start with; the consumer group's and the transactional id's too.
    pub topic_prefix: String,
    /// The totals topic, when it is another than the prefix names: a second pipeline beside the first reads the same
    /// flips and writes totals of its own. Empty: `{topic_prefix}totals`.
    pub totals_topic: String,
    /// Partitions of the flips topic. Used when it is created, and fixed from then on.
    pub flips_partitions: u32,
    /// Replicas of each partition. Used when topics are created.
    pub replication_factor: u16,
    /// Further properties of librdkafka, for every client: security, tuning. They win over Fencepost's own, except
    /// those that exactness depends on.
    pub properties: BTreeMap<String, String>,
}

impl Default for KafkaConfig {
    fn default() -> Self {
        Self {
            bootstrap_servers: "127.0.0.1:9092".to_owned(),
            topic_prefix: "fencepost.".to_owned(),
            totals_topic: String::new(),
            flips_partitions: 8,
            replication_factor: 1,
            properties: BTreeMap::new(),
        }
    }
}

/// Whether a consumer is told when it has read all that a partition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartitionEnd {
    /// It is.
    Reported,
    /// It is not.
    Silent,
}

impl KafkaConfig {
    /// The topic of events and markers.
    pub fn flips_topic(&self) -> String {
        self.topic("flips")
    }

    /// The topic of the history of windows.
    pub fn windows_topic(&self) -> String {
        self.topic("windows")
    }

    /// The topic of totals, a partition a lane.
    pub fn totals_topic(&self) -> String {
        if self.totals_topic.is_empty() { self.topic("totals") } else { self.totals_topic.clone() }
    }

    /// The topic of records that could not be counted, with the reason.
    pub fn dead_letters_topic(&self) -> String {
        self.topic("dead-letters")
    }

    /// The consumer group under which readers of the flips topic commit what they have done, for lag tools only.
    pub fn group(&self) -> String {
        self.topic("pipeline")
    }

    fn topic(&self, name: &str) -> String {
        format!("{}{name}", self.topic_prefix)
    }

    /// Settings of a client that only asks and administers.
    pub(crate) fn client(&self) -> ClientConfig {
        self.with(&[], &[])
    }

    /// Settings of a consumer whose partitions are assigned by hand. It never falls back to another offset than the
    /// one it was given, sees committed transactions only, and prefetches no more than a few megabytes a partition.
    /// `tuning` comes on top, and gives way to the operator's properties as well.
    pub(crate) fn consumer(&self, end: PartitionEnd, tuning: &[(&str, &str)]) -> ClientConfig {
        let eof = if end == PartitionEnd::Reported { "true" } else { "false" };
        let group = self.group();
        let defaults = [
            ("group.id", group.as_str()),
            ("fetch.queue.backoff.ms", "1"),
            ("fetch.wait.max.ms", "250"),
            ("queued.min.messages", "50000"),
            ("queued.max.messages.kbytes", "8192"),
        ];
        self.with(
            &[&defaults[..], tuning].concat(),
            &[
                ("isolation.level", "read_committed"),
                ("enable.auto.commit", "false"),
                ("enable.auto.offset.store", "false"),
                ("auto.offset.reset", "error"),
                ("enable.partition.eof", eof),
                ("check.crcs", "true"),
            ],
        )
    }

    /// Settings of an idempotent producer: acknowledged by all replicas, in order, without repeats of its own. `tuning` comes
    /// on top, and gives way to the operator's properties as well.
    pub(crate) fn producer(&self, tuning: &[(&str, &str)]) -> ClientConfig {
        self.with(
            &[&[("compression.type", "lz4"), ("linger.ms", "2")][..], tuning].concat(),
            &[("enable.idempotence", "true"), ("acks", "all")],
        )
    }

    /// Defaults, then the operator's properties, then what exactness depends on.
    fn with(&self, defaults: &[(&str, &str)], fixed: &[(&str, &str)]) -> ClientConfig {
        let mut client = ClientConfig::new();
        // The default of ten seconds would cost as much freshness after each restart of a broker.
        client.set("client.id", "fencepost").set("reconnect.backoff.max.ms", "1000");
        let configured = self.properties.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let bootstrap = [("bootstrap.servers", self.bootstrap_servers.as_str())];
        for (key, value) in
            defaults.iter().copied().chain(configured).chain(bootstrap).chain(fixed.iter().copied())
        {
            client.set(key, value);
        }
        client
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_win_over_tuning_but_not_over_exactness() {
        let properties = [("client.id", "mine"), ("isolation.level", "read_uncommitted"), ("acks", "0")];
        let config = KafkaConfig {
            properties: properties.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            ..KafkaConfig::default()
        };
        let consumer = config.consumer(PartitionEnd::Reported, &[("client.id", "ours")]);
        assert_eq!(consumer.get("client.id"), Some("mine"));
        assert_eq!(consumer.get("isolation.level"), Some("read_committed"));
        assert_eq!(config.producer(&[]).get("acks"), Some("all"));
    }

    #[test]
    fn names_follow_from_the_prefix() {
        let config = KafkaConfig { topic_prefix: "a.".to_owned(), ..KafkaConfig::default() };
        assert_eq!(config.dead_letters_topic(), "a.dead-letters");
        assert_eq!(config.group(), "a.pipeline");
    }
}
