//! Damage to the bytes of a record: what disks, wires, other programs and other versions do to it.

use proptest::prelude::*;
use proptest::sample::Index;

/// Texts that numbers, strings and structures are replaced by: edges of the ranges of what a record may say.
const TEXTS: [&str; 20] = [
    "0",
    "-1",
    "1",
    "1.5",
    "1e400",
    "-0",
    "00",
    "18446744073709551616",
    "9223372036854775808",
    "-9223372036854775809",
    "1152921504606846976",
    "4503599627370496",
    "null",
    "true",
    "\"\"",
    "\"\\ud800\"",
    "{}",
    "[[[[[[[[",
    "\u{0}",
    " ",
];

/// One change.
#[derive(Clone, Debug)]
pub(crate) enum Damage {
    FlipBit(Index, u8),
    Overwrite(Index, Vec<u8>),
    Insert(Index, Vec<u8>),
    Remove(Index, Index),
    Repeat(Index, Index),
    Truncate(Index),
    /// Puts a text in the place of a run of letters, digits and signs.
    Replace(Index, &'static str),
}

/// Changes to be made one after another; often none, or one.
pub(crate) fn damage() -> impl Strategy<Value = Vec<Damage>> {
    let index = any::<Index>;
    let bytes = || prop::collection::vec(any::<u8>(), 0..12);
    let one = prop_oneof![
        (index(), 0..8_u8).prop_map(|(at, bit)| Damage::FlipBit(at, bit)),
        (index(), bytes()).prop_map(|(at, bytes)| Damage::Overwrite(at, bytes)),
        (index(), bytes()).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        (index(), index()).prop_map(|(from, to)| Damage::Remove(from, to)),
        (index(), index()).prop_map(|(from, to)| Damage::Repeat(from, to)),
        index().prop_map(Damage::Truncate),
        (index(), prop::sample::select(&TEXTS[..])).prop_map(|(at, text)| Damage::Replace(at, text)),
    ];
    prop::collection::vec(one, 0..4)
}

/// Makes the changes.
pub(crate) fn apply(changes: &[Damage], bytes: &mut Vec<u8>) {
    for change in changes {
        if bytes.is_empty() {
            return;
        }
        let length = bytes.len();
        match change {
            Damage::FlipBit(at, bit) => bytes[at.index(length)] ^= 1 << bit,
            Damage::Overwrite(at, with) => {
                let from = at.index(length);
                let to = length.min(from + with.len());
                bytes[from..to].copy_from_slice(&with[..to - from]);
            }
            Damage::Insert(at, what) => {
                let at = at.index(length + 1);
                bytes.splice(at..at, what.iter().copied());
            }
            Damage::Remove(from, to) => {
                let (from, to) = stretch(*from, *to, length);
                bytes.drain(from..to);
            }
            Damage::Repeat(from, to) => {
                let (from, to) = stretch(*from, *to, length);
                let again = bytes[from..to].to_vec();
                bytes.splice(to..to, again);
            }
            Damage::Truncate(at) => bytes.truncate(at.index(length)),
            Damage::Replace(at, text) => {
                let at = at.index(length);
                let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
                let from = bytes[..at].iter().rposition(|byte| !is_word(byte)).map_or(0, |before| before + 1);
                let to =
                    bytes[at..].iter().position(|byte| !is_word(byte)).map_or(length, |after| at + after);
                bytes.splice(from..to, text.bytes());
            }
        }
    }
}

/// A stretch of at most 32 bytes, so that repeats do not grow beyond reason.
fn stretch(from: Index, to: Index, length: usize) -> (usize, usize) {
    let from = from.index(length);
    (from, length.min(from + 1 + to.index(32)))
}
