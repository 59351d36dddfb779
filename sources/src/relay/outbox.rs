use fencepost_model::totals::STORE_NAME_BYTES_MAX;
use fencepost_model::{Correction, Event, Flip, Micros, WINDOW_LIMIT};

use super::BadRow;
use super::pgoutput::Column;

/// Schema and name of the outbox.
pub(super) const TABLE: (&str, &str) = ("fencepost", "outbox");

const BOOL: u32 = 16;
const INT8: u32 = 20;
const TEXT: u32 = 25;
const TIMESTAMPTZ: u32 = 1184;

/// Columns of the outbox in their order, with the OIDs of their types.
pub(super) const COLUMNS: [(&str, u32); 10] = [
    ("at", TIMESTAMPTZ),
    ("item_id", INT8),
    ("user_id", INT8),
    ("op", INT8),
    ("was", BOOL),
    ("liked", BOOL),
    ("correction_id", INT8),
    ("store", TEXT),
    ("amount", INT8),
    ("cut", INT8),
];

/// Postgres counts time from the year 2000: this much after the Unix epoch, in microseconds.
const POSTGRES_EPOCH: Micros = 946_684_800_000_000;

/// The time that Postgres sends as microseconds since 2000, or `None` for what no clock shows (infinity).
pub(super) fn unix_micros(since_2000: i64) -> Option<Micros> {
    since_2000.checked_add(POSTGRES_EPOCH).filter(|_| since_2000 != i64::MIN && since_2000 != i64::MAX)
}

/// The event that a row says: a flip, or a correction where it has a correction's id.
pub(super) fn event(row: &[Column<'_>; COLUMNS.len()]) -> Result<Event<i64>, BadRow> {
    parse(row).map_err(|reason| BadRow { reason, row: describe(row) })
}

fn parse(row: &[Column<'_>; COLUMNS.len()]) -> Result<Event<i64>, &'static str> {
    let [at, item, user, op, was, liked, correction, store, amount, cut] = *row;
    let at = int8(at)?.and_then(unix_micros).ok_or("at is null or infinite")?;
    let item = int8(item)?.ok_or("item_id is null")?;
    if let Some(id) = int8(correction)? {
        if [user, op, was, liked].iter().any(Option::is_some) {
            return Err("it is both a flip and a correction");
        }
        let store = match store {
            None => None,
            Some(name) if name.len() > STORE_NAME_BYTES_MAX => return Err("store is too long"),
            Some(name) => Some(str::from_utf8(name).map_err(|_| "store is not UTF-8")?.to_owned()),
        };
        let amount = int8(amount)?.ok_or("amount is null")?;
        let cut = int8(cut)?.ok_or("cut is null")?;
        let cut =
            u64::try_from(cut).ok().filter(|cut| *cut < WINDOW_LIMIT).ok_or("cut is outside 0..2^52")?;
        Ok(Event::Correction(Correction { id, item, store, amount, cut, at }))
    } else {
        if [store, amount, cut].iter().any(Option::is_some) {
            return Err("it has a part of a correction, and no correction_id");
        }
        let user = int8(user)?.ok_or("user_id is null")?;
        let op = int8(op)?.ok_or("op is null")?;
        if !(1..Flip::<i64>::OP_LIMIT).contains(&op) {
            return Err("op is outside 1..2^60");
        }
        let was = boolean(was)?.ok_or("was is null")?;
        let liked = boolean(liked)?.ok_or("liked is null")?;
        Ok(Event::Flip(Flip { item, user, op, was, liked, at }))
    }
}

fn int8(column: Column<'_>) -> Result<Option<i64>, &'static str> {
    column
        .map(|bytes| bytes.try_into().map(i64::from_be_bytes).map_err(|_| "a 64-bit value has not 8 bytes"))
        .transpose()
}

fn boolean(column: Column<'_>) -> Result<Option<bool>, &'static str> {
    match column {
        None => Ok(None),
        Some([0]) => Ok(Some(false)),
        Some([1]) => Ok(Some(true)),
        Some(_) => Err("a boolean is neither 0 nor 1"),
    }
}

/// The row for a person to read: values of eight bytes as integers, long ones cut.
fn describe(row: &[Column<'_>; COLUMNS.len()]) -> String {
    const SHOWN_BYTES_MAX: usize = 200;
    let values = COLUMNS.iter().zip(row).map(|((name, kind), column)| match column {
        None => format!("{name} null"),
        Some(bytes) if *kind == TEXT => {
            format!("{name} {:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_BYTES_MAX)]))
        }
        Some(bytes) => match <[u8; 8]>::try_from(*bytes) {
            Ok(bytes) => format!("{name} {}", i64::from_be_bytes(bytes)),
            Err(_) => format!("{name} {:?}", &bytes[..bytes.len().min(SHOWN_BYTES_MAX)]),
        },
    });
    values.collect::<Vec<_>>().join(", ")
}
