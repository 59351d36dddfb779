//! Reading counters: what `fencepost get` shows and an audit compares.

use std::collections::{BTreeMap, BTreeSet};

use fencepost_model::placement::{LANES, lane};
use fencepost_model::{Fence, Id};
use redis::{RedisError, Value, from_redis_value};

use crate::config::StoreConfig;
use crate::redis::{Connection, Keys, parse_fence, parse_fences, read, scan};
use crate::store::StoreError;

/// A counter as read, exact at the cut of its lane's fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count<I> {
    /// The item.
    pub item: I,
    /// The count; a missing counter is a true zero. `None` when what stands there is no number: the next like sets it
    /// aside.
    pub value: Option<i64>,
    /// The fence of its lane.
    pub fence: Fence,
}

/// What counters that show 0 are owed, all read at one instant: an item's sum is its counter minus its debt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Debts<I> {
    /// By item.
    pub by_item: BTreeMap<I, i64>,
    /// The fence of each lane, by lane; `None` where the store has none.
    pub fences: Vec<Option<Fence>>,
}

/// Reads the counters of one store.
pub struct CountsReader {
    connection: Connection,
    keys: Keys,
}

impl CountsReader {
    /// A reader that connects when first used, and again after each error.
    ///
    /// # Errors
    /// When the store's configuration is not valid.
    pub fn open(config: &StoreConfig) -> Result<Self, StoreError> {
        let StoreConfig::Redis(config) = config;
        Ok(Self { connection: Connection::new(config)?, keys: Keys::new(&config.key_prefix) })
    }

    /// The fence of each lane, by lane; `None` where the store has none.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn fences(&mut self) -> Result<Vec<Option<Fence>>, StoreError> {
        let Self { connection, keys } = self;
        let texts = connection.with(|connection| read(connection, &keys.fences()))?;
        parse_fences(keys, texts)
    }

    /// The counters of these items with their lanes' fences, all read at one instant, in the order asked.
    ///
    /// # Errors
    /// See [`StoreError`]; also when a lane has no fence, since nothing says then what its counters are.
    pub fn counts<I: Id>(&mut self, items: &[I]) -> Result<Vec<Count<I>>, StoreError> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let lanes: BTreeSet<u8> = items.iter().map(|item| lane(*item)).collect();
        let fence_keys = lanes.iter().map(|lane| self.keys.fence(*lane));
        let keys: Vec<String> = fence_keys.chain(items.iter().map(|item| self.keys.counter(*item))).collect();
        let mut texts = self.connection.with(|connection| read(connection, &keys))?.into_iter();
        let mut fences = BTreeMap::new();
        for (lane, text) in lanes.into_iter().zip(texts.by_ref()) {
            let text = text.ok_or_else(|| {
                StoreError::Refused(format!(
                    "lane {lane} has no fence at key {}: the store is not built, or has lost its counters; run \
                     `fencepost apply --store NAME`, which says what to do",
                    self.keys.fence(lane)
                ))
            })?;
            fences.insert(lane, parse_fence(&self.keys, lane, &text)?);
        }
        let count = |(item, text): (&I, Option<Vec<u8>>)| Count {
            item: *item,
            value: text.map_or(Some(0), |text| str::from_utf8(&text).ok()?.parse().ok()),
            fence: fences[&lane(*item)],
        };
        Ok(items.iter().zip(texts).map(count).collect())
    }

    /// Every item that has a counter, by item, each once.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn items<I: Id>(&mut self) -> Result<Vec<I>, StoreError> {
        let keys = &self.keys;
        self.connection.with(|connection| {
            let mut items = BTreeSet::new();
            scan(connection, keys, |_, found| {
                items.extend(found.iter().filter_map(|key| keys.item::<I>(key)));
                Ok(true)
            })?;
            Ok(items.into_iter().collect())
        })
    }

    /// What counters that show 0 are owed.
    ///
    /// # Errors
    /// See [`StoreError`]; also when a debt is no number.
    pub fn debts<I: Id>(&mut self) -> Result<Debts<I>, StoreError> {
        let Self { connection, keys } = self;
        let mut pipeline = redis::pipe();
        pipeline.atomic().cmd("MGET").arg(keys.fences());
        for lane in 0..LANES {
            pipeline.cmd("HGETALL").arg(keys.debt(lane));
        }
        let answers: Vec<Value> = connection.with(|connection| Ok(pipeline.query(connection)?))?;
        let mut answers = answers.into_iter();
        let fences = from_redis_value(answers.next().unwrap_or(Value::Nil)).map_err(RedisError::from)?;
        let mut debts = BTreeMap::new();
        for answer in answers {
            let debts_of_lane: BTreeMap<String, String> =
                from_redis_value(answer).map_err(RedisError::from)?;
            for (item, debt) in debts_of_lane {
                let (Ok(known), Ok(debt)) = (item.parse(), debt.parse()) else {
                    return Err(StoreError::Refused(format!(
                        "a debt hash under prefix {} holds {item:?} = {debt:?}, which is no item's debt: find what writes \
                         it",
                        keys.prefix()
                    )));
                };
                debts.insert(known, debt);
            }
        }
        Ok(Debts { by_item: debts, fences: parse_fences(keys, fences)? })
    }
}
