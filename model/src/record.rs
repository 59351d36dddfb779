//! The JSON records of the flips and `windows` topics.
//!
//! One record is one line of plain JSON that other consumers can read. Ours all start with `{"v":1,`; the key that
//! follows tells what it is: `i` a flip, `c` a correction, `m` a marker. What has no `v` of ours is foreign.
//!
//! ```
//! use fencepost_model::{Event, Flip, Position, Positioned, record};
//! let flip = Flip { item: 42_i64, user: 7, op: 1001, was: false, liked: true, at: 1_790_000_000_000_000 };
//! let event = Positioned { position: Position { epoch: 1, lsn: 23_456_789, index: 0 }, event: Event::Flip(flip) };
//! let mut line = Vec::new();
//! record::encode_event(&event, &mut line);
//! assert_eq!(
//!     std::str::from_utf8(&line)?,
//!     r#"{"v":1,"i":42,"u":7,"o":1001,"w":false,"l":true,"t":1790000000000000,"p":[1,23456789,0]}"#
//! );
//! assert_eq!(record::decode(&line)?, record::Record::Event(event));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::{Correction, Event, Flip, Id, Marker, Micros, Position, Positioned, WindowId, WindowRecord};

/// Version of the records written here.
pub const VERSION: u64 = 1;

/// A record of the flips topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<I> {
    /// Something that changes a count.
    Event(Positioned<I>),
    /// The end of a window in this partition.
    Marker(Marker),
}

/// Why bytes are no record of the flips or `windows` topic.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The record has no value (a tombstone).
    #[error("record has no value")]
    Null,
    /// Not written by Fencepost: no JSON object that starts with a version.
    #[error("record is foreign: it does not start with {{\"v\":")]
    Foreign,
    /// Written by a Fencepost that this one does not know.
    #[error("record has version {0}, this build reads version {VERSION}; run the newer build")]
    Version(u64),
    /// Claims to be ours, and is malformed.
    #[error("record is malformed: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Well-formed, with a value that cannot be.
    #[error("record is invalid: {0}")]
    Invalid(&'static str),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FlipRecord<I> {
    v: u64,
    i: I,
    u: I,
    o: i64,
    w: bool,
    l: bool,
    t: Micros,
    p: Position,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CorrectionRecord<'a, I> {
    v: u64,
    c: i64,
    i: I,
    #[serde(borrow)]
    s: Option<Cow<'a, str>>,
    n: i64,
    x: WindowId,
    t: Micros,
    p: Position,
}

#[derive(Deserialize)]
struct Versioned {
    v: u64,
}

/// Appends an event as one line of JSON, without a line end.
pub fn encode_event<I: Id>(event: &Positioned<I>, out: &mut Vec<u8>) {
    let p = event.position;
    let written = match &event.event {
        Event::Flip(flip) => {
            let Flip { item, user, op, was, liked, at } = *flip;
            let record = FlipRecord { v: VERSION, i: item, u: user, o: op, w: was, l: liked, t: at, p };
            serde_json::to_writer(out, &record)
        }
        Event::Correction(correction) => {
            let Correction { id, item, store, amount, cut, at } = correction;
            let s = store.as_deref().map(Cow::Borrowed);
            let record = CorrectionRecord { v: VERSION, c: *id, i: *item, s, n: *amount, x: *cut, t: *at, p };
            serde_json::to_writer(out, &record)
        }
    };
    written.expect("plain structs serialize to memory");
}

/// Appends a marker as one line of JSON, without a line end.
pub fn encode_marker(marker: &Marker, out: &mut Vec<u8>) {
    serde_json::to_writer(out, marker).expect("plain structs serialize to memory");
}

/// Appends a record of the `windows` topic as one line of JSON, without a line end.
pub fn encode_window(record: &WindowRecord, out: &mut Vec<u8>) {
    serde_json::to_writer(out, record).expect("plain structs serialize to memory");
}

/// Reads a record of the flips topic.
///
/// # Errors
/// See [`DecodeError`]. Nothing that a foreign producer writes panics.
pub fn decode<I: Id>(bytes: &[u8]) -> Result<Record<I>, DecodeError> {
    match bytes.strip_prefix(br#"{"v":1,""#).and_then(|rest| rest.first()) {
        Some(b'i') => decode_flip(bytes),
        Some(b'c') => decode_correction(bytes),
        Some(b'm') => {
            let marker: Marker = serde_json::from_slice(bytes)?;
            check_windows(marker.before, marker.window)?;
            Ok(Record::Marker(marker))
        }
        _ => Err(classify(bytes)),
    }
}

/// Reads a record of the `windows` topic.
///
/// # Errors
/// See [`DecodeError`].
pub fn decode_window(bytes: &[u8]) -> Result<WindowRecord, DecodeError> {
    if !bytes.starts_with(br#"{"v":1,"m""#) {
        return Err(classify(bytes));
    }
    let record: WindowRecord = serde_json::from_slice(bytes)?;
    check_windows(record.before, record.window)?;
    Ok(record)
}

fn decode_flip<I: Id>(bytes: &[u8]) -> Result<Record<I>, DecodeError> {
    let FlipRecord { i, u, o, w, l, t, p, .. } = serde_json::from_slice(bytes)?;
    if !(1..Flip::<I>::OP_LIMIT).contains(&o) {
        return Err(DecodeError::Invalid("op is outside 1..2^60"));
    }
    let flip = Flip { item: i, user: u, op: o, was: w, liked: l, at: t };
    Ok(Record::Event(Positioned { position: p, event: Event::Flip(flip) }))
}

fn decode_correction<I: Id>(bytes: &[u8]) -> Result<Record<I>, DecodeError> {
    let CorrectionRecord { c, i, s, n, x, t, p, .. } = serde_json::from_slice(bytes)?;
    if x >= crate::WINDOW_LIMIT {
        return Err(DecodeError::Invalid("cut is not below 2^52"));
    }
    let store = s.map(Cow::into_owned);
    let correction = Correction { id: c, item: i, store, amount: n, cut: x, at: t };
    Ok(Record::Event(Positioned { position: p, event: Event::Correction(correction) }))
}

fn check_windows(before: WindowId, window: WindowId) -> Result<(), DecodeError> {
    if before < window && window < crate::WINDOW_LIMIT {
        Ok(())
    } else {
        Err(DecodeError::Invalid("window does not lie above the window before and below 2^52"))
    }
}

/// Says why bytes that do not start like a record of ours are none.
fn classify(bytes: &[u8]) -> DecodeError {
    if bytes.is_empty() {
        return DecodeError::Null;
    }
    match serde_json::from_slice::<Versioned>(bytes) {
        Ok(Versioned { v: VERSION }) => DecodeError::Invalid("not laid out as this version writes it"),
        Ok(Versioned { v }) => DecodeError::Version(v),
        Err(_) => DecodeError::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CutKind;
    use proptest::prelude::*;

    fn position() -> impl Strategy<Value = Position> {
        any::<(u64, u64, u32)>().prop_map(Position::from)
    }

    fn event() -> impl Strategy<Value = Event<i64>> {
        let flip = (any::<(i64, i64, bool, bool, i64)>(), 1..Flip::<i64>::OP_LIMIT).prop_map(
            |((item, user, was, liked, at), op)| Event::Flip(Flip { item, user, op, was, liked, at }),
        );
        let correction = (any::<(i64, i64, Option<String>, i64, i64)>(), 0..crate::WINDOW_LIMIT).prop_map(
            |((id, item, store, amount, at), cut)| {
                Event::Correction(Correction { id, item, store, amount, cut, at })
            },
        );
        prop_oneof![flip, correction]
    }

    proptest! {
        #[test]
        fn an_event_survives_its_record(event in event(), position in position()) {
            let event = Positioned { position, event };
            let mut bytes = Vec::new();
            encode_event(&event, &mut bytes);
            prop_assert_eq!(decode(&bytes).expect("our own record"), Record::Event(event));
        }

        #[test]
        fn a_window_and_its_markers_survive_their_records(
            position in position(), end_lsn: u64, as_of: i64, before in 0_u64..1 << 51, gap in 1_u64..1 << 50,
            op: i64, counts: Vec<u64>, flips_topic: String, system: String, timeline: u32,
        ) {
            let window = WindowRecord {
                v: VERSION, window: before + gap, before, position, end_lsn, as_of, kind: CutKind::Partial, op,
                counts, flips_topic, system, timeline,
            };
            let mut bytes = Vec::new();
            encode_window(&window, &mut bytes);
            prop_assert_eq!(&decode_window(&bytes).expect("our own record"), &window);
            for partition in 0..window.counts.len() {
                let marker = window.marker(partition);
                let mut bytes = Vec::new();
                encode_marker(&marker, &mut bytes);
                prop_assert_eq!(decode::<i64>(&bytes).expect("our own record"), Record::Marker(marker));
            }
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let _ = decode::<i64>(&bytes);
            let _ = decode_window(&bytes);
        }
    }

    #[test]
    fn what_is_not_ours_is_told_apart() {
        let reason = |bytes: &[u8]| decode::<i64>(bytes).expect_err("no record of ours").to_string();
        for (bytes, part) in [
            (&b""[..], "no value"),
            (b"null", "foreign"),
            (b"{\"item\":1}", "foreign"),
            (b"\xff\x00", "foreign"),
            (b"{\"v\":2,\"i\":1}", "version 2"),
            (b"{\"v\":1}", "not laid out"),
            (b"{\"v\":1,\"i\":1", "malformed"),
            (br#"{"v":1,"i":1,"u":2,"o":3,"w":0,"l":true,"t":4,"p":[1,2,3]}"#, "malformed"),
            (br#"{"v":1,"i":1,"u":2,"o":3,"w":false,"l":true,"t":4,"p":[1,2,3],"x":1}"#, "unknown field"),
            (br#"{"v":1,"i":1,"u":2,"o":0,"w":false,"l":true,"t":4,"p":[1,2,3]}"#, "op is outside"),
            (br#"{"v":1,"m":5,"b":5,"p":[1,2,3],"e":1,"a":1,"k":"whole","n":1}"#, "window does not lie"),
        ] {
            assert!(reason(bytes).contains(part), "{:?}: {}", String::from_utf8_lossy(bytes), reason(bytes));
        }
    }
}
