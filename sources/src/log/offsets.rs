use std::time::Duration;

use backon::{BlockingRetryable, ExponentialBuilder};
use rdkafka::consumer::Consumer;
use rdkafka::{Offset, TopicPartitionList};

use super::LogError;
use super::client::AssignedConsumer;
use super::config::REQUEST_TIMEOUT;

/// A place in a partition to ask the brokers for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The first record retained.
    Start,
    /// After the last committed record.
    End,
    /// The first record whose time is this or later.
    Time(u64),
}

/// The offsets of places in partitions of a topic, in the order they are asked for, by one request to each broker;
/// `None` when no committed record is that late. A partition may be asked for once only.
pub(crate) fn find(
    consumer: &AssignedConsumer,
    topic: &str,
    places: &[(u32, Place)],
) -> Result<Vec<Option<i64>>, LogError> {
    if places.is_empty() {
        return Ok(Vec::new());
    }
    // Leaders move, and the leaders of new topics take a moment to know that they are.
    let retries = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(20))
        .with_max_delay(Duration::from_millis(500))
        .with_total_delay(Some(REQUEST_TIMEOUT))
        .without_max_times();
    let transient = |error: &LogError| matches!(error, LogError::Transient(_));
    (|| find_once(consumer, topic, places)).retry(retries).when(transient).call()
}

fn find_once(
    consumer: &AssignedConsumer,
    topic: &str,
    places: &[(u32, Place)],
) -> Result<Vec<Option<i64>>, LogError> {
    let failed = |error| LogError::kafka(format_args!("cannot find offsets in topic {topic}"), &error);
    let mut wanted = TopicPartitionList::with_capacity(places.len());
    for (partition, place) in places {
        // The protocol asks for start and end by times that no record has.
        let time = match place {
            Place::Start => Offset::Beginning,
            Place::End => Offset::End,
            Place::Time(time) => Offset::Offset(i64::try_from(*time).expect("windows are below 2^52")),
        };
        wanted.add_partition_offset(topic, partition.cast_signed(), time).map_err(failed)?;
    }
    let found = consumer.offsets_for_times(wanted, REQUEST_TIMEOUT).map_err(failed)?;
    places
        .iter()
        .map(|(partition, _)| {
            let element = found.find_partition(topic, partition.cast_signed()).ok_or_else(|| {
                LogError::Transient(format!(
                    "brokers did not say where partition {partition} of {topic} stands"
                ))
            })?;
            element.error().map_err(failed)?;
            match element.offset() {
                Offset::Offset(offset) => Ok(Some(offset)),
                _ => Ok(None),
            }
        })
        .collect()
}

/// Where one partition starts and ends.
pub(crate) fn bounds(
    consumer: &AssignedConsumer,
    topic: &str,
    partition: u32,
) -> Result<(i64, i64), LogError> {
    let one = |place| {
        find(consumer, topic, &[(partition, place)])?[0].ok_or_else(|| {
            LogError::Transient(format!("partition {partition} of topic {topic} has no bounds"))
        })
    };
    Ok((one(Place::Start)?, one(Place::End)?))
}
