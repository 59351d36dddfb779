//! The history of windows: the topic `windows`, one record for each window ever closed.
//!
//! A record's time is its window, which is how one is found. A record counts only where it follows the record before:
//! whatever else stands in the topic (copies made by other producers, foreign records) is passed over.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use fencepost_model::record::{self, DecodeError, Record};
use fencepost_model::{Position, WindowId, WindowRecord};
use rdkafka::Message;
use rdkafka::message::BorrowedMessage;

use super::offsets::Place;
use super::scan::Scan;
use super::{KafkaConfig, LogError, PartitionStart, topics};

/// Offsets read at once when the history is walked backwards: at first, and at most. A record takes two: its own, and
/// one for the end of its transaction.
const CHUNK_FIRST: i64 = 256;
const CHUNK_LAST: i64 = 65_536;

const POLL_TIMEOUT: Duration = Duration::from_millis(100);

/// The last committed record; `None` before the first window ever.
///
/// # Errors
/// [`LogError::Refused`] when the topic lost its history or does not exist.
pub fn last(config: &KafkaConfig) -> Result<Option<WindowRecord>, LogError> {
    History::open(config)?.last()
}

/// The record of a window; `None` when there is no such window.
///
/// # Errors
/// See [`LogError`].
pub fn at(config: &KafkaConfig, window: WindowId) -> Result<Option<WindowRecord>, LogError> {
    Ok(History::open(config)?.at(window)?.map(|(_, record)| record))
}

/// The record of the `whole`-th window before `window` that ends at a commit (0: of `window` itself); `None` when there
/// are fewer.
///
/// # Errors
/// [`LogError::Refused`] when the history does not hold the window, or has a hole before it.
pub fn before(config: &KafkaConfig, window: WindowId, whole: u64) -> Result<Option<WindowRecord>, LogError> {
    History::open(config)?.before(window, whole)
}

/// Where each partition of the flips topic goes on after the window of a record.
///
/// The offset may lie before the window's marker: the record that ends a transaction carries the broker's time, a
/// foreign one any time, and the brokers may not have told all partitions of the commit. The reader then drops what it
/// knows by position. The offset never lies behind a record of a later window.
///
/// # Errors
/// [`LogError::Refused`] when the flips topic is another one than that of the record.
pub fn partition_starts(
    config: &KafkaConfig,
    record: &WindowRecord,
) -> Result<Vec<PartitionStart>, LogError> {
    let topic = config.flips_topic();
    let partitions = topics::verify(config)?;
    let found = super::topic_id::topic_id(config, &topic)?;
    if found != record.flips_topic || record.counts.len() != partitions as usize {
        return Err(LogError::Refused(format!(
            "topic {topic} (id {found}, {partitions} partitions) is not the one that window {} was written to (id {}, {} \
             partitions): it was made anew or given more partitions. Restore it; counts cannot go on from another",
            record.window,
            record.flips_topic,
            record.counts.len()
        )));
    }
    let scan = Scan::open(config, topic, 0)?;
    // The end first: a window that is committed between the two requests is then found by its time.
    let ends = scan.find(partitions, Place::End)?;
    let after = scan.find(partitions, Place::Time(record.window + 1))?;
    let starts = (0..partitions).zip(ends.into_iter().zip(after)).map(|(partition, (end, after))| {
        let offset =
            after.or(end).ok_or_else(|| LogError::Transient(format!("{} has no end", scan.what())))?;
        Ok(PartitionStart { partition, offset, window: record.window, position: record.position })
    });
    starts.collect()
}

/// Where each partition of the flips topic starts for a reader that has read nothing.
///
/// # Errors
/// [`LogError::Refused`] when the start of a partition is gone.
pub fn first_starts(config: &KafkaConfig) -> Result<Vec<PartitionStart>, LogError> {
    let topic = config.flips_topic();
    let partitions = topics::verify(config)?;
    let lows = Scan::open(config, topic.clone(), 0)?.find(partitions, Place::Start)?;
    let starts = (0..partitions).zip(lows).map(|(partition, low)| match low {
        Some(0) => Ok(PartitionStart { partition, offset: 0, window: 0, position: Position::default() }),
        low => Err(LogError::Refused(format!(
            "partition {partition} of topic {topic} starts at offset {}: its first records are gone, so counts cannot be \
             made from it alone. Restore the checkpoint directory",
            low.unwrap_or_default()
        ))),
    });
    starts.collect()
}

/// Whether windows were ever written to the flips topic, by what that topic itself shows: a marker, or that its first
/// records are gone. What is not committed does not count.
pub(crate) fn flips_hold_windows(config: &KafkaConfig) -> Result<bool, LogError> {
    let scan = Scan::open(config, config.flips_topic(), 0)?;
    let (start, end) = scan.bounds()?;
    let mut found = start > 0;
    if !found {
        scan.read(start, end, |message| {
            let decoded = record::decode::<i64>(message.payload().unwrap_or_default());
            found = matches!(decoded, Ok(Record::Marker(_)));
            Ok(if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
    }
    Ok(found)
}

/// The records of a stretch of the topic, with their offsets.
type Records = Vec<(i64, WindowRecord)>;

/// The history, open to be asked more than once.
pub(crate) struct History {
    scan: Scan,
}

impl History {
    pub(crate) fn open(config: &KafkaConfig) -> Result<Self, LogError> {
        Ok(Self { scan: Scan::open(config, config.windows_topic(), 0)? })
    }

    /// See [`last`].
    pub(crate) fn last(&self) -> Result<Option<WindowRecord>, LogError> {
        let (start, end) = self.scan.bounds()?;
        let (mut to, mut chunk) = (end, CHUNK_FIRST);
        let mut last: Option<WindowRecord> = None;
        while last.is_none() && to > start {
            let from = start.max(to - chunk);
            last = greatest(self.read(from, to)?);
            (to, chunk) = (from, (chunk * 4).min(CHUNK_LAST));
        }
        match last {
            // Copies of old records may stand at the end.
            Some(known) => self.last_from(known).map(Some),
            None if start > 0 => Err(LogError::Refused(format!(
                "{} starts at offset {start} and holds no window: its history is lost, and with it the place to go on \
                 from. Restore the topic",
                self.scan.what()
            ))),
            None => Ok(None),
        }
    }

    /// The last committed record, given one that is known: a later window is found by its time, wherever it stands.
    pub(crate) fn last_from(&self, known: WindowRecord) -> Result<WindowRecord, LogError> {
        let mut last = known;
        while let Some(from) = self.scan.at_time(last.window + 1)? {
            match greatest(self.read(from, i64::MAX)?) {
                Some(later) if later.window > last.window => last = later,
                _ => break,
            }
        }
        Ok(last)
    }

    fn at(&self, window: WindowId) -> Result<Option<(i64, WindowRecord)>, LogError> {
        let Some(from) = self.scan.at_time(window)? else { return Ok(None) };
        let mut found = None;
        self.scan.read(from, i64::MAX, |message| {
            let Some(record) = decode(message)? else { return Ok(ControlFlow::Continue(())) };
            if record.window == window {
                found = Some((message.offset(), record));
                return Ok(ControlFlow::Break(()));
            }
            // Windows rise: one above it stands behind it.
            Ok(if record.window > window { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(found)
    }

    fn before(&self, window: WindowId, whole: u64) -> Result<Option<WindowRecord>, LogError> {
        let refused = |what: String| LogError::Refused(format!("{}: {what}", self.scan.what()));
        let (mut to, mut reached) =
            self.at(window)?.ok_or_else(|| refused(format!("window {window} is not in the history")))?;
        let (start, _) = self.scan.bounds()?;
        let (mut left, mut chunk) = (whole, CHUNK_FIRST);
        while left > 0 && reached.before > 0 {
            if to <= start {
                return Err(refused(format!("window {} is missing: restore the topic", reached.before)));
            }
            let from = start.max(to - chunk);
            for (_, record) in self.read(from, to)?.into_iter().rev() {
                if left == 0 || record.window != reached.before {
                    continue;
                }
                left -= u64::from(record.kind.ends_at_commit());
                reached = record;
            }
            (to, chunk) = (from, (chunk * 4).min(CHUNK_LAST));
        }
        Ok((left == 0).then_some(reached))
    }

    fn read(&self, from: i64, to: i64) -> Result<Records, LogError> {
        let mut records = Vec::new();
        self.scan.read(from, to, |message| {
            records.extend(decode(message)?.map(|record| (message.offset(), record)));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(records)
    }
}

fn greatest(records: Records) -> Option<WindowRecord> {
    records.into_iter().map(|(_, record)| record).max_by_key(|record| record.window)
}

/// `None` for a foreign record. One of a relay's own that this build cannot read is no record to pass over: whoever
/// went on from the one before it would count its window again.
fn decode(message: &BorrowedMessage<'_>) -> Result<Option<WindowRecord>, LogError> {
    match record::decode_window(message.payload().unwrap_or_default()) {
        Ok(record) => Ok(Some(record)),
        Err(error @ (DecodeError::Null | DecodeError::Foreign)) => {
            tracing::warn!(topic = message.topic(), offset = message.offset(), %error, "record passed over");
            Ok(None)
        }
        Err(error) => Err(LogError::Refused(format!(
            "topic {} at offset {}: {error}. Nobody can go on past a window that cannot be read",
            message.topic(),
            message.offset()
        ))),
    }
}

/// Follows the history from a window on.
pub struct WindowsReader {
    scan: Scan,
    last: WindowId,
}

impl WindowsReader {
    /// Yields the records of the windows after `after`, in order (0: from the first).
    ///
    /// # Errors
    /// See [`LogError`].
    pub fn open(config: &KafkaConfig, after: WindowId) -> Result<Self, LogError> {
        let scan = Scan::open(config, config.windows_topic(), 0)?;
        let (start, end) = scan.bounds()?;
        let from = if after == 0 { start } else { scan.at_time(after + 1)?.unwrap_or(end) };
        scan.assign(from)?;
        Ok(Self { scan, last: after })
    }

    /// The next record, or `None` when there is none yet; never blocks.
    ///
    /// # Errors
    /// [`LogError::Refused`] when the history has a hole.
    pub fn poll(&mut self) -> Result<Option<WindowRecord>, LogError> {
        self.poll_for(Duration::ZERO)
    }

    /// The next record, or `None` when there is none until the deadline.
    ///
    /// # Errors
    /// See [`WindowsReader::poll`].
    pub fn next_until(&mut self, deadline: Instant) -> Result<Option<WindowRecord>, LogError> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.poll_for(left.min(POLL_TIMEOUT))? {
                None if left.is_zero() => return Ok(None),
                None => {}
                record => return Ok(record),
            }
        }
    }

    fn poll_for(&mut self, timeout: Duration) -> Result<Option<WindowRecord>, LogError> {
        while let Some(found) = self.scan.poll(timeout)? {
            let ControlFlow::Continue(message) = found else { continue };
            let Some(record) = decode(&message)? else { continue };
            if record.window <= self.last {
                continue;
            }
            if record.before != self.last {
                return Err(LogError::Refused(format!(
                    "{}: window {} follows {} and not {}: the windows between are missing. Restore the topic",
                    self.scan.what(),
                    record.window,
                    record.before,
                    self.last
                )));
            }
            self.last = record.window;
            return Ok(Some(record));
        }
        Ok(None)
    }
}
