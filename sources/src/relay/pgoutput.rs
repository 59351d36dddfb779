//! Decodes what the `pgoutput` plugin says of the outbox (protocol 1, binary values).
//!
//! The stream describes a table once, by a Relation message, before its first row, and again after the table changed;
//! rows then name it by its OID alone. A new stream describes everything anew: a [`Decoder`] lives as long as one.
//! Partitions are described too, although their rows come as rows of the outbox: so it is a row that is refused, not
//! the description of a table.

use std::collections::{HashMap, HashSet};

use fencepost_model::Event;

use super::outbox::{self, COLUMNS};
use super::{BadRow, Change};

/// So many other tables are remembered; a row of one that is forgotten is refused all the same.
const OTHERS_MAX: usize = 1_000;

/// Why a message cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes are no message of the protocol.
    #[error("replication message is malformed: {0}")]
    Malformed(&'static str),
    /// The stream carries another table, or an outbox with other columns.
    #[error(
        "table {table} is not the outbox that this build reads: {difference}; publish fencepost.outbox alone, and run the build that migrated the database"
    )]
    NotTheOutbox {
        /// Its name.
        table: String,
        /// What differs.
        difference: String,
    },
}

/// Decodes the messages of one stream.
#[derive(Debug, Default)]
pub struct Decoder {
    /// OIDs under which the stream has described the outbox.
    outbox: HashSet<u32>,
    /// Other tables, and why their rows are refused.
    others: HashMap<u32, DecodeError>,
}

/// What is in one column of a row.
pub(super) type Column<'a> = Option<&'a [u8]>;

impl Decoder {
    /// Takes one message between Begin and Commit. `None` for those that say nothing about the outbox's rows.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn decode(&mut self, message: &[u8]) -> Result<Option<Change>, DecodeError> {
        let mut input = Input(message);
        match input.byte()? {
            b'R' => self.relation(&mut input).map(|()| None),
            b'I' => self.insert(&mut input).map(|row| Some(Change::Row(row))),
            // Types and origins say nothing. Updates, deletes and truncations of the outbox are housekeeping: what was
            // once inserted stays said.
            b'Y' | b'O' | b'U' | b'D' | b'T' => Ok(None),
            _ => Err(DecodeError::Malformed("no such kind of message")),
        }
    }

    fn relation(&mut self, input: &mut Input<'_>) -> Result<(), DecodeError> {
        let oid = input.u32()?;
        let (schema, name) = (input.text()?, input.text()?);
        let _replica_identity = input.byte()?;
        let mut columns = Vec::new();
        for _ in 0..input.u16()? {
            let _flags = input.byte()?;
            let name = input.text()?;
            let kind = input.u32()?;
            let _modifier = input.u32()?;
            columns.push((name, kind));
        }
        input.end()?;
        match difference((schema, name), &columns) {
            None => {
                self.others.remove(&oid);
                self.outbox.insert(oid);
            }
            Some(difference) => {
                if self.others.len() >= OTHERS_MAX {
                    self.others.clear();
                }
                self.outbox.remove(&oid);
                let table = format!("{schema}.{name}");
                self.others.insert(oid, DecodeError::NotTheOutbox { table, difference });
            }
        }
        Ok(())
    }

    fn insert(&self, input: &mut Input<'_>) -> Result<Result<Event<i64>, BadRow>, DecodeError> {
        let oid = input.u32()?;
        if !self.outbox.contains(&oid) {
            let other = self.others.get(&oid).cloned();
            return Err(other.unwrap_or(DecodeError::Malformed("a row of a table that was not described")));
        }
        if input.byte()? != b'N' || usize::from(input.u16()?) != COLUMNS.len() {
            return Err(DecodeError::Malformed("a row with other columns than described"));
        }
        let mut row: [Column<'_>; COLUMNS.len()] = [None; COLUMNS.len()];
        for column in &mut row {
            *column = match input.byte()? {
                b'n' => None,
                b'b' => {
                    let length = input.u32()?;
                    Some(input.bytes(length as usize)?)
                }
                _ => return Err(DecodeError::Malformed("a value that is not in binary")),
            };
        }
        input.end()?;
        Ok(outbox::event(&row))
    }
}

/// What makes a table another than the outbox, if anything does.
fn difference(table: (&str, &str), columns: &[(&str, u32)]) -> Option<String> {
    if table != outbox::TABLE {
        return Some("it has another name".to_owned());
    }
    let place = (0..COLUMNS.len().max(columns.len())).find(|i| COLUMNS.get(*i) != columns.get(*i))?;
    let describe = |columns: &[(&str, u32)]| match columns.get(place) {
        Some((name, kind)) => format!("{name} of type {kind}"),
        None => "none".to_owned(),
    };
    Some(format!("column {} is {}, not {}", place + 1, describe(columns), describe(&COLUMNS)))
}

/// The rest of a message.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn bytes(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(DecodeError::Malformed("it ends early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(DecodeError::Malformed("it ends early"))?;
        self.0 = rest;
        Ok(*taken)
    }

    fn byte(&mut self) -> Result<u8, DecodeError> {
        self.array().map(u8::from_be_bytes)
    }

    fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_be_bytes)
    }

    /// Text up to a zero byte.
    fn text(&mut self) -> Result<&'a str, DecodeError> {
        let length =
            self.0.iter().position(|byte| *byte == 0).ok_or(DecodeError::Malformed("text without an end"))?;
        let text = self.bytes(length)?;
        self.byte()?;
        str::from_utf8(text).map_err(|_| DecodeError::Malformed("text is not UTF-8"))
    }

    fn end(&self) -> Result<(), DecodeError> {
        if self.0.is_empty() { Ok(()) } else { Err(DecodeError::Malformed("bytes after its end")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_model::{Correction, Flip};
    use proptest::prelude::*;

    /// The description of the outbox as Postgres 15 sends it, with OID 0x4000.
    fn relation(oid: u32, table: (&str, &str), columns: &[(&str, u32)]) -> Vec<u8> {
        let mut bytes = vec![b'R'];
        bytes.extend(oid.to_be_bytes());
        for text in [table.0, table.1] {
            bytes.extend(text.as_bytes());
            bytes.push(0);
        }
        bytes.push(b'd');
        bytes.extend(u16::try_from(columns.len()).expect("few").to_be_bytes());
        for (name, kind) in columns {
            bytes.push(0);
            bytes.extend(name.as_bytes());
            bytes.push(0);
            bytes.extend(kind.to_be_bytes());
            bytes.extend(u32::MAX.to_be_bytes());
        }
        bytes
    }

    fn insert(oid: u32, row: &[Option<&[u8]>]) -> Vec<u8> {
        let mut bytes = vec![b'I'];
        bytes.extend(oid.to_be_bytes());
        bytes.push(b'N');
        bytes.extend(u16::try_from(row.len()).expect("few").to_be_bytes());
        for column in row {
            match column {
                None => bytes.push(b'n'),
                Some(value) => {
                    bytes.push(b'b');
                    bytes.extend(u32::try_from(value.len()).expect("short").to_be_bytes());
                    bytes.extend(*value);
                }
            }
        }
        bytes
    }

    fn decoder() -> Decoder {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.decode(&relation(0x4000, outbox::TABLE, &COLUMNS)), Ok(None));
        decoder
    }

    fn int(value: i64) -> [u8; 8] {
        value.to_be_bytes()
    }

    #[test]
    fn a_flip_and_a_correction_are_read() {
        let (at, item, user, op) = (int(1_000), int(42), int(-7), int(9));
        let row = [
            Some(&at[..]),
            Some(&item),
            Some(&user),
            Some(&op),
            Some(&[0][..]),
            Some(&[1]),
            None,
            None,
            None,
            None,
        ];
        let flip = Flip { item: 42, user: -7, op: 9, was: false, liked: true, at: 946_684_800_001_000 };
        let read = decoder().decode(&insert(0x4000, &row));
        assert_eq!(read, Ok(Some(Change::Row(Ok(Event::Flip(flip))))));

        let (id, amount, cut) = (int(3), int(-2), int(1_790_000_000_000));
        let row = [
            Some(&at[..]),
            Some(&item),
            None,
            None,
            None,
            None,
            Some(&id),
            Some(b"redis"),
            Some(&amount),
            Some(&cut),
        ];
        let correction = Correction {
            id: 3,
            item: 42,
            store: Some("redis".to_owned()),
            amount: -2,
            cut: 1_790_000_000_000,
            at: 946_684_800_001_000,
        };
        let read = decoder().decode(&insert(0x4000, &row));
        assert_eq!(read, Ok(Some(Change::Row(Ok(Event::Correction(correction))))));
    }

    #[test]
    fn a_row_that_is_no_event_is_told_apart_and_blocks_nothing() {
        let (at, one, zero, infinity) = (int(1_000), int(1), int(0), int(i64::MAX));
        let long = [b'x'; 500];
        let flip = [
            Some(&at[..]),
            Some(&one),
            Some(&one),
            Some(&one),
            Some(&[0][..]),
            Some(&[1]),
            None,
            None,
            None,
            None,
        ];
        let cases: [(usize, Option<&[u8]>, &str); 9] = [
            (0, None, "at is null"),
            (0, Some(&infinity), "at is null or infinite"),
            (1, None, "item_id is null"),
            (2, Some(&[1, 2]), "8 bytes"),
            (3, Some(&zero), "op is outside"),
            (4, Some(&[2]), "neither 0 nor 1"),
            (5, None, "liked is null"),
            (6, Some(&one), "both"),
            (7, Some(&long), "part of a correction"),
        ];
        for (column, value, part) in cases {
            let mut row = flip;
            row[column] = value;
            let Ok(Some(Change::Row(Err(bad)))) = decoder().decode(&insert(0x4000, &row)) else {
                panic!("{part}");
            };
            assert!(bad.reason.contains(part), "{bad}");
            assert!(bad.row.contains("item_id") && bad.row.len() < 1_000, "{bad}");
        }
    }

    #[test]
    fn another_table_or_other_columns_are_refused_by_name() {
        let refusal = |table, columns: &[(&str, u32)]| {
            let mut decoder = decoder();
            let description = relation(0x4000, table, columns);
            assert_eq!(decoder.decode(&description), Ok(None), "a description alone is no fault");
            decoder.decode(&insert(0x4000, &[None; 10])).expect_err("not the outbox").to_string()
        };
        assert!(refusal(("public", "t"), &COLUMNS).contains("public.t"));
        assert!(refusal(outbox::TABLE, &COLUMNS[..9]).contains("column 10 is none"));
        let mut columns = COLUMNS;
        columns[3] = ("op", 23);
        assert!(refusal(outbox::TABLE, &columns).contains("column 4 is op of type 23"));
        let unknown = insert(0x4001, &[None; 10]);
        assert!(matches!(decoder().decode(&unknown), Err(DecodeError::Malformed(_))));
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes: Vec<u8>, tag in prop::sample::select(&b"RIYOUDTx"[..])) {
            let _ = decoder().decode(&bytes);
            let _ = decoder().decode(&[&[tag][..], &bytes].concat());
        }

        #[test]
        fn a_damaged_message_never_panics(at: prop::sample::Index, byte: u8, cut: prop::sample::Index) {
            let row = [Some(&[0; 8][..]); 10];
            for message in [relation(0x4000, outbox::TABLE, &COLUMNS), insert(0x4000, &row)] {
                let mut damaged = message.clone();
                let at = at.index(damaged.len());
                damaged[at] = byte;
                let _ = decoder().decode(&damaged);
                let _ = decoder().decode(&damaged[..cut.index(damaged.len())]);
                prop_assert!(decoder().decode(&message[..message.len() - 1]).is_err());
            }
        }
    }
}
