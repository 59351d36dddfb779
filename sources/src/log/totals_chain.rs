//! What the whole retained totals log holds: where each lane's chain of windows ends, before a pipeline resumes.

use std::ops::ControlFlow;

use fencepost_model::placement::LANES;
use fencepost_model::totals::PartJoiner;
use fencepost_model::{Id, WindowId};
use rdkafka::Message;
use rdkafka::message::BorrowedMessage;

use super::chain::Chain;
use super::client;
use super::config::PartitionEnd;
use super::offsets::{self, Place};
use super::sweep::{self, Stretch};
use super::totals_writer::incarnation;
use super::{KafkaConfig, LogError, topics};

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
        Ok(Lane { number, start, end, parts, chain, incarnation: None })
    });
    let mut lanes = lanes.collect::<Result<Vec<_>, _>>()?;

    let stretches: Vec<_> = lanes
        .iter()
        .map(|lane| Stretch { partition: u32::from(lane.number), from: lane.start, to: lane.end })
        .collect();
    sweep::read(&consumer, &topic, &stretches, |message| {
        let lane = usize::try_from(message.partition()).ok().and_then(|index| lanes.get_mut(index));
        let lane = lane.expect("only lanes were assigned");
        lane.take(&topic, message).map(ControlFlow::Continue)
    })?;
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

impl<I: Id> Lane<I> {
    fn take(&mut self, topic: &str, message: &BorrowedMessage<'_>) -> Result<(), LogError> {
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
        Ok(())
    }
}
