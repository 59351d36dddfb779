//! A frame: what one window holds, as the log delivered it.
//!
//! Layout: length of the body and its CRC-32 (four bytes each, little-endian), then the body: a version byte, the
//! marker's fields, the horizon's progress, what was confirmed when it was written, and for each partition its number,
//! next offset and its arrivals, packed (see `section`).

use fencepost_model::varint::{put_i64, put_u64, take_i64, take_u64};
use fencepost_model::{CutKind, Id, Marker, Micros, Position, WindowId};

use serde::{Deserialize, Serialize};

use super::section::{pack, unpack};
use crate::identity::Arrivals;

/// Version of the frames written here.
pub const FRAME_VERSION: u8 = 1;

/// Length and checksum.
const PREFIX_BYTES: usize = 8;

/// What all partitions' markers of a window say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowHead {
    /// The window.
    pub window: WindowId,
    /// The window before.
    pub before: WindowId,
    /// Where the cut stands in the source.
    pub position: Position,
    /// The label of the cut.
    pub as_of: Micros,
    /// What kind of cut it is.
    pub kind: CutKind,
}

impl From<&Marker> for WindowHead {
    fn from(marker: &Marker) -> Self {
        let Marker { window, before, position, as_of, kind, .. } = *marker;
        Self { window, before, position, as_of, kind }
    }
}

/// Everything of a frame but its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// The window's marker.
    pub window: WindowHead,
    /// The oldest window remembered once this one is closed.
    pub remembered_from: WindowId,
    /// The last window that the totals log was known to have when the frame was written.
    pub confirmed: WindowId,
    /// Whether everything remembered is held by frames. Not so while a lost checkpoint is made again.
    pub complete: bool,
    /// (partition, offset to go on reading from), by partition.
    pub offsets: Vec<(u32, i64)>,
}

/// A frame as it is read back: sections still packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) head: FrameHead,
    /// One a partition, in the order of the head's offsets.
    sections: Vec<Vec<u8>>,
}

/// Bytes that are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    /// The file ends within the frame: a torn tail.
    #[error("frame ends early")]
    Torn,
    /// The bytes are not those that were written.
    #[error("frame fails its checksum")]
    Checksum,
    /// Written by another version.
    #[error("frame has version {0}, this build reads version {FRAME_VERSION}")]
    Version(u8),
    /// Malformed although its checksum is right.
    #[error("frame is malformed: {0}")]
    Malformed(&'static str),
}

impl Frame {
    /// The frame of these arrivals, one a partition in the order of the head's offsets; sorts them.
    ///
    /// # Errors
    /// When a section cannot be compressed.
    pub(crate) fn new<I: Id>(
        head: FrameHead,
        arrivals: impl IntoIterator<Item = Arrivals<I>>,
    ) -> std::io::Result<Self> {
        let sections = arrivals.into_iter().map(pack).collect::<Result<Vec<_>, _>>()?;
        assert_eq!(sections.len(), head.offsets.len(), "a frame has a section a partition (I17)");
        Ok(Self { head, sections })
    }

    /// Lets go of the events.
    pub(crate) fn into_head(self) -> FrameHead {
        self.head
    }

    /// Appends the frame's bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; PREFIX_BYTES]);
        out.push(FRAME_VERSION);
        put_head(&self.head, out);
        put_u64(self.sections.len() as u64, out);
        for ((partition, offset), section) in self.head.offsets.iter().zip(&self.sections) {
            put_u64(u64::from(*partition), out);
            put_i64(*offset, out);
            put_u64(section.len() as u64, out);
            out.extend_from_slice(section);
        }
        let body = &out[start + PREFIX_BYTES..];
        let length = u32::try_from(body.len()).expect("a frame is far below 4 GiB: its events are bounded");
        let checksum = crc32fast::hash(body);
        out[start..start + 4].copy_from_slice(&length.to_le_bytes());
        out[start + 4..start + PREFIX_BYTES].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Reads the frame at the start of `input`, and moves `input` past it.
    pub(crate) fn decode(input: &mut &[u8]) -> Result<Self, FrameError> {
        let (prefix, rest) = input.split_at_checked(PREFIX_BYTES).ok_or(FrameError::Torn)?;
        let word = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let length = usize::try_from(word(&prefix[..4])).map_err(|_| FrameError::Torn)?;
        let (body, rest) = rest.split_at_checked(length).ok_or(FrameError::Torn)?;
        if crc32fast::hash(body) != word(&prefix[4..]) {
            return Err(FrameError::Checksum);
        }
        let frame = decode_body(body)?;
        *input = rest;
        Ok(frame)
    }

    /// The arrivals of a partition.
    pub(crate) fn arrivals<I: Id>(&self, partition: u32) -> Result<Arrivals<I>, FrameError> {
        let index = self
            .head
            .offsets
            .iter()
            .position(|(p, _)| *p == partition)
            .ok_or(FrameError::Malformed("no such partition"))?;
        unpack(&self.sections[index]).ok_or(FrameError::Malformed("section does not hold arrivals"))
    }
}

fn put_head(head: &FrameHead, out: &mut Vec<u8>) {
    let WindowHead { window, before, position, as_of, kind } = head.window;
    put_u64(window, out);
    put_u64(before, out);
    put_u64(position.epoch, out);
    put_u64(position.lsn, out);
    put_u64(u64::from(position.index), out);
    put_i64(as_of, out);
    out.push(match kind {
        CutKind::Whole => 0,
        CutKind::Partial => 1,
        CutKind::Incomplete => 2,
    });
    put_u64(head.remembered_from, out);
    put_u64(head.confirmed, out);
    out.push(u8::from(head.complete));
}

fn decode_body(body: &[u8]) -> Result<Frame, FrameError> {
    let (version, mut input) = body.split_first().ok_or(FrameError::Malformed("empty"))?;
    if *version != FRAME_VERSION {
        return Err(FrameError::Version(*version));
    }
    let mut head = take_head(&mut input)?;
    let mut sections = Vec::new();
    let short = FrameError::Malformed("ends early");
    for _ in 0..take_u64(&mut input).ok_or(short)? {
        let partition = take_u64(&mut input)
            .and_then(|n| u32::try_from(n).ok())
            .ok_or(FrameError::Malformed("no such partition"))?;
        let offset = take_i64(&mut input).ok_or(short)?;
        let length = take_u64(&mut input).and_then(|n| usize::try_from(n).ok()).ok_or(short)?;
        let (section, rest) = input.split_at_checked(length).ok_or(short)?;
        input = rest;
        head.offsets.push((partition, offset));
        sections.push(section.to_vec());
    }
    if input.is_empty() { Ok(Frame { head, sections }) } else { Err(FrameError::Malformed("trailing bytes")) }
}

fn take_head(input: &mut &[u8]) -> Result<FrameHead, FrameError> {
    let short = FrameError::Malformed("ends early");
    let window = take_u64(input).ok_or(short)?;
    let before = take_u64(input).ok_or(short)?;
    let epoch = take_u64(input).ok_or(short)?;
    let lsn = take_u64(input).ok_or(short)?;
    let index = take_u64(input).and_then(|n| u32::try_from(n).ok()).ok_or(short)?;
    let as_of = take_i64(input).ok_or(short)?;
    let kind = match take_byte(input) {
        Some(0) => CutKind::Whole,
        Some(1) => CutKind::Partial,
        Some(2) => CutKind::Incomplete,
        _ => return Err(FrameError::Malformed("no such kind")),
    };
    let remembered_from = take_u64(input).ok_or(short)?;
    let confirmed = take_u64(input).ok_or(short)?;
    let complete = match take_byte(input) {
        Some(0) => false,
        Some(1) => true,
        _ => return Err(FrameError::Malformed("complete is neither 0 nor 1")),
    };
    if before >= window || remembered_from > window {
        return Err(FrameError::Malformed("windows are out of order"));
    }
    let window = WindowHead { window, before, position: Position { epoch, lsn, index }, as_of, kind };
    Ok(FrameHead { window, remembered_from, confirmed, complete, offsets: Vec::new() })
}

fn take_byte(input: &mut &[u8]) -> Option<u8> {
    let (first, rest) = input.split_first()?;
    *input = rest;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::section::tests::arrivals;
    use proptest::prelude::*;

    fn head(window: WindowId, partitions: usize) -> FrameHead {
        FrameHead {
            window: WindowHead {
                window,
                before: window - 1,
                position: Position::after_transaction(3, window * 7),
                as_of: -5,
                kind: CutKind::Incomplete,
            },
            remembered_from: window / 2,
            confirmed: window / 3,
            complete: window.is_multiple_of(2),
            offsets: (0_u32..).take(partitions).map(|p| (p * 3, i64::from(p) + 1_000)).collect(),
        }
    }

    fn encoded(window: WindowId, arrivals: Vec<Arrivals<i64>>) -> Vec<u8> {
        let mut bytes = Vec::new();
        Frame::new(head(window, arrivals.len()), arrivals).unwrap().encode(&mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn a_frame_survives_its_bytes(mut arrivals in prop::collection::vec(arrivals(), 1..4), window in 1_u64..1 << 52) {
            let mut bytes = encoded(window, arrivals.clone());
            bytes.push(9);
            let mut input = &bytes[..];
            let frame = Frame::decode(&mut input).unwrap();
            prop_assert_eq!(input, &[9]);
            prop_assert_eq!(&frame.head, &head(window, arrivals.len()));
            for (partition, (p, _)) in arrivals.iter_mut().zip(frame.head.offsets.clone()) {
                partition.flips.sort_unstable();
                partition.corrections.sort_unstable();
                prop_assert_eq!(&frame.arrivals::<i64>(p).unwrap(), partition);
            }
        }

        #[test]
        fn a_frame_cut_or_changed_anywhere_is_refused(
            arrivals in prop::collection::vec(arrivals(), 1..3), at: prop::sample::Index, flip in 1..=255_u8,
        ) {
            let bytes = encoded(5, arrivals);
            let at = at.index(bytes.len());
            prop_assert_eq!(Frame::decode(&mut &bytes[..at]), Err(FrameError::Torn));
            let mut changed = bytes.clone();
            changed[at] ^= flip;
            prop_assert!(Frame::decode(&mut &changed[..]).is_err());
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let _ = decode_body(&bytes);
        }
    }
}
