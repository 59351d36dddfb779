//! The tables of a store, and every statement on them.

use postgres::error::SqlState;

use super::fences::{COLUMNS, FenceRows};
use crate::store::StoreError;

/// Longer names would be cut by Postgres, and two of them might become one.
const NAME_BYTES_MAX: usize = 63;

/// The tables in one schema: `counts`, `lanes`, `aside`. `fencepost migrate` makes them.
#[derive(Clone, Debug)]
pub(crate) struct Tables {
    schema: String,
}

impl Tables {
    /// # Errors
    /// When the name is not one of lower-case letters, digits and underscores.
    pub(crate) fn new(schema: &str) -> Result<Self, StoreError> {
        let letters = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
        if schema.is_empty() || schema.len() > NAME_BYTES_MAX || !schema.chars().all(letters) {
            return Err(StoreError::Refused(format!(
                "schema {schema:?} of the store is no name of 1 to {NAME_BYTES_MAX} lower-case letters, digits and \
                 underscores; correct [store.NAME] schema"
            )));
        }
        Ok(Self { schema: schema.to_owned() })
    }

    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    /// A table, quoted: the name may be a reserved word.
    fn table(&self, name: &str) -> String {
        format!("\"{}\".{name}", self.schema)
    }

    pub(super) fn counts(&self) -> String {
        self.table("counts")
    }

    pub(super) fn lanes(&self) -> String {
        self.table("lanes")
    }

    pub(super) fn aside(&self) -> String {
        self.table("aside")
    }

    /// All fences.
    pub(super) fn fences(&self) -> String {
        format!("SELECT {COLUMNS} FROM {}", self.lanes())
    }

    /// The fences of lanes $1, held to the transaction's end.
    pub(super) fn lock(&self) -> String {
        format!("SELECT {COLUMNS} FROM {} WHERE lane = ANY($1) ORDER BY lane FOR UPDATE", self.lanes())
    }

    /// Adds amounts $2 to items $1, and returns what is owed by those that are below zero.
    pub(super) fn add(&self) -> String {
        format!(
            "WITH added AS (
                 INSERT INTO {} AS counter (item_id, sum)
                 SELECT item_id, amount FROM unnest($1::bigint[], $2::bigint[]) AS offered (item_id, amount)
                 ON CONFLICT (item_id) DO UPDATE SET sum = counter.sum + excluded.sum
                 RETURNING item_id, sum
             )
             SELECT item_id, -sum FROM added WHERE sum < 0",
            self.counts()
        )
    }

    /// Moves aside the counters of items $1 that would go beyond their range with amounts $2, at windows $3.
    pub(super) fn set_aside(&self) -> String {
        format!(
            "WITH gone AS (
                 DELETE FROM {} AS counter
                 USING unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS offered (item_id, amount, window_id)
                 WHERE counter.item_id = offered.item_id AND abs(counter.sum + offered.amount) > 9007199254740991
                 RETURNING counter.item_id, offered.window_id, counter.sum
             )
             INSERT INTO {} (item_id, window_id, sum) SELECT item_id, window_id, sum FROM gone
             ON CONFLICT (item_id, window_id) DO UPDATE SET sum = excluded.sum
             RETURNING item_id, window_id",
            self.counts(),
            self.aside()
        )
    }

    /// Moves fences that are there.
    pub(super) fn move_fences(&self) -> String {
        format!(
            "UPDATE {} AS lane
             SET (generation, epoch, window_id, as_of, kind, base_cut) =
                 ROW (after.generation, after.epoch, after.window_id, after.as_of, after.kind, after.base_cut)
             FROM unnest{} AS after ({COLUMNS}) WHERE lane.lane = after.lane",
            self.lanes(),
            FenceRows::ARRAYS
        )
    }

    /// Gives fences to the lanes that have none.
    pub(super) fn create(&self) -> String {
        format!(
            "INSERT INTO {} ({COLUMNS}) SELECT * FROM unnest{} ON CONFLICT (lane) DO NOTHING",
            self.lanes(),
            FenceRows::ARRAYS
        )
    }

    pub(super) fn is_empty(&self) -> String {
        format!(
            "SELECT NOT EXISTS (SELECT FROM {}) AND NOT EXISTS (SELECT FROM {}) AND NOT EXISTS (SELECT FROM {})",
            self.lanes(),
            self.counts(),
            self.aside()
        )
    }

    pub(super) fn clear(&self) -> String {
        format!("TRUNCATE {}, {}, {}", self.lanes(), self.counts(), self.aside())
    }

    /// The counts of items $1 that have one.
    pub(super) fn read(&self) -> String {
        format!("SELECT item_id, count FROM {} WHERE item_id = ANY($1)", self.counts())
    }

    pub(super) fn items(&self) -> String {
        format!("SELECT item_id FROM {} ORDER BY item_id", self.counts())
    }

    pub(super) fn debts(&self) -> String {
        format!("SELECT item_id, -sum FROM {} WHERE sum < 0", self.counts())
    }

    /// Whether it was the check of a counter's range that failed.
    pub(super) fn is_out_of_range(&self, error: &postgres::Error) -> bool {
        error.as_db_error().is_some_and(|error| {
            *error.code() == SqlState::CHECK_VIOLATION && error.constraint() == Some("counts_sum_in_range")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_is_a_plain_name() {
        for good in ["fencepost", "likes_2", "user", &"x".repeat(NAME_BYTES_MAX)] {
            assert_eq!(Tables::new(good).expect("a name").schema(), good);
        }
        for bad in ["", "a.b", "Likes", "a\"; DROP", "ä", &"x".repeat(NAME_BYTES_MAX + 1)] {
            assert!(Tables::new(bad).is_err(), "{bad}");
        }
    }
}
