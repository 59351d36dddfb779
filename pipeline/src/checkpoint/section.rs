//! The arrivals of one partition in one window, packed.
//!
//! Compressed by itself, so a worker unpacks only the partitions that are its own. Keys are sorted and stored as
//! differences: about 8 bytes a flip. Arrivals are kept raw, replays included: what leaves the horizon is retracted row
//! for row, so the sums stay a group whatever was merged in between.

use fencepost_model::varint::{put_i64, put_u64, take_i64, take_u64};
use fencepost_model::{Id, TotalCorrection};

use crate::identity::{Arrivals, FlipKey};

/// A section unpacks to at most this; events of a window are bounded, so anything larger is no section of ours.
const SECTION_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Fast, and most of what sorting and differences leave to gain.
const COMPRESSION_LEVEL: i32 = 1;

/// Sorted, as differences, compressed. A run of one item stores its users as differences too.
pub(super) fn pack<I: Id>(mut arrivals: Arrivals<I>) -> std::io::Result<Vec<u8>> {
    arrivals.flips.sort_unstable();
    arrivals.corrections.sort_unstable();
    let mut raw = Vec::with_capacity(arrivals.flips.len() * 12 + 16);
    put_u64(arrivals.flips.len() as u64, &mut raw);
    let mut previous: Option<FlipKey<I>> = None;
    for flip in &arrivals.flips {
        let run = previous.filter(|previous| previous.item == flip.item);
        flip.item.encode_after(previous.map(|previous| previous.item), &mut raw);
        flip.user.encode_after(run.map(|previous| previous.user), &mut raw);
        // Ops come from one sequence: flips of a window lie close to each other, whatever their order.
        let op = previous.map_or(0, |previous| previous.version);
        put_i64(flip.version.wrapping_sub(op).cast_signed(), &mut raw);
        previous = Some(*flip);
    }
    put_u64(arrivals.corrections.len() as u64, &mut raw);
    for correction in &arrivals.corrections {
        let TotalCorrection { item, store, id, amount, cut } = correction;
        item.encode_after(None, &mut raw);
        put_i64(*id, &mut raw);
        put_i64(*amount, &mut raw);
        put_u64(*cut, &mut raw);
        let name = store.as_deref().map(str::as_bytes);
        put_u64(name.map_or(0, |name| name.len() as u64 + 1), &mut raw);
        raw.extend_from_slice(name.unwrap_or_default());
    }
    zstd::bulk::compress(&raw, COMPRESSION_LEVEL)
}

/// What [`pack`] packed, or `None` when it packed nothing of the kind.
pub(super) fn unpack<I: Id>(section: &[u8]) -> Option<Arrivals<I>> {
    let bytes = zstd::zstd_safe::get_frame_content_size(section).ok().flatten()?;
    let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes <= SECTION_BYTES_MAX)?;
    let raw = zstd::bulk::decompress(section, bytes).ok()?;
    let mut input = &raw[..];
    take_arrivals(&mut input).filter(|_| input.is_empty())
}

fn take_arrivals<I: Id>(input: &mut &[u8]) -> Option<Arrivals<I>> {
    let mut arrivals = Arrivals::default();
    let mut previous: Option<FlipKey<I>> = None;
    for _ in 0..take_u64(input)? {
        let item = I::decode_after(previous.map(|previous| previous.item), input).ok()?;
        let run = previous.filter(|previous| previous.item == item);
        let user = I::decode_after(run.map(|previous| previous.user), input).ok()?;
        let op = previous.map_or(0, |previous| previous.version);
        let version = take_i64(input)?.cast_unsigned().wrapping_add(op);
        previous = Some(FlipKey { item, user, version });
        arrivals.flips.extend(previous);
    }
    for _ in 0..take_u64(input)? {
        let item = I::decode_after(None, input).ok()?;
        let id = take_i64(input)?;
        let amount = take_i64(input)?;
        let cut = take_u64(input)?;
        let store = match take_u64(input)?.checked_sub(1) {
            None => None,
            Some(length) => {
                let (name, rest) = input.split_at_checked(usize::try_from(length).ok()?)?;
                *input = rest;
                Some(str::from_utf8(name).ok()?.to_owned())
            }
        };
        arrivals.corrections.push(TotalCorrection { item, store, id, amount, cut });
    }
    Some(arrivals)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Any arrivals, unsorted.
    pub(in crate::checkpoint) fn arrivals() -> impl Strategy<Value = Arrivals<i64>> {
        let flip = (any::<i64>(), any::<i64>(), 0_u64..1 << 62).prop_map(|(item, user, version)| FlipKey {
            item: item % 50,
            user,
            version,
        });
        let correction = (any::<(i64, i64, i64, u64)>(), any::<Option<String>>())
            .prop_map(|((item, id, amount, cut), store)| TotalCorrection { item, store, id, amount, cut });
        (prop::collection::vec(flip, 0..80), prop::collection::vec(correction, 0..5))
            .prop_map(|(flips, corrections)| Arrivals { flips, corrections })
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let _ = unpack::<i64>(&bytes);
            let _ = take_arrivals::<i64>(&mut &bytes[..]);
        }
    }

    #[test]
    fn a_flip_costs_about_eight_bytes() {
        let flips = (0..100_000_u64)
            .map(|op| {
                let draw = op.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let (item, user) = ((draw >> 48).cast_signed(), (draw >> 16 & 0xff_ffff).cast_signed());
                FlipKey { item, user, version: op << 2 | 1 }
            })
            .collect();
        let bytes = pack(Arrivals { flips, corrections: Vec::new() }).unwrap();
        assert!(bytes.len() < 900_000, "{} bytes", bytes.len());
    }
}
