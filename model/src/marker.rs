use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Micros, Position, WindowId};

/// What kind of cut a window ends at. Travels marker → totals → fence → reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CutKind {
    /// The window ends at a commit: its cut is a state the database was in.
    Whole,
    /// It ends within a transaction: nobody compares or labels at it.
    Partial,
    /// Whole, but a backfill or an adoption is not finished.
    Incomplete,
}

impl CutKind {
    /// Whether the cut is a state the database was in.
    pub fn ends_at_commit(self) -> bool {
        !matches!(self, CutKind::Partial)
    }

    /// The word used in records and fences.
    pub fn as_str(self) -> &'static str {
        match self {
            CutKind::Whole => "whole",
            CutKind::Partial => "partial",
            CutKind::Incomplete => "incomplete",
        }
    }
}

impl fmt::Display for CutKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for CutKind {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [CutKind::Whole, CutKind::Partial, CutKind::Incomplete]
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or(())
    }
}

/// The record that closes a window in one partition of the flips topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Marker {
    /// Version of the record: [`crate::record::VERSION`].
    pub v: u64,
    /// The window that it closes.
    #[serde(rename = "m")]
    pub window: WindowId,
    /// The window before.
    #[serde(rename = "b")]
    pub before: WindowId,
    /// Where the cut stands in the source: every event at or before it is in this window or an earlier one.
    #[serde(rename = "p")]
    pub position: Position,
    /// End LSN of the last transaction that is whole in the log: what may be acknowledged to Postgres.
    #[serde(rename = "e")]
    pub end_lsn: u64,
    /// Commit time of the last transaction in the window; never moves back.
    #[serde(rename = "a")]
    pub as_of: Micros,
    /// What kind of cut it is.
    #[serde(rename = "k")]
    pub kind: CutKind,
    /// Number of events of this partition in the window: distinct positions above the marker before.
    #[serde(rename = "n")]
    pub count: u64,
}

/// The record of a window in the `windows` topic: the history by which relays and readers find their place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowRecord {
    /// Version of the record: [`crate::record::VERSION`].
    pub v: u64,
    /// The window.
    #[serde(rename = "m")]
    pub window: WindowId,
    /// The window before.
    #[serde(rename = "b")]
    pub before: WindowId,
    /// Where the cut stands in the source.
    #[serde(rename = "p")]
    pub position: Position,
    /// End LSN of the last transaction that is whole in the log.
    #[serde(rename = "e")]
    pub end_lsn: u64,
    /// Commit time of the last transaction in the window; never moves back.
    #[serde(rename = "a")]
    pub as_of: Micros,
    /// What kind of cut it is.
    #[serde(rename = "k")]
    pub kind: CutKind,
    /// Highest op of any flip logged so far.
    #[serde(rename = "o")]
    pub op: i64,
    /// Number of events by partition of the flips topic.
    #[serde(rename = "n")]
    pub counts: Vec<u64>,
    /// Kafka's id of the flips topic: another id is another topic under the same name.
    pub flips_topic: String,
    /// Postgres' system identifier of the source.
    pub system: String,
    /// Postgres' timeline of the source.
    pub timeline: u32,
}

impl WindowRecord {
    /// Number of events in the window, over all partitions.
    pub fn events(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The marker that closes this window in the given partition.
    pub fn marker(&self, partition: usize) -> Marker {
        Marker {
            v: self.v,
            window: self.window,
            before: self.before,
            position: self.position,
            end_lsn: self.end_lsn,
            as_of: self.as_of,
            kind: self.kind,
            count: self.counts[partition],
        }
    }
}
