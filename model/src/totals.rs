//! The records of the totals log: what a lane's counters gain in a window.
//!
//! One record a lane and window, also when nothing changed. Large ones are cut into parts at a fixed size; the
//! last part carries the checksum of all. Content and cuts are functions of the log of flips, so a replay writes
//! the same bytes again.
//!
//! Layout of a part (integers are varints, signed ones zigzag): version byte, lane byte, window, window before,
//! epoch, as_of, kind byte, part number, last byte (0 or 1), number of totals, then (item as a delta, n) each,
//! number of corrections, then (item as a delta, id, store flag and name, amount, cut) each; the last part ends
//! with the CRC-32 of the bytes of all parts before it, four bytes, little-endian.

use std::collections::BTreeMap;

use crate::id::{put_i64, put_u64, take_i64, take_u64};
use crate::{CutKind, Id, Micros, WindowId};

/// Version of the parts written here.
pub const VERSION: u8 = 1;

/// A part is closed once its entries exceed this many bytes.
pub const PART_BYTES: usize = 256 * 1024;

/// A store's name is at most this long.
pub const STORE_NAME_BYTES_MAX: usize = 100;

/// Parts of this many incarnations are joined at the same time; a zombie's are forgotten first.
const INCARNATIONS_MAX: usize = 4;

/// What the counters of a lane gain in one window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneTotals<I> {
    /// The lane.
    pub lane: u8,
    /// The window.
    pub window: WindowId,
    /// The window before: the fence that this one follows.
    pub before: WindowId,
    /// Epoch of the relay that closed the window.
    pub epoch: u64,
    /// The label of the window's cut.
    pub as_of: Micros,
    /// What kind of cut the window ends at.
    pub kind: CutKind,
    /// (item, n), by item: no item twice, no zero.
    pub totals: Vec<(I, i64)>,
    /// Corrections, by (item, store, id).
    pub corrections: Vec<TotalCorrection<I>>,
}

/// A correction as it travels in the totals log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct TotalCorrection<I> {
    /// The item whose counter is corrected.
    pub item: I,
    /// The store to correct; `None` for every store.
    pub store: Option<String>,
    /// Its id.
    pub id: i64,
    /// What to add.
    pub amount: i64,
    /// The window whose cut the amount was computed at.
    pub cut: WindowId,
}

/// Bytes that are no part of the totals log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartError {
    /// Written by a version that this build does not read.
    #[error("totals record has version {0}, this build reads version {VERSION}; run the newer build")]
    Version(u8),
    /// Malformed.
    #[error("totals record is malformed: {0}")]
    Malformed(&'static str),
    /// The parts do not add up to what was written.
    #[error("totals record fails its checksum")]
    Checksum,
}

impl<I: Id> LaneTotals<I> {
    /// The record's parts, in order.
    pub fn encode(&self) -> Vec<Vec<u8>> {
        debug_assert!(
            self.totals.windows(2).all(|pair| pair[0].0 < pair[1].0),
            "totals are sorted by item (I20)"
        );
        debug_assert!(self.corrections.is_sorted(), "corrections are sorted (I20)");
        let mut parts = Vec::with_capacity(1);
        let mut checksum = crc32fast::Hasher::new();
        let (mut totals, mut corrections) =
            (self.totals.iter().peekable(), self.corrections.iter().peekable());
        loop {
            let mut body = Vec::new();
            let (mut previous, mut count) = (None, 0);
            while body.len() < PART_BYTES
                && let Some((item, n)) = totals.next()
            {
                item.encode_after(previous, &mut body);
                put_i64(*n, &mut body);
                (previous, count) = (Some(*item), count + 1);
            }
            let mut tail = Vec::new();
            let (mut previous, mut corrected) = (None, 0);
            while body.len() + tail.len() < PART_BYTES
                && let Some(correction) = corrections.next()
            {
                put_correction(correction, previous, &mut tail);
                (previous, corrected) = (Some(correction.item), corrected + 1);
            }
            let last = totals.peek().is_none() && corrections.peek().is_none();
            let mut part = self.head(parts.len() as u64, last);
            put_u64(count, &mut part);
            part.append(&mut body);
            put_u64(corrected, &mut part);
            part.append(&mut tail);
            checksum.update(&part);
            if last {
                part.extend_from_slice(&checksum.finalize().to_le_bytes());
                parts.push(part);
                return parts;
            }
            parts.push(part);
        }
    }

    fn head(&self, number: u64, last: bool) -> Vec<u8> {
        let mut head = Vec::with_capacity(64);
        head.extend_from_slice(&[VERSION, self.lane]);
        put_u64(self.window, &mut head);
        put_u64(self.before, &mut head);
        put_u64(self.epoch, &mut head);
        put_i64(self.as_of, &mut head);
        head.push(match self.kind {
            CutKind::Whole => 0,
            CutKind::Partial => 1,
            CutKind::Incomplete => 2,
        });
        put_u64(number, &mut head);
        head.push(u8::from(last));
        head
    }
}

fn put_correction<I: Id>(correction: &TotalCorrection<I>, previous: Option<I>, out: &mut Vec<u8>) {
    let TotalCorrection { item, store, id, amount, cut } = correction;
    item.encode_after(previous, out);
    put_i64(*id, out);
    match store {
        None => out.push(0),
        Some(name) => {
            assert!(name.len() <= STORE_NAME_BYTES_MAX, "a store's name was checked when it was read");
            out.push(1);
            put_u64(name.len() as u64, out);
            out.extend_from_slice(name.as_bytes());
        }
    }
    put_i64(*amount, out);
    put_u64(*cut, out);
}

/// One part, decoded.
struct Part<I> {
    number: u64,
    last: bool,
    /// CRC-32 of all parts, in the last one.
    checksum: Option<u32>,
    /// The bytes that the checksum covers.
    covered: usize,
    content: LaneTotals<I>,
}

fn decode_part<I: Id>(bytes: &[u8]) -> Result<Part<I>, PartError> {
    use PartError::Malformed;
    let mut input = bytes;
    let byte = |input: &mut &[u8]| {
        let (first, rest) = input.split_first()?;
        *input = rest;
        Some(*first)
    };
    let version = byte(&mut input).ok_or(Malformed("empty"))?;
    if version != VERSION {
        return Err(PartError::Version(version));
    }
    let short = Malformed("ends early");
    let lane =
        byte(&mut input).filter(|lane| *lane < crate::placement::LANES).ok_or(Malformed("no such lane"))?;
    let window = take_u64(&mut input).ok_or(short)?;
    let before = take_u64(&mut input).ok_or(short)?;
    if before >= window || window >= crate::WINDOW_LIMIT {
        return Err(Malformed("window does not lie above the window before and below 2^52"));
    }
    let epoch = take_u64(&mut input).ok_or(short)?;
    let as_of = take_i64(&mut input).ok_or(short)?;
    let kind = match byte(&mut input) {
        Some(0) => CutKind::Whole,
        Some(1) => CutKind::Partial,
        Some(2) => CutKind::Incomplete,
        _ => return Err(Malformed("no such kind")),
    };
    let number = take_u64(&mut input).ok_or(short)?;
    let last = match byte(&mut input) {
        Some(0) => false,
        Some(1) => true,
        _ => return Err(Malformed("last is neither 0 nor 1")),
    };
    let mut totals = Vec::new();
    for _ in 0..take_u64(&mut input).ok_or(short)? {
        let previous = totals.last().map(|(item, _)| *item);
        let item = I::decode_after(previous, &mut input).map_err(|_| short)?;
        if previous.is_some_and(|previous| previous >= item) {
            return Err(Malformed("totals are not sorted by item"));
        }
        totals.push((item, take_i64(&mut input).ok_or(short)?));
    }
    let mut corrections: Vec<TotalCorrection<I>> = Vec::new();
    for _ in 0..take_u64(&mut input).ok_or(short)? {
        let item = I::decode_after(corrections.last().map(|c| c.item), &mut input).map_err(|_| short)?;
        let id = take_i64(&mut input).ok_or(short)?;
        let store = match byte(&mut input) {
            Some(0) => None,
            Some(1) => {
                let length = take_u64(&mut input)
                    .and_then(|n| usize::try_from(n).ok())
                    .filter(|n| *n <= STORE_NAME_BYTES_MAX)
                    .ok_or(Malformed("store name is too long"))?;
                let (name, rest) = input.split_at_checked(length).ok_or(short)?;
                input = rest;
                Some(str::from_utf8(name).map_err(|_| Malformed("store name is not UTF-8"))?.to_owned())
            }
            _ => return Err(Malformed("store flag is neither 0 nor 1")),
        };
        let amount = take_i64(&mut input).ok_or(short)?;
        let cut = take_u64(&mut input).ok_or(short)?;
        corrections.push(TotalCorrection { item, store, id, amount, cut });
    }
    let covered = bytes.len() - input.len();
    let checksum = match (last, input) {
        (true, [a, b, c, d]) => Some(u32::from_le_bytes([*a, *b, *c, *d])),
        (false, []) => None,
        _ => return Err(Malformed("trailing bytes")),
    };
    let content = LaneTotals { lane, window, before, epoch, as_of, kind, totals, corrections };
    Ok(Part { number, last, checksum, covered, content })
}

/// Joins the parts of one lane's records as they are read from the log.
///
/// Parts are joined within one incarnation of the pipeline only: a zombie's parts may stand between those of its
/// successor. Parts that do not follow are dropped; whoever wrote them first or last wrote the record whole, too.
#[derive(Debug)]
pub struct PartJoiner<I> {
    open: BTreeMap<u64, Open<I>>,
}

#[derive(Debug)]
struct Open<I> {
    next: u64,
    checksum: crc32fast::Hasher,
    content: LaneTotals<I>,
}

impl<I> Default for PartJoiner<I> {
    fn default() -> Self {
        Self { open: BTreeMap::new() }
    }
}

impl<I: Id> PartJoiner<I> {
    /// Takes the next part of the lane in log order, and returns the record that it completes, if it does.
    ///
    /// # Errors
    /// When the bytes are no part, or the record they complete fails its checksum.
    pub fn push(&mut self, incarnation: u64, bytes: &[u8]) -> Result<Option<LaneTotals<I>>, PartError> {
        let mut part = decode_part::<I>(bytes)?;
        let mut record = if part.number == 0 {
            Open { next: 0, checksum: crc32fast::Hasher::new(), content: empty_like(&part.content) }
        } else {
            match self.open.remove(&incarnation) {
                Some(open) if open.next == part.number && open.content.window == part.content.window => open,
                _ => return Ok(None),
            }
        };
        record.next += 1;
        record.checksum.update(&bytes[..part.covered]);
        record.content.totals.append(&mut part.content.totals);
        record.content.corrections.append(&mut part.content.corrections);
        if !part.last {
            self.open.insert(incarnation, record);
            if self.open.len() > INCARNATIONS_MAX {
                self.open.pop_first();
            }
            return Ok(None);
        }
        self.open.remove(&incarnation);
        if part.checksum == Some(record.checksum.finalize()) {
            Ok(Some(record.content))
        } else {
            Err(PartError::Checksum)
        }
    }
}

fn empty_like<I: Id>(totals: &LaneTotals<I>) -> LaneTotals<I> {
    LaneTotals { totals: Vec::new(), corrections: Vec::new(), ..*totals }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lane_totals() -> impl Strategy<Value = LaneTotals<i64>> {
        let totals = prop::collection::btree_map(any::<i64>(), any::<i64>(), 0..50);
        let correction = (any::<i64>(), any::<Option<String>>(), any::<i64>(), any::<i64>(), any::<u64>())
            .prop_map(|(item, store, id, amount, cut)| TotalCorrection {
                item,
                store: store.map(|name| name.chars().take(20).collect()),
                id,
                amount,
                cut,
            });
        let corrections = prop::collection::btree_set(correction, 0..20);
        (0..64_u8, 0..1_u64 << 51, any::<(u64, i64)>(), totals, corrections).prop_map(
            |(lane, before, (epoch, as_of), totals, corrections)| LaneTotals {
                lane,
                window: before + 1,
                before,
                epoch,
                as_of,
                kind: CutKind::Incomplete,
                totals: totals.into_iter().collect(),
                corrections: corrections.into_iter().collect(),
            },
        )
    }

    fn large(window: WindowId) -> LaneTotals<i64> {
        LaneTotals {
            lane: 5,
            window,
            before: window - 1,
            epoch: 1,
            as_of: 7,
            kind: CutKind::Whole,
            totals: (0..200_000_i64).map(|item| (item * 1_000_003, item + 1)).collect(),
            corrections: (0..20_000)
                .map(|id| TotalCorrection { item: id, store: Some("redis".into()), id, amount: -1, cut: 3 })
                .collect(),
        }
    }

    fn join(parts: &[(u64, Vec<u8>)]) -> Vec<LaneTotals<i64>> {
        let mut joiner = PartJoiner::default();
        parts.iter().filter_map(|(who, part)| joiner.push(*who, part).expect("our own part")).collect()
    }

    proptest! {
        #[test]
        fn a_record_survives_its_parts(totals in lane_totals()) {
            let parts: Vec<_> = totals.encode().into_iter().map(|part| (1, part)).collect();
            prop_assert_eq!(join(&parts), vec![totals]);
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>, totals in lane_totals(), at: prop::sample::Index, flip in 1..=255_u8) {
            let _ = PartJoiner::<i64>::default().push(1, &bytes);
            let mut part = totals.encode().remove(0);
            let at = at.index(part.len());
            part[at] ^= flip;
            prop_assert_ne!(PartJoiner::default().push(1, &part), Ok(Some(totals)));
        }
    }

    #[test]
    fn a_large_record_is_cut_and_joined() {
        let parts: Vec<_> = large(9).encode().into_iter().map(|part| (1, part)).collect();
        assert!(parts.len() > 3, "{} parts", parts.len());
        assert!(parts.iter().all(|(_, part)| part.len() < PART_BYTES + 200));
        assert_eq!(join(&parts), vec![large(9)]);
    }

    #[test]
    fn parts_of_a_zombie_between_those_of_its_successor_do_no_harm() {
        let parts = large(9).encode();
        let (mut log, mut zombie) = (Vec::new(), parts.iter());
        for part in &parts {
            log.extend(zombie.next().filter(|_| log.len() < 6).map(|part| (1, part.clone())));
            log.push((2, part.clone()));
        }
        assert_eq!(join(&log), vec![large(9)]);
    }

    #[test]
    fn a_record_with_a_part_missing_is_not_a_record() {
        let mut parts: Vec<_> = large(9).encode().into_iter().map(|part| (1, part)).collect();
        parts.remove(1);
        parts.extend(large(10).encode().into_iter().map(|part| (1, part)));
        assert_eq!(join(&parts), vec![large(10)]);
    }
}
