use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Headers;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};

use super::deployment::Deployment;
use super::stack::Stack;
use super::wait::wait_until;

const TIMEOUT: Duration = Duration::from_secs(30);

/// A record of any producer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Foreign<'a> {
    pub(crate) partition: i32,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
}

/// A record that was set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeadLetter {
    pub(crate) reason: String,
    pub(crate) payload: Vec<u8>,
}

/// What an operator, or another producer, may do to a deployment's topics. `topic` is as in [`Deployment::topic`].
impl Deployment {
    /// Where each partition of a topic ends.
    pub(crate) fn ends(&self, topic: &str) -> Vec<i64> {
        let (topic, consumer) = (self.topic(topic), client().create::<BaseConsumer>().expect("a consumer"));
        let metadata = consumer.fetch_metadata(Some(&topic), TIMEOUT).expect("the broker is up");
        let partitions = metadata.topics()[0].partitions().len();
        let end = |partition| consumer.fetch_watermarks(&topic, partition, TIMEOUT).expect("the topic").1;
        (0..i32::try_from(partitions).expect("few partitions")).map(end).collect()
    }

    /// Deletes the records below these offsets, of each partition, as retention would.
    pub(crate) fn delete_records(&self, topic: &str, below: &[i64]) {
        let topic = self.topic(topic);
        let mut offsets = TopicPartitionList::new();
        for (partition, offset) in (0..).zip(below) {
            offsets.add_partition_offset(&topic, partition, Offset::Offset(*offset)).expect("an offset");
        }
        pollster::block_on(admin().delete_records(&offsets, &AdminOptions::new())).expect("the broker is up");
        let consumer: BaseConsumer = client().create().expect("a consumer");
        for (partition, offset) in (0..).zip(below) {
            let start = consumer.fetch_watermarks(&topic, partition, TIMEOUT).expect("the topic").0;
            assert_eq!(start, *offset, "partition {partition} of {topic} starts there now");
        }
    }

    /// Gives a topic more partitions.
    pub(crate) fn add_partitions(&self, topic: &str, total: usize) {
        let topic = self.topic(topic);
        let partitions = NewPartitions::new(&topic, total);
        let added = pollster::block_on(admin().create_partitions([&partitions], &AdminOptions::new()));
        assert_eq!(added.expect("the broker is up"), [Ok(topic.clone())]);
        self.wait_for_partitions(&topic, Some(total));
    }

    /// Deletes a topic with all it holds, and has `migrate` create it anew.
    pub(crate) fn recreate(&self, topic: &str) {
        let name = self.topic(topic);
        let deleted = pollster::block_on(admin().delete_topics(&[&name], &AdminOptions::new()));
        assert_eq!(deleted.expect("the broker is up"), [Ok(name.clone())]);
        self.wait_for_partitions(&name, None);
        self.migrate();
    }

    fn wait_for_partitions(&self, topic: &str, partitions: Option<usize>) {
        wait_until("the brokers know the topic as it is now", || {
            let consumer: BaseConsumer = client().create().expect("a consumer");
            let metadata = consumer.fetch_metadata(None, TIMEOUT).expect("the broker is up");
            let found = metadata.topics().iter().find(|found| found.name() == topic);
            found.map(|found| found.partitions().len()) == partitions
        });
    }

    /// Writes records, not in a transaction.
    pub(crate) fn produce(&self, topic: &str, records: &[Foreign<'_>]) {
        let topic = self.topic(topic);
        let producer: BaseProducer =
            client().set("message.max.bytes", "2000000").create().expect("a producer");
        for Foreign { partition, key, value } in records {
            let mut record = BaseRecord::<[u8], [u8]>::to(&topic).partition(*partition);
            (record.key, record.payload) = (*key, *value);
            assert!(producer.send(record).is_ok(), "there is room for a few");
        }
        producer.flush(TIMEOUT).expect("the broker is up");
    }

    /// The records that were set aside, by where they were found: (partition, offset).
    pub(crate) fn dead_letters(&self) -> BTreeMap<(i32, i64), DeadLetter> {
        let topic = self.topic("dead-letters");
        let end = self.ends("dead-letters")[0];
        let mut config = client();
        config.set("group.id", "dead-letters").set("enable.auto.commit", "false");
        let consumer: BaseConsumer = config.create().expect("a consumer");
        let mut start = TopicPartitionList::new();
        start.add_partition_offset(&topic, 0, Offset::Beginning).expect("an offset");
        consumer.assign(&start).expect("an assignment");
        let (mut found, mut next) = (BTreeMap::new(), 0);
        wait_until("the dead letters are read", || {
            while next < end
                && let Some(message) = consumer.poll(Duration::from_millis(100))
            {
                let message = message.expect("the broker is up");
                next = message.offset() + 1;
                let headers = message.headers().expect("a dead letter says why");
                let text = |key| {
                    let header =
                        headers.iter().find(|header| header.key == key).expect("a dead letter says why");
                    String::from_utf8_lossy(header.value.unwrap_or_default()).into_owned()
                };
                let place =
                    (text("partition").parse().expect("a number"), text("offset").parse().expect("a number"));
                let payload = message.payload().unwrap_or_default().to_vec();
                found.insert(place, DeadLetter { reason: text("reason"), payload });
            }
            next >= end
        });
        found
    }
}

fn client() -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", Stack::get().bootstrap_servers());
    config
}

fn admin() -> AdminClient<DefaultClientContext> {
    client().create().expect("a client of librdkafka")
}
