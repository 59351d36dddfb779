//! Prints records of the log as lines of JSON, for people.

use std::io::Write;
use std::ops::ControlFlow;

use anyhow::Context;
use fencepost_model::totals::PartJoiner;
use fencepost_model::{Id, LaneTotals, WindowId, record};
use rdkafka::Message;
use rdkafka::message::{BorrowedMessage, Headers};
use serde_json::{Map, Value, json};

use super::config::PartitionEnd;
use super::offsets::{self, Place};
use super::sweep::{self, Stretch};
use super::totals_writer::incarnation;
use super::{KafkaConfig, client, topics, windows};

/// A topic of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// Events and markers.
    Flips,
    /// The history of windows.
    Windows,
    /// Totals by lane.
    Totals,
    /// Records that could not be counted.
    DeadLetters,
}

/// Writes the records of a topic that stand in it now, one line of JSON each: from window `from` on (0: all that are
/// retained), at most `limit` of them. The order is that of the log within a partition.
///
/// # Errors
/// When the brokers do not answer, or `out` takes no more.
pub fn dump<I: Id>(
    config: &KafkaConfig,
    topic: Topic,
    from: WindowId,
    limit: u64,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let (name, partitions) = match topic {
        Topic::Flips => (config.flips_topic(), topics::verify(config)?),
        Topic::Windows => (config.windows_topic(), 1),
        Topic::Totals => (config.totals_topic(), u32::from(fencepost_model::placement::LANES)),
        Topic::DeadLetters => (config.dead_letters_topic(), 1),
    };
    // The events of a window carry the time after the window before.
    let first_time = match topic {
        Topic::Flips => windows::at(config, from)?.map_or(from, |record| record.before + 1),
        Topic::Windows | Topic::Totals | Topic::DeadLetters => from,
    };
    let consumer = client::consumer(config, &name, PartitionEnd::Reported, &[])?;
    let all = |place| (0..partitions).map(|partition| (partition, place)).collect::<Vec<_>>();
    let ends = offsets::find(&consumer, &name, &all(Place::End))?;
    let start = if from == 0 { Place::Start } else { Place::Time(first_time) };
    let starts = offsets::find(&consumer, &name, &all(start))?;
    let stretches = (0..partitions).zip(starts.into_iter().zip(ends)).filter_map(|(partition, bounds)| {
        let (from, to) = (bounds.0?, bounds.1?);
        Some(Stretch { partition, from, to })
    });
    let stretches: Vec<_> = stretches.collect();

    let (mut left, mut written) = (limit, Ok(()));
    let mut parts: Vec<_> = (0..partitions).map(|_| PartJoiner::<I>::default()).collect();
    sweep::read(&consumer, &name, &stretches, |message| {
        if left == 0 {
            return Ok(ControlFlow::Break(()));
        }
        left -= 1;
        let mut line = place(message);
        line.extend(match topic {
            Topic::Flips => text(message, record::decode::<I>(payload(message)).map(drop)),
            Topic::Windows => text(message, record::decode_window(payload(message)).map(drop)),
            Topic::Totals => totals(message, &mut parts),
            Topic::DeadLetters => dead_letter(message),
        });
        written = writeln!(out, "{}", Value::Object(line));
        Ok(if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    written.context("cannot write what was read")
}

type Line = Map<String, Value>;

fn line(fields: Value) -> Line {
    if let Value::Object(fields) = fields { fields } else { Line::new() }
}

fn payload<'a>(message: &'a BorrowedMessage<'_>) -> &'a [u8] {
    message.payload().unwrap_or_default()
}

/// Bytes as people read them.
fn readable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn place(message: &BorrowedMessage<'_>) -> Line {
    line(json!({
        "partition": message.partition(),
        "offset": message.offset(),
        "time": message.timestamp().to_millis(),
    }))
}

/// A record of JSON as it stands, or why it is none of ours.
fn text(message: &BorrowedMessage<'_>, decoded: Result<(), record::DecodeError>) -> Line {
    let key = message.key().map(readable);
    match (decoded, serde_json::from_slice::<Value>(payload(message))) {
        (Ok(()), Ok(record)) => line(json!({ "key": key, "record": record })),
        (decoded, _) => line(json!({
            "key": key,
            "error": decoded.err().map(|error| error.to_string()),
            "value": readable(payload(message)),
        })),
    }
}

/// The record that a part completes, or what the part is.
fn totals<I: Id>(message: &BorrowedMessage<'_>, parts: &mut [PartJoiner<I>]) -> Line {
    let incarnation = incarnation(message);
    let lane = usize::try_from(message.partition()).ok().and_then(|lane| parts.get_mut(lane));
    let joined = lane.map(|parts| parts.push(incarnation.unwrap_or_default(), payload(message)));
    let mut fields = line(json!({ "incarnation": incarnation, "bytes": payload(message).len() }));
    fields.extend(match joined {
        Some(Ok(Some(record))) => line(json!({ "record": lane_totals(&record) })),
        Some(Err(error)) => line(json!({ "error": error.to_string() })),
        _ => line(json!({ "part": "of a larger record" })),
    });
    fields
}

fn lane_totals<I: Id>(record: &LaneTotals<I>) -> Value {
    let corrections = record.corrections.iter().map(|correction| {
        json!({
            "item": correction.item,
            "store": correction.store,
            "id": correction.id,
            "amount": correction.amount,
            "cut": correction.cut,
        })
    });
    json!({
        "lane": record.lane,
        "window": record.window,
        "before": record.before,
        "epoch": record.epoch,
        "as_of": record.as_of,
        "kind": record.kind,
        "totals": record.totals,
        "corrections": corrections.collect::<Vec<_>>(),
    })
}

fn dead_letter(message: &BorrowedMessage<'_>) -> Line {
    let headers = message.headers().into_iter().flat_map(|headers| headers.iter());
    let headers = headers
        .map(|header| (header.key.to_owned(), Value::from(readable(header.value.unwrap_or_default()))));
    line(json!({
        "found": Value::Object(headers.collect()),
        "key": message.key().map(readable),
        "value": message.payload().map(readable),
    }))
}
