//! The targets: what has to hold of a decoder's answer, whatever the input.

use fencepost_model::record::{self, Record};
use fencepost_model::totals::{PART_BYTES, PartJoiner};
use fencepost_model::{
    Correction, CutKind, Event, Fence, Flip, LaneTotals, Position, Positioned, TotalCorrection, WindowRecord,
};
use proptest::prelude::*;

use crate::damage::{self, damage};
use crate::{Outcome, fuzz};

/// Records of ours, damaged, and now and then garbage.
fn damaged(record: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let ours = (record, damage()).prop_map(|(mut bytes, changes)| {
        damage::apply(&changes, &mut bytes);
        bytes
    });
    prop_oneof![9 => ours, 1 => prop::collection::vec(any::<u8>(), 0..200)]
}

fn position() -> impl Strategy<Value = Position> {
    any::<(u64, u64, u32)>().prop_map(Position::from)
}

fn kind() -> impl Strategy<Value = CutKind> {
    prop::sample::select(&[CutKind::Whole, CutKind::Partial, CutKind::Incomplete][..])
}

fn event() -> impl Strategy<Value = Event<i64>> {
    let flip = (any::<(i64, i64, bool, bool, i64)>(), 1..Flip::<i64>::OP_LIMIT)
        .prop_map(|((item, user, was, liked, at), op)| Event::Flip(Flip { item, user, op, was, liked, at }));
    let correction = (any::<(i64, i64, Option<String>, i64, i64)>(), 0..1_u64 << 52).prop_map(
        |((id, item, store, amount, at), cut)| {
            Event::Correction(Correction { id, item, store, amount, cut, at })
        },
    );
    prop_oneof![3 => flip, 1 => correction]
}

fn window() -> impl Strategy<Value = WindowRecord> {
    let numbers = (0_u64..1 << 51, 1_u64..1 << 50, any::<(u64, i64, i64)>());
    let names = (any::<String>(), any::<String>(), any::<u32>());
    (numbers, position(), kind(), prop::collection::vec(any::<u64>(), 1..9), names).prop_map(
        |((before, gap, (end_lsn, as_of, op)), position, kind, counts, (flips_topic, system, timeline))| {
            let (v, window) = (record::VERSION, before + gap);
            WindowRecord {
                v,
                window,
                before,
                position,
                end_lsn,
                as_of,
                kind,
                op,
                counts,
                flips_topic,
                system,
                timeline,
            }
        },
    )
}

fn lane_totals() -> impl Strategy<Value = LaneTotals<i64>> {
    let totals = prop::collection::btree_map(any::<i64>(), any::<i64>(), 0..20);
    let correction = (any::<(i64, i64, i64)>(), prop::option::of("[a-z]{0,9}"), 0..1_u64 << 52)
        .prop_map(|((item, id, amount), store, cut)| TotalCorrection { item, store, id, amount, cut });
    let corrections = prop::collection::btree_set(correction, 0..6);
    let head = (0..64_u8, 0_u64..1 << 51, 1_u64..1 << 50, any::<(u64, i64)>(), kind());
    (head, totals, corrections).prop_map(
        |((lane, before, gap, (epoch, as_of), kind), totals, corrections)| LaneTotals {
            lane,
            window: before + gap,
            before,
            epoch,
            as_of,
            kind,
            totals: totals.into_iter().collect(),
            corrections: corrections.into_iter().collect(),
        },
    )
}

fn encoded(record: &Record<i64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    match record {
        Record::Event(event) => record::encode_event(event, &mut bytes),
        Record::Marker(marker) => record::encode_marker(marker, &mut bytes),
    }
    bytes
}

/// What is decoded is what was meant: written again, it is read as the same.
#[test]
fn flips() {
    let event =
        (position(), event()).prop_map(|(position, event)| Record::Event(Positioned { position, event }));
    let marker = (window(), any::<prop::sample::Index>())
        .prop_map(|(window, partition)| Record::Marker(window.marker(partition.index(window.counts.len()))));
    fuzz(
        damaged(prop_oneof![event, marker].prop_map(|record| encoded(&record))),
        |bytes| match record::decode::<i64>(&bytes) {
            Ok(record) => {
                let again = record::decode::<i64>(&encoded(&record));
                prop_assert_eq!(again.map_err(|error| TestCaseError::fail(error.to_string()))?, record);
                Ok(Outcome::Decoded)
            }
            Err(error) => {
                prop_assert!(!error.to_string().is_empty());
                Ok(Outcome::Refused)
            }
        },
    );
}

#[test]
fn windows() {
    let encoded = |record: &WindowRecord| {
        let mut bytes = Vec::new();
        record::encode_window(record, &mut bytes);
        bytes
    };
    fuzz(damaged(window().prop_map(move |record| encoded(&record))), |bytes| {
        match record::decode_window(&bytes) {
            Ok(record) => {
                prop_assert!(record.before < record.window);
                let again = record::decode_window(&encoded(&record));
                prop_assert_eq!(again.map_err(|error| TestCaseError::fail(error.to_string()))?, record);
                Ok(Outcome::Decoded)
            }
            Err(error) => {
                prop_assert!(!error.to_string().is_empty());
                Ok(Outcome::Refused)
            }
        }
    });
}

/// Parts of one lane from several incarnations, some with a checksum that fits the damage, so that it does not stop all
/// of it. What a reader holds of them stays within the bytes that it was given.
#[test]
fn totals() {
    let part = (damaged(lane_totals().prop_map(|totals| totals.encode().remove(0))), 0..6_u64, any::<bool>());
    let part = part.prop_map(|(mut bytes, incarnation, fits)| {
        if let Some(covered) = bytes.len().checked_sub(4).filter(|_| fits) {
            let checksum = crc32fast::hash(&bytes[..covered]).to_le_bytes();
            bytes[covered..].copy_from_slice(&checksum);
        }
        (incarnation, bytes)
    });
    fuzz(prop::collection::vec(part, 1..4), |parts| {
        let mut joiner = PartJoiner::<i64>::default();
        let (mut given, mut outcome) = (0, Outcome::Refused);
        for (incarnation, bytes) in &parts {
            given += bytes.len();
            let Ok(Some(record)) = joiner.push(*incarnation, bytes) else { continue };
            outcome = Outcome::Decoded;
            prop_assert!(bytes.len() < PART_BYTES);
            prop_assert!(record.before < record.window && record.lane < 64);
            prop_assert!(record.totals.len() + record.corrections.len() <= given);
            let rises = |pair: &[(i64, i64)]| pair[0].0 < pair[1].0;
            prop_assert!(parts.len() > 1 || record.totals.windows(2).all(rises));
        }
        Ok(outcome)
    });
}

/// The text of a fence has one form: what is read is written the same, byte for byte, or a script that compares texts
/// and a reader would see two fences.
#[test]
fn fences() {
    let fence = (any::<(u64, u64, u64, i64, u64)>(), kind()).prop_map(
        |((generation, epoch, window, as_of, base_cut), kind)| {
            Fence { generation, epoch, window, as_of, kind, base_cut }.to_string().into_bytes()
        },
    );
    fuzz(damaged(fence), |bytes| {
        let text = String::from_utf8_lossy(&bytes);
        match text.parse::<Fence>() {
            Ok(fence) => {
                prop_assert_eq!(fence.to_string(), text);
                Ok(Outcome::Decoded)
            }
            Err(error) => {
                prop_assert!(error.to_string().contains("not a fence"));
                Ok(Outcome::Refused)
            }
        }
    });
}
