//! Assembles the windows of one partition of the flips topic from its records, as a pure state machine.
//!
//! What makes a window whole: its marker follows the last one, and the distinct positions above the last marker and not
//! above its own are as many as it says. Everything else that a log may hold falls away without a trace in the result:
//!
//! - an event at or before the last marker's position is known, a replay of whatever age;
//! - a position that stands twice in the open window counts once;
//! - an event above the marker's own position is the copy of a record whose transaction was aborted: its original is
//!   yet to come;
//! - a marker at or before the last window is a replay;
//! - what cannot be decoded, or belongs to another partition, is a dead letter.
//!
//! So the slices are those of the clean log, in the order of positions (I3). Where they would not be, the assembler
//! refuses (I11), and what is in the wrong partition never meets its duplicates, so it is not counted (I12).

use fencepost_model::placement::{self, PartitionKey};
use fencepost_model::record::{self, DecodeError, Record};
use fencepost_model::{Correction, Event, Flip, Id, Marker, Position, WindowId};

use super::{LogError, PartitionStart, WindowSlice};

/// An open window with more events than this in one partition is none that a relay writes.
const OPEN_EVENTS_MAX: usize = 2_000_000;

/// Assembles the windows of one partition.
#[derive(Debug)]
pub(crate) struct Assembler<I> {
    partition: u32,
    /// Number of partitions of the topic.
    partitions: u32,
    window: WindowId,
    position: Position,
    flips: Run<Flip<I>>,
    corrections: Run<Correction<I>>,
    known: u64,
    key: PartitionKey,
}

/// What a record has led to.
#[derive(Debug)]
pub(crate) enum Pushed<I> {
    /// Nothing to do: an event of the open window, or a replay.
    Taken,
    /// The window that the record closed.
    Slice(WindowSlice<I>),
    /// The record cannot be counted, and does not stop the others.
    DeadLetter(Reason),
}

/// Why a record is a dead letter.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Reason {
    /// No record of the flips topic.
    #[error(transparent)]
    Undecodable(#[from] DecodeError),
    /// Its place is another partition.
    #[error("record is misrouted: its item and bucket belong to partition {0}")]
    Misrouted(u32),
}

impl<I: Id> Assembler<I> {
    /// Starts after the window that `start` names.
    pub(crate) fn new(start: &PartitionStart, partitions: u32) -> Self {
        assert!(start.partition < partitions, "partition {} of {partitions}", start.partition);
        Self {
            partition: start.partition,
            partitions,
            window: start.window,
            position: start.position,
            flips: Run::default(),
            corrections: Run::default(),
            known: 0,
            key: PartitionKey::new(),
        }
    }

    /// Takes the next record of the partition.
    ///
    /// # Errors
    /// [`LogError::Refused`] when a window is not whole.
    pub(crate) fn push(&mut self, offset: i64, payload: &[u8]) -> Result<Pushed<I>, LogError> {
        let event = match record::decode(payload) {
            Err(error) => return Ok(Pushed::DeadLetter(error.into())),
            Ok(Record::Marker(marker)) => return self.close(offset, marker),
            Ok(Record::Event(event)) => event,
        };
        if event.position <= self.position {
            self.known += 1;
            return Ok(Pushed::Taken);
        }
        let key = self.key.write(event.event.item(), event.event.bucket());
        let partition = placement::partition_of_key(key, self.partitions);
        if partition != self.partition {
            return Ok(Pushed::DeadLetter(Reason::Misrouted(partition)));
        }
        match event.event {
            Event::Flip(flip) => self.flips.push(event.position, flip),
            Event::Correction(correction) => self.corrections.push(event.position, correction),
        }
        if self.flips.events.len() + self.corrections.events.len() > OPEN_EVENTS_MAX {
            return Err(refuse(
                self.partition,
                offset,
                format_args!(
                    "more than {OPEN_EVENTS_MAX} events after window {} and no marker; no relay writes so many",
                    self.window
                ),
            ));
        }
        Ok(Pushed::Taken)
    }

    fn close(&mut self, offset: i64, marker: Marker) -> Result<Pushed<I>, LogError> {
        if marker.window <= self.window {
            return Ok(Pushed::Taken);
        }
        if marker.before != self.window {
            return Err(refuse(
                self.partition,
                offset,
                format_args!(
                    "window {} follows {}, and the last one read is {}: what stands between is missing",
                    marker.window, marker.before, self.window
                ),
            ));
        }
        if marker.position < self.position {
            return Err(refuse(
                self.partition,
                offset,
                format_args!(
                    "window {} ends at {:?}, before the end {:?} of window {}",
                    marker.window, marker.position, self.position, self.window
                ),
            ));
        }
        let partition = self.partition;
        let conflict = |position| {
            refuse(
                partition,
                offset,
                format_args!("window {} has two different events at {position:?}", marker.window),
            )
        };
        let flips = std::mem::take(&mut self.flips).up_to(marker.position).map_err(conflict)?;
        let corrections = std::mem::take(&mut self.corrections).up_to(marker.position).map_err(conflict)?;
        let found = flips.len() as u64 + corrections.len() as u64;
        if found != marker.count {
            return Err(refuse(
                self.partition,
                offset,
                format_args!(
                    "window {} has {found} events, and its marker says {}: records are lost, or not as this build reads \
                     them (see topic dead-letters)",
                    marker.window, marker.count
                ),
            ));
        }
        self.window = marker.window;
        self.position = marker.position;
        Ok(Pushed::Slice(WindowSlice {
            partition: self.partition,
            marker,
            next_offset: offset + 1,
            flips,
            corrections,
            known_by_position: std::mem::take(&mut self.known),
        }))
    }
}

fn refuse(partition: u32, offset: i64, what: std::fmt::Arguments<'_>) -> LogError {
    LogError::Refused(format!(
        "flips partition {partition} at offset {offset}: {what}. See `fencepost dump flips`; counts cannot go on past this"
    ))
}

/// Events of the open window with their positions, in log order.
#[derive(Debug)]
struct Run<T> {
    events: Vec<(Position, T)>,
    /// Whether positions rise strictly, as a relay writes them.
    rising: bool,
}

impl<T> Default for Run<T> {
    fn default() -> Self {
        Self { events: Vec::new(), rising: true }
    }
}

impl<T: Eq> Run<T> {
    fn push(&mut self, position: Position, event: T) {
        self.rising &= self.events.last().is_none_or(|(last, _)| *last < position);
        self.events.push((position, event));
    }

    /// The distinct events up to a position, in the order of positions.
    ///
    /// # Errors
    /// With the position at which two different events stand.
    fn up_to(mut self, end: Position) -> Result<Vec<T>, Position> {
        if !self.rising {
            self.events.sort_by_key(|(position, _)| *position);
            let differs = |pair: &&[(Position, T)]| pair[0].0 == pair[1].0 && pair[0].1 != pair[1].1;
            if let Some(pair) = self.events.windows(2).filter(|pair| pair[0].0 <= end).find(differs) {
                return Err(pair[0].0);
            }
            self.events.dedup_by_key(|(position, _)| *position);
        }
        let within = self.events.partition_point(|(position, _)| *position <= end);
        self.events.truncate(within);
        Ok(self.events.into_iter().map(|(_, event)| event).collect())
    }
}

#[cfg(test)]
mod tests;
