use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::str::FromStr;

use integer_encoding::VarInt;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// An identifier of items and users.
///
/// 64-bit integers today; everything downstream is generic over it, so that other kinds can follow.
pub trait Id:
    Copy + Ord + Hash + Debug + Display + FromStr + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// Folds the id to 32 bits for the placement rules. Frozen: it decides buckets, lanes and partitions.
    fn fold(self) -> u32;

    /// Appends the id in binary; shorter the closer it lies behind `previous` (sorted runs are deltas).
    fn encode_after(self, previous: Option<Self>, out: &mut Vec<u8>);

    /// Reads what [`Id::encode_after`] wrote with the same `previous`, and moves `input` past it.
    ///
    /// # Errors
    /// When the bytes end early or hold no id.
    fn decode_after(previous: Option<Self>, input: &mut &[u8]) -> Result<Self, IdError>;
}

/// Bytes that hold no identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bytes hold no identifier")]
pub struct IdError;

impl Id for i64 {
    fn fold(self) -> u32 {
        let bits = self.cast_unsigned();
        let low = bits & 0xffff_ffff;
        let folded = low ^ (bits >> 32);
        u32::try_from(folded).expect("both halves are below 2^32")
    }

    fn encode_after(self, previous: Option<Self>, out: &mut Vec<u8>) {
        put_i64(self.wrapping_sub(previous.unwrap_or(0)), out);
    }

    fn decode_after(previous: Option<Self>, input: &mut &[u8]) -> Result<Self, IdError> {
        take_i64(input).map(|delta| previous.unwrap_or(0).wrapping_add(delta)).ok_or(IdError)
    }
}

/// Appends a signed integer as a zigzag varint.
pub fn put_i64(n: i64, out: &mut Vec<u8>) {
    let mut bytes = [0; 10];
    let length = n.encode_var(&mut bytes);
    out.extend_from_slice(&bytes[..length]);
}

/// Appends an unsigned integer as a varint.
pub fn put_u64(n: u64, out: &mut Vec<u8>) {
    let mut bytes = [0; 10];
    let length = n.encode_var(&mut bytes);
    out.extend_from_slice(&bytes[..length]);
}

/// Reads a zigzag varint, or `None` when the bytes end early or are none.
pub fn take_i64(input: &mut &[u8]) -> Option<i64> {
    let (n, length) = i64::decode_var(input)?;
    *input = &input[length..];
    Some(n)
}

/// Reads a varint, or `None` when the bytes end early or are none.
pub fn take_u64(input: &mut &[u8]) -> Option<u64> {
    let (n, length) = u64::decode_var(input)?;
    *input = &input[length..];
    Some(n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_id_survives_its_encoding(id: i64, previous: Option<i64>, rest: Vec<u8>) {
            let mut bytes = Vec::new();
            id.encode_after(previous, &mut bytes);
            bytes.extend(&rest);
            let mut input = &bytes[..];
            prop_assert_eq!(i64::decode_after(previous, &mut input), Ok(id));
            prop_assert_eq!(input, &rest[..]);
        }

        #[test]
        fn garbage_is_refused_or_read_but_never_panics(bytes: Vec<u8>) {
            let _ = i64::decode_after(None, &mut &bytes[..]);
        }
    }
}
