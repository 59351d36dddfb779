use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer;
use rdkafka::error::KafkaError;
use rdkafka::message::BorrowedMessage;
use rdkafka::{Message, Offset, TopicPartitionList};

use super::LogError;
use super::client::AssignedConsumer;

const POLL_TIMEOUT: Duration = Duration::from_millis(100);

/// A sweep that gets nothing for this long gives up.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// Offsets of a partition, from `from` and below `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) partition: u32,
    pub(crate) from: i64,
    pub(crate) to: i64,
}

/// Hands the records of some stretches of a topic to `each`, until it breaks or all have been read: in order within a
/// partition, mixed between them. The consumer has to report the ends of partitions.
pub(crate) fn read(
    consumer: &AssignedConsumer,
    topic: &str,
    stretches: &[Stretch],
    mut each: impl FnMut(&BorrowedMessage<'_>) -> Result<ControlFlow<()>, LogError>,
) -> Result<(), LogError> {
    let failed = |error| LogError::kafka(format_args!("cannot read topic {topic}"), &error);
    let mut assignment = TopicPartitionList::with_capacity(stretches.len());
    let mut ends = BTreeMap::new();
    for Stretch { partition, from, to } in stretches.iter().filter(|stretch| stretch.from < stretch.to) {
        ends.insert(partition.cast_signed(), *to);
        assignment
            .add_partition_offset(topic, partition.cast_signed(), Offset::Offset(*from))
            .map_err(failed)?;
    }
    if ends.is_empty() {
        return Ok(());
    }
    consumer.assign(&assignment).map_err(failed)?;
    let (mut records, mut heard, mut told) = (0_u64, Instant::now(), Instant::now());
    while !ends.is_empty() {
        match consumer.poll(POLL_TIMEOUT) {
            Some(Ok(message)) => {
                heard = Instant::now();
                let Some(end) = ends.get(&message.partition()).copied() else { continue };
                if message.offset() < end {
                    records += 1;
                    if each(&message)?.is_break() {
                        return Ok(());
                    }
                }
                if message.offset() >= end - 1 {
                    ends.remove(&message.partition());
                }
            }
            // Records that end transactions take offsets too: the last record may stand before `to - 1`.
            Some(Err(KafkaError::PartitionEOF(partition))) => drop(ends.remove(&partition)),
            Some(Err(error)) => LogError::unless_passing(&format!("topic {topic}"), &error)?,
            None if heard.elapsed() > STALL_TIMEOUT => {
                return Err(LogError::Transient(format!(
                    "nothing more of topic {topic} for {STALL_TIMEOUT:?}"
                )));
            }
            None => {}
        }
        if told.elapsed() > PROGRESS_INTERVAL {
            told = Instant::now();
            tracing::info!(topic, records, partitions_left = ends.len(), "reading the log");
        }
    }
    Ok(())
}
