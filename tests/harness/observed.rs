use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use fencepost_model::placement::LANES;
use fencepost_model::{Micros, WindowId, WindowRecord};
use fencepost_sources::log::windows::{self, WindowsReader};
use fencepost_sources::log::{KafkaConfig, topics};
use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};
use redis::Commands;

use super::deployment::Deployment;
use super::process::Process;
use super::stack::Stack;
use super::wait::wait_until;

/// What can be seen of a deployment from outside.
impl Deployment {
    /// Its log.
    pub(crate) fn kafka(&self) -> KafkaConfig {
        KafkaConfig {
            bootstrap_servers: Stack::get().bootstrap_servers(),
            topic_prefix: self.topic(""),
            ..KafkaConfig::default()
        }
    }

    /// Gives it another totals topic, empty, for the processes started from now on.
    pub(crate) fn beside(&mut self, name: &str) -> KafkaConfig {
        let kafka = self.kafka_beside(name);
        self.set("kafka.totals_topic", kafka.totals_topic.clone());
        kafka
    }

    /// Starts a second pipeline that reads the same flips, with a checkpoint and a totals log of its own.
    pub(crate) fn spawn_reference(&self) -> (KafkaConfig, Process) {
        let kafka = self.kafka_beside("reference-totals");
        let totals = format!("kafka.totals_topic={}", kafka.totals_topic);
        let checkpoint = self.checkpoint_dir().with_extension("reference");
        let checkpoint = format!("pipeline.checkpoint_dir={}", checkpoint.display());
        (kafka, self.spawn(&["pipeline", "--set", &totals, "--set", &checkpoint]))
    }

    fn kafka_beside(&self, name: &str) -> KafkaConfig {
        let kafka = KafkaConfig { totals_topic: self.topic(name), ..self.kafka() };
        topics::create(&kafka).expect("the broker is up");
        kafka
    }

    /// Makes the broker refuse, or accept again, what is written to the totals topic: it asks for more replicas than
    /// there are. Producers try again for as long as it does.
    pub(crate) fn refuse_totals(&self, refuse: bool) {
        let topic = self.topic("totals");
        let replicas = if refuse { "2" } else { "1" };
        let config = AlterConfig::new(ResourceSpecifier::Topic(&topic)).set("min.insync.replicas", replicas);
        let mut client = ClientConfig::new();
        client.set("bootstrap.servers", Stack::get().bootstrap_servers());
        let admin: AdminClient<DefaultClientContext> = client.create().expect("a client");
        let altered = pollster::block_on(admin.alter_configs([&config], &AdminOptions::new()))
            .expect("the broker is up");
        assert!(altered.iter().all(Result::is_ok), "{altered:?}");
    }

    /// As of when the store is exact; 0 before it has applied anything.
    pub(crate) fn as_of(&self) -> Micros {
        let fences = self.fences();
        if fences.len() < usize::from(LANES) {
            return 0;
        }
        fences.values().map(|fence| fence.as_of).min().unwrap_or(0)
    }

    /// The window that every lane of the store has reached.
    pub(crate) fn applied(&self) -> WindowId {
        let fences = self.fences();
        if fences.len() < usize::from(LANES) {
            return 0;
        }
        fences.values().map(|fence| fence.window).min().unwrap_or(0)
    }

    /// Waits until every lane of the store has moved this many times, as seen now and then.
    #[track_caller]
    pub(crate) fn wait_for_windows(&self, windows: u32) {
        let mut last = self.applied();
        for _ in 0..windows {
            wait_until("the store applies another window", || self.applied() > last);
            last = self.applied();
        }
    }

    /// Waits until the log has this many more windows.
    pub(crate) fn wait_for_log_window(&self, more: u32) {
        let kafka = self.kafka();
        let last = windows::last(&kafka).expect("a history").map_or(0, |record| record.window);
        let mut reader = WindowsReader::open(&kafka, last).expect("a history");
        let deadline = Instant::now() + Duration::from_secs(120);
        for _ in 0..more {
            reader.next_until(deadline).expect("a history").expect("the relay closes windows");
        }
    }

    /// Every window of the log.
    pub(crate) fn windows(&self) -> Vec<WindowRecord> {
        let kafka = self.kafka();
        let last = windows::last(&kafka).expect("a history").map_or(0, |record| record.window);
        let mut reader = WindowsReader::open(&kafka, 0).expect("a history");
        let mut found: Vec<WindowRecord> = Vec::new();
        wait_until("the history is read", || {
            while let Some(record) = reader.poll().expect("a history") {
                found.push(record);
            }
            found.last().map_or(0, |record| record.window) >= last
        });
        found
    }

    /// Events in the log by partition.
    pub(crate) fn event_counts(&self) -> Vec<u64> {
        let windows = self.windows();
        let partitions = windows[0].counts.len();
        (0..partitions).map(|partition| windows.iter().map(|window| window.counts[partition]).sum()).collect()
    }

    /// Records in the flips topic: committed ones only, or all.
    pub(crate) fn records(&self, committed: bool) -> usize {
        let isolation = if committed { "read_committed" } else { "read_uncommitted" };
        let topic = self.topic("flips");
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", Stack::get().bootstrap_servers())
            .set("group.id", "observer")
            .set("enable.auto.commit", "false")
            .set("enable.partition.eof", "true")
            .set("isolation.level", isolation);
        let consumer: BaseConsumer = config.create().expect("a consumer");
        let metadata = consumer.fetch_metadata(Some(&topic), Duration::from_secs(30)).expect("the topic");
        let mut assignment = TopicPartitionList::new();
        for partition in metadata.topics()[0].partitions() {
            assignment.add_partition_offset(&topic, partition.id(), Offset::Beginning).expect("an offset");
        }
        consumer.assign(&assignment).expect("an assignment");
        let (mut found, mut ends) = (0, 0);
        while ends < assignment.count() {
            match consumer.poll(Duration::from_secs(30)).expect("records or an end") {
                Ok(message) => found += usize::from(message.payload().is_some()),
                Err(KafkaError::PartitionEOF(_)) => ends += 1,
                Err(error) => panic!("{error}"),
            }
        }
        found
    }

    /// An item's counter.
    pub(crate) fn count(&self, item: i64) -> i64 {
        self.redis.client().get::<_, Option<i64>>(format!("likes:{item}")).expect("Redis is up").unwrap_or(0)
    }
}

/// Copies a folder of files.
pub(crate) fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the test's folder is writable");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("a folder");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a file has a type").is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("the test's folder is writable");
        }
    }
}
