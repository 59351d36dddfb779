use std::ops::ControlFlow;
use std::time::Duration;

use rdkafka::consumer::Consumer;
use rdkafka::error::KafkaError;
use rdkafka::message::BorrowedMessage;
use rdkafka::{Offset, TopicPartitionList};

use super::client::{self, AssignedConsumer};
use super::config::PartitionEnd;
use super::offsets::{self, Place};
use super::sweep::{self, Stretch};
use super::{KafkaConfig, LogError};

/// The brokers say that there is nothing more after this long: somebody waits for the answer.
const END_WAIT_MS: &str = "20";

/// Reads stretches of one partition, committed records only.
pub(crate) struct Scan {
    consumer: AssignedConsumer,
    topic: String,
    partition: u32,
}

impl Scan {
    pub(crate) fn open(config: &KafkaConfig, topic: String, partition: u32) -> Result<Self, LogError> {
        let consumer =
            client::consumer(config, &topic, PartitionEnd::Reported, &[("fetch.wait.max.ms", END_WAIT_MS)])?;
        Ok(Self { consumer, topic, partition })
    }

    /// The offsets of the first record retained, and after the last committed one.
    pub(crate) fn bounds(&self) -> Result<(i64, i64), LogError> {
        offsets::bounds(&self.consumer, &self.topic, self.partition)
    }

    /// The offset of the first record whose time is this or later.
    pub(crate) fn at_time(&self, time: u64) -> Result<Option<i64>, LogError> {
        Ok(offsets::find(&self.consumer, &self.topic, &[(self.partition, Place::Time(time))])?[0])
    }

    /// The offset of a place in each of the topic's partitions.
    pub(crate) fn find(&self, partitions: u32, place: Place) -> Result<Vec<Option<i64>>, LogError> {
        let places: Vec<_> = (0..partitions).map(|partition| (partition, place)).collect();
        offsets::find(&self.consumer, &self.topic, &places)
    }

    /// Goes to an offset, for [`Scan::poll`] to read on from there.
    pub(crate) fn assign(&self, from: i64) -> Result<(), LogError> {
        let mut assignment = TopicPartitionList::with_capacity(1);
        assignment
            .add_partition_offset(&self.topic, self.partition.cast_signed(), Offset::Offset(from))
            .and_then(|()| self.consumer.assign(&assignment))
            .map_err(|error| {
                LogError::kafka(format_args!("cannot read {} from offset {from}", self.what()), &error)
            })
    }

    /// The next record; `Break` at the end of the partition, `None` when nothing came within the time.
    pub(crate) fn poll(
        &self,
        timeout: Duration,
    ) -> Result<Option<ControlFlow<(), BorrowedMessage<'_>>>, LogError> {
        match self.consumer.poll(timeout) {
            None => Ok(None),
            Some(Ok(message)) => Ok(Some(ControlFlow::Continue(message))),
            Some(Err(KafkaError::PartitionEOF(_))) => Ok(Some(ControlFlow::Break(()))),
            Some(Err(error)) => LogError::unless_passing(&self.what(), &error).map(|()| None),
        }
    }

    /// Hands the records at offsets from `from` and below `to` to `each`, until it breaks.
    pub(crate) fn read(
        &self,
        from: i64,
        to: i64,
        each: impl FnMut(&BorrowedMessage<'_>) -> Result<ControlFlow<()>, LogError>,
    ) -> Result<(), LogError> {
        sweep::read(&self.consumer, &self.topic, &[Stretch { partition: self.partition, from, to }], each)
    }

    /// What is read, for messages.
    pub(crate) fn what(&self) -> String {
        format!("partition {} of topic {}", self.partition, self.topic)
    }
}
