use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fencepost_sources::log::KafkaConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Header, Headers, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};

/// Copies carry this header, so that no copy is copied again.
const MARK: &str = "copy";

/// Another producer that writes every committed record of the flips topic once more, markers too, while the relay goes
/// on writing.
pub(crate) struct Copier {
    stop: Arc<AtomicBool>,
    copied: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Copier {
    /// Starts copying from the beginning of the topic.
    pub(crate) fn start(config: &KafkaConfig) -> Self {
        let (stop, copied) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (topic, servers) = (config.flips_topic(), config.bootstrap_servers.clone());
        let (stopped, counter) = (Arc::clone(&stop), Arc::clone(&copied));
        let thread = thread::spawn(move || copy(&topic, &servers, &stopped, &counter));
        Self { stop, copied, thread: Some(thread) }
    }

    /// How many records it has copied.
    pub(crate) fn copied(&self) -> u64 {
        self.copied.load(Ordering::SeqCst)
    }
}

impl Drop for Copier {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let ended = self.thread.take().expect("it is joined once").join();
        assert!(ended.is_ok() || thread::panicking(), "the copier failed");
    }
}

fn copy(topic: &str, servers: &str, stop: &AtomicBool, copied: &AtomicU64) {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", servers);
    let producer: BaseProducer = config.clone().set("linger.ms", "1").create().expect("a producer");
    config
        .set("group.id", "copier")
        .set("isolation.level", "read_committed")
        .set("enable.auto.commit", "false");
    let consumer: BaseConsumer = config.create().expect("a consumer");
    let metadata = consumer.fetch_metadata(Some(topic), Duration::from_secs(30)).expect("the topic");
    let mut partitions = TopicPartitionList::new();
    for partition in metadata.topics()[0].partitions() {
        partitions.add_partition_offset(topic, partition.id(), Offset::Beginning).expect("an offset");
    }
    consumer.assign(&partitions).expect("an assignment");
    while !stop.load(Ordering::SeqCst) {
        producer.poll(Duration::ZERO);
        let Some(message) = consumer.poll(Duration::from_millis(10)) else { continue };
        let message = message.expect("the broker is up");
        if message.headers().is_some_and(|headers| headers.iter().any(|header| header.key == MARK)) {
            continue;
        }
        let headers = OwnedHeaders::new().insert(Header { key: MARK, value: Some("1") });
        let mut record = BaseRecord::<[u8], [u8]>::to(topic)
            .partition(message.partition())
            .payload(message.payload().unwrap_or_default())
            .headers(headers);
        record.key = message.key();
        record.timestamp = message.timestamp().to_millis();
        while let Err((_, back)) = producer.send(record) {
            producer.poll(Duration::from_millis(10));
            record = back;
        }
        copied.fetch_add(1, Ordering::SeqCst);
    }
    producer.flush(Duration::from_secs(30)).expect("the broker is up");
}
