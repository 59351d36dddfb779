//! A store on Postgres: counters in one table, fences in another, and one transaction moves them together.
//!
//! The fences of the offered lanes are locked first, in the order of the lanes, so that appliers wait for each other and
//! never deadlock; whoever holds a lane's fence is the only one to write its counters. Then amounts are added and
//! fences moved, for all the lanes whose fence stands where the offer says.
//!
//! Commits are not awaited by the disk: a server that crashes may lose the last of them whole, counters and fence
//! alike, and the fence then says what to apply again.

mod connection;
mod counts;
mod failure;
mod fences;
mod tables;

use std::collections::BTreeMap;

use fencepost_model::placement::LANES;
use fencepost_model::{Fence, Id};
use postgres::IsolationLevel;
use postgres::types::{FromSqlOwned, ToSql};

pub(crate) use connection::Connection;
pub use connection::PostgresConfig;
pub(crate) use counts::PostgresCounts;
pub(crate) use failure::failure;

use self::connection::Session;
use self::fences::{FenceRows, read_fence, read_fences};
use self::tables::Tables;
use crate::offer::Offer;
use crate::store::{Buildable, Outcome, Store, StoreError};

/// An item's identifier that can stand in a column.
pub trait ColumnId: Id + ToSql + FromSqlOwned {}

impl<I: Id + ToSql + FromSqlOwned> ColumnId for I {}

/// Counters and fences in one schema of a Postgres database.
pub struct PostgresStore {
    connection: Connection,
    tables: Tables,
}

impl PostgresStore {
    /// A store that connects when first used, and again after each error.
    ///
    /// # Errors
    /// When the URL or the name of the schema is none.
    pub fn new(config: &PostgresConfig) -> Result<Self, StoreError> {
        Ok(Self { connection: Connection::new(config)?, tables: Tables::new(&config.schema)? })
    }
}

impl<I: ColumnId> Store<I> for PostgresStore {
    fn fences(&mut self) -> Result<Vec<Option<Fence>>, StoreError> {
        let tables = &self.tables;
        self.connection.with(|session| {
            let rows =
                session.client.query(&tables.fences(), &[]).map_err(|error| session.failure(&error))?;
            read_fences(&rows)
        })
    }

    fn apply(&mut self, offers: &[Offer<I>]) -> Result<Vec<Outcome<I>>, StoreError> {
        let Self { connection, tables } = self;
        connection.with(|session| match round(session, tables, offers, Beyond::Fails)? {
            Some(outcomes) => Ok(outcomes),
            None => round(session, tables, offers, Beyond::IsSetAside)?.ok_or_else(|| {
                StoreError::Refused(format!(
                    "counters of schema {} are beyond 2^53 though they were set aside; something else writes to its \
                     tables: stop it",
                    tables.schema()
                ))
            }),
        })
    }
}

impl Buildable for PostgresStore {
    fn readable_fences(&mut self) -> Result<Vec<Option<Fence>>, StoreError> {
        // The table's own checks keep anything else out.
        Store::<i64>::fences(self)
    }

    fn create(&mut self, generation: u64) -> Result<(), StoreError> {
        let all = (0..LANES).map(|lane| (lane, Fence::unapplied(generation)));
        let rows = FenceRows::of(all)?;
        let sql = self.tables.create();
        self.connection.durably(|transaction| transaction.execute(&sql, &rows.parameters()).map(drop))
    }

    fn is_empty<I: Id>(&mut self) -> Result<bool, StoreError> {
        let tables = &self.tables;
        self.connection.with(|session| {
            let row = session.client.query_one(&tables.is_empty(), &[]);
            Ok(row.map_err(|error| session.failure(&error))?.get(0))
        })
    }

    fn clear<I: Id>(&mut self) -> Result<(), StoreError> {
        let sql = self.tables.clear();
        self.connection.durably(|transaction| transaction.batch_execute(&sql))
    }
}

/// What to do about a counter whose sum would go beyond 2^53. That costs a look at each counter, for something that
/// never happens; the table's check finds it for nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beyond {
    Fails,
    IsSetAside,
}

/// Makes the offers in one transaction; `None`, and nothing is changed, when a counter would go beyond its range and
/// that fails.
fn round<I: ColumnId>(
    session: &mut Session,
    tables: &Tables,
    offers: &[Offer<I>],
    beyond: Beyond,
) -> Result<Option<Vec<Outcome<I>>>, StoreError> {
    match try_round(session, tables, offers, beyond) {
        Ok(outcomes) => Ok(Some(outcomes)),
        Err(RoundError::Postgres(error)) if beyond == Beyond::Fails && tables.is_out_of_range(&error) => {
            Ok(None)
        }
        Err(RoundError::Postgres(error)) => Err(session.failure(&error)),
        Err(RoundError::Store(error)) => Err(error),
    }
}

#[derive(Debug, thiserror::Error)]
enum RoundError {
    #[error(transparent)]
    Postgres(#[from] postgres::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn try_round<I: ColumnId>(
    session: &mut Session,
    tables: &Tables,
    offers: &[Offer<I>],
    beyond: Beyond,
) -> Result<Vec<Outcome<I>>, RoundError> {
    let lock = session.prepare(tables.lock())?;
    let add = session.prepare(tables.add())?;
    let move_fences = session.prepare(tables.move_fences())?;
    // A snapshot taken before a lock is granted would be refused by the other levels.
    let mut transaction =
        session.client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).start()?;

    let lanes: Vec<i16> = offers.iter().map(|offer| offer.lane.into()).collect();
    let rows = transaction.query(&lock, &[&lanes])?;
    let fences: BTreeMap<u8, Fence> = rows.iter().map(read_fence).collect::<Result<_, _>>()?;
    let follows = |offer: &Offer<I>| {
        fences
            .get(&offer.lane)
            .is_some_and(|fence| *fence == offer.before && offer.after.epoch >= fence.epoch)
    };
    let mut outcomes: Vec<Outcome<I>> = offers
        .iter()
        .map(|offer| match follows(offer) {
            true => Outcome::Applied { set_aside: Vec::new(), debts: Vec::new() },
            false => Outcome::Refused { fence: fences.get(&offer.lane).copied() },
        })
        .collect();

    let Additions { items, amounts, offers: owners } = &Additions::of(offers, follows);
    let offer_of =
        |item: I| owners[items.binary_search(&item).expect("postgres answers about what it was asked")];
    if beyond == Beyond::IsSetAside {
        let windows: Vec<i64> = owners.iter().map(|at| offers[*at].after.window.cast_signed()).collect();
        for row in transaction.query(&tables.set_aside(), &[items, amounts, &windows])? {
            let (item, window): (I, i64) = (row.get(0), row.get(1));
            if let Outcome::Applied { set_aside, .. } = &mut outcomes[offer_of(item)] {
                set_aside.push(format!("{} item_id={item} window_id={window}", tables.aside()));
            }
        }
    }
    if !items.is_empty() {
        for row in transaction.query(&add, &[items, amounts])? {
            let (item, debt): (I, i64) = (row.get(0), row.get(1));
            if let Outcome::Applied { debts, .. } = &mut outcomes[offer_of(item)] {
                debts.push((item, debt));
            }
        }
    }
    let moved =
        FenceRows::of(offers.iter().filter(|offer| follows(offer)).map(|offer| (offer.lane, offer.after)))?;
    let rows = transaction.execute(&move_fences, &moved.parameters())?;
    assert_eq!(rows, moved.len() as u64, "a fence that is locked is there to be moved");
    transaction.commit()?;
    Ok(outcomes)
}

/// What is added to counters, of all offers that follow, by item: neighbours in the table are written together.
struct Additions<I> {
    items: Vec<I>,
    amounts: Vec<i64>,
    /// By which offer.
    offers: Vec<usize>,
}

impl<I: ColumnId> Additions<I> {
    fn of(offers: &[Offer<I>], follows: impl Fn(&Offer<I>) -> bool) -> Self {
        let following = offers.iter().enumerate().filter(|(_, offer)| follows(offer));
        let mut rows: Vec<(I, i64, usize)> = following
            .flat_map(|(at, offer)| offer.amounts.iter().map(move |(item, amount)| (*item, *amount, at)))
            .collect();
        rows.sort_unstable_by_key(|(item, ..)| *item);
        assert!(rows.is_sorted_by(|one, next| one.0 < next.0), "an item is in one lane, and there once");
        Self {
            items: rows.iter().map(|(item, ..)| *item).collect(),
            amounts: rows.iter().map(|(_, amount, _)| *amount).collect(),
            offers: rows.iter().map(|(.., at)| *at).collect(),
        }
    }
}
