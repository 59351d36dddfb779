use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use fencepost_model::placement::LANES;
use fencepost_model::{Micros, WindowId, WindowRecord};
use fencepost_sources::log::windows::{self, WindowsReader};
use fencepost_sources::log::{KafkaConfig, topics};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::metadata::MetadataPartition;
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

    /// How much the checkpoint holds, in bytes.
    pub(crate) fn checkpoint_bytes(&self) -> u64 {
        let files = fs::read_dir(self.checkpoint_dir()).expect("a folder");
        // A file may be deleted between being listed and being looked at.
        files.map(|file| file.expect("a folder").metadata().map_or(0, |file| file.len())).sum()
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
        let partitions = windows.first().map_or(0, |window| window.counts.len());
        (0..partitions).map(|partition| windows.iter().map(|window| window.counts[partition]).sum()).collect()
    }

    /// Records in the flips topic that are in no window: of an open transaction, or of aborted ones.
    pub(crate) fn records_in_no_window(&self) -> u64 {
        let topic = self.topic("flips");
        let mut config = ClientConfig::new();
        // Otherwise a partition ends where its open transaction begins.
        config
            .set("bootstrap.servers", Stack::get().bootstrap_servers())
            .set("isolation.level", "read_uncommitted");
        let consumer: BaseConsumer = config.create().expect("a consumer");
        let metadata = consumer.fetch_metadata(Some(&topic), Duration::from_secs(30)).expect("the topic");
        let partitions = metadata.topics()[0].partitions();
        let end = |partition: &MetadataPartition| {
            let mut end = None;
            wait_until("the partition tells its end", || {
                // A new partition may not know its leader yet.
                end = consumer.fetch_watermarks(&topic, partition.id(), Duration::from_secs(30)).ok();
                end.is_some()
            });
            end.map_or(0, |(_, end)| end)
        };
        // Windows last: one that closes meanwhile must not be taken for none.
        let written: i64 = partitions.iter().map(end).sum();
        let windows = self.windows();
        // A window has a marker in each partition, and the broker's own record of the transaction's end.
        let counted: u64 = windows.iter().map(|window| window.events() + 2 * partitions.len() as u64).sum();
        written.cast_unsigned().saturating_sub(counted)
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
