//! What the whole retained totals log holds: where each lane's chain of windows ends, before a pipeline resumes.

use std::time::{Duration, Instant};

use fencepost_model::placement::LANES;
use fencepost_model::totals::PartJoiner;
use fencepost_model::{Id, WindowId};
use rdkafka::consumer::Consumer;
use rdkafka::error::KafkaError;
use rdkafka::message::BorrowedMessage;
use rdkafka::{Message, Offset, TopicPartitionList};

use super::chain::Chain;
use super::client;
use super::config::PartitionEnd;
use super::offsets::{self, Place};
use super::totals_writer::incarnation;
use super::{KafkaConfig, LogError, topics};

const POLL_TIMEOUT: Duration = Duration::from_millis(100);

/// Reading that gets nothing for this long gives up.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// What the retained totals log holds of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainEnd {
    /// The lane.
    pub lane: u8,
    /// First window retained and the window before it; `None` when the lane holds no record.
    pub first: Option<(WindowId, WindowId)>,
    /// Last window of the unbroken chain of complete records from the first; `None` when the lane holds no record.
    pub end: Option<WindowId>,
    /// Least window beyond the end that does not follow it: what comes after a gap.
    pub beyond_gap: Option<WindowId>,
    /// Greatest incarnation that wrote to the lane.
    pub incarnation: Option<u64>,
    /// Offset at which the retained log starts: 0 when nothing was ever removed.
    pub log_start: i64,
    /// Offset at which the log ended when it was read.
    pub log_end: i64,
}

struct Lane<I> {
    number: u8,
    start: i64,
    end: i64,
    next: i64,
    parts: PartJoiner<I>,
    chain: Chain,
    incarnation: Option<u64>,
}

/// Reads the whole retained totals log once, up to where it ends now: an entry for each lane, by lane.
///
/// # Errors
/// [`LogError::Refused`] when the log holds what no pipeline wrote; [`LogError::Transient`] when the brokers do not
/// answer.
pub fn verify(config: &KafkaConfig) -> Result<Vec<ChainEnd>, LogError> {
    topics::verify(config)?;
    let topic = config.totals_topic();
    let failed = |error| LogError::kafka(format_args!("cannot read topic {topic}"), &error);
    let consumer = client::consumer(config, &topic, PartitionEnd::Reported, &[])?;
    let all = |place| (0..u32::from(LANES)).map(|lane| (lane, place)).collect::<Vec<_>>();
    let starts = offsets::find(&consumer, &topic, &all(Place::Start))?;
    let ends = offsets::find(&consumer, &topic, &all(Place::End))?;
    let lanes = (0..LANES).zip(starts.into_iter().zip(ends)).map(|(number, bounds)| {
        let (Some(start), Some(end)) = bounds else {
            return Err(LogError::Transient(format!(
                "the bounds of lane {number} in topic {topic} are not known"
            )));
        };
        let (parts, chain) = (PartJoiner::<i64>::default(), Chain::default());
        Ok(Lane { number, start, end, next: start, parts, chain, incarnation: None })
    });
    let mut lanes = lanes.collect::<Result<Vec<_>, _>>()?;

    let mut assignment = TopicPartitionList::new();
    for lane in lanes.iter().filter(|lane| lane.next < lane.end) {
        let start = Offset::Offset(lane.start);
        assignment.add_partition_offset(&topic, i32::from(lane.number), start).map_err(failed)?;
    }
    let mut open = assignment.count();
    if open > 0 {
        consumer.assign(&assignment).map_err(failed)?;
    }
    let total: i64 = lanes.iter().map(|lane| lane.end - lane.start).sum();
    let (mut heard, mut told) = (Instant::now(), Instant::now());
    while open > 0 {
        let read = match consumer.poll(POLL_TIMEOUT) {
            Some(Ok(message)) => {
                heard = Instant::now();
                let lane = lane_mut(&mut lanes, message.partition())?;
                lane.next < lane.end && lane.take(&topic, &message)?
            }
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                let lane = lane_mut(&mut lanes, partition)?;
                let was_open = lane.next < lane.end;
                lane.next = lane.next.max(lane.end);
                was_open
            }
            Some(Err(error)) => {
                LogError::unless_passing(&format!("topic {topic}"), &error)?;
                false
            }
            None if heard.elapsed() > STALL_TIMEOUT => {
                return Err(LogError::Transient(format!(
                    "nothing more of topic {topic} for {STALL_TIMEOUT:?}"
                )));
            }
            None => false,
        };
        open -= usize::from(read);
        if told.elapsed() > PROGRESS_INTERVAL {
            told = Instant::now();
            let left: i64 = lanes.iter().map(|lane| lane.end - lane.next.min(lane.end)).sum();
            tracing::info!(topic, records = total, left, "verifying the chain of totals");
        }
    }
    let ends = lanes.iter().map(|lane| ChainEnd {
        lane: lane.number,
        first: lane.chain.first(),
        end: lane.chain.end(),
        beyond_gap: lane.chain.beyond_gap(),
        incarnation: lane.incarnation,
        log_start: lane.start,
        log_end: lane.end,
    });
    Ok(ends.collect())
}

fn lane_mut<I>(lanes: &mut [Lane<I>], partition: i32) -> Result<&mut Lane<I>, LogError> {
    let index = usize::try_from(partition).unwrap_or(usize::MAX);
    lanes.get_mut(index).ok_or_else(|| LogError::Refused(format!("there is no lane {partition}")))
}

impl<I: Id> Lane<I> {
    /// Takes a part; returns whether it was the lane's last.
    fn take(&mut self, topic: &str, message: &BorrowedMessage<'_>) -> Result<bool, LogError> {
        if message.offset() >= self.end {
            self.next = self.end;
            return Ok(true);
        }
        let refuse = |what: &str| {
            LogError::Refused(format!(
                "lane {} of topic {topic} at offset {}: {what}. See `fencepost dump totals`; nothing is applied past this",
                self.number,
                message.offset()
            ))
        };
        let incarnation = incarnation(message).ok_or_else(|| refuse("a record without an incarnation"))?;
        let record = self
            .parts
            .push(incarnation, message.payload().unwrap_or_default())
            .map_err(|error| refuse(&error.to_string()))?;
        if let Some(record) = record {
            if record.lane != self.number {
                return Err(refuse(&format!("a record of lane {}", record.lane)));
            }
            self.chain.push(&record);
        }
        self.incarnation = self.incarnation.max(Some(incarnation));
        self.next = message.offset() + 1;
        Ok(self.next >= self.end)
    }
}
