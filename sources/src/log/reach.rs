//! How far the log has come, for people who ask. Whoever goes on from there reads [`super::totals_chain`] instead, which
//! checks what lies before.

use std::ops::ControlFlow;

use fencepost_model::WindowId;
use fencepost_model::placement::LANES;
use rdkafka::Message;

use super::config::PartitionEnd;
use super::offsets::{self, Place};
use super::scan::Scan;
use super::sweep::{self, Stretch};
use super::{KafkaConfig, LogError, client};

/// Records looked at from the end of each lane. Its last window is among them unless more repeats of older windows stand
/// there: a pipeline that starts over repeats what it wrote.
const TAIL: i64 = 16;

/// The last window whose totals stand at the end of every lane: 0 when a lane holds none.
///
/// # Errors
/// See [`LogError`].
pub fn totals(config: &KafkaConfig) -> Result<WindowId, LogError> {
    let topic = config.totals_topic();
    let consumer = client::consumer(config, &topic, PartitionEnd::Reported, &[])?;
    let all = |place| (0..u32::from(LANES)).map(|lane| (lane, place)).collect::<Vec<_>>();
    let starts = offsets::find(&consumer, &topic, &all(Place::Start))?;
    let ends = offsets::find(&consumer, &topic, &all(Place::End))?;
    let tails = (0..u32::from(LANES)).zip(starts.into_iter().zip(ends)).filter_map(|(partition, bounds)| {
        let (start, end) = (bounds.0?, bounds.1?);
        Some(Stretch { partition, from: start.max(end - TAIL), to: end })
    });
    let tails: Vec<_> = tails.collect();
    let mut windows = vec![0; usize::from(LANES)];
    sweep::read(&consumer, &topic, &tails, |message| {
        // The time of a totals record is its window.
        let window = message.timestamp().to_millis().and_then(|time| WindowId::try_from(time).ok());
        let lane = usize::try_from(message.partition()).ok().and_then(|lane| windows.get_mut(lane));
        if let (Some(lane), Some(window)) = (lane, window) {
            *lane = window.max(*lane);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(windows.into_iter().min().unwrap_or(0))
}

/// Dead letters that the topic holds; older ones may have left it.
///
/// # Errors
/// See [`LogError`].
pub fn dead_letters(config: &KafkaConfig) -> Result<u64, LogError> {
    let (start, end) = Scan::open(config, config.dead_letters_topic(), 0)?.bounds()?;
    Ok((end - start).max(0).cast_unsigned())
}
