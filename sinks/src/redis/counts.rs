//! Reading a store on Redis.

use std::collections::{BTreeMap, BTreeSet};

use fencepost_model::placement::{LANES, lane};
use fencepost_model::{Fence, Id};
use redis::{RedisError, Value, from_redis_value};

use super::connection::{Connection, RedisConfig};
use super::keys::Keys;
use super::{parse_fence, parse_fences, read, scan};
use crate::counts::{Count, Debts};
use crate::store::StoreError;

/// Reads the counters under one prefix, each answer as of one instant.
pub(crate) struct RedisCounts {
    connection: Connection,
    keys: Keys,
}

impl RedisCounts {
    pub(crate) fn new(config: &RedisConfig) -> Result<Self, StoreError> {
        Ok(Self { connection: Connection::new(config)?, keys: Keys::new(&config.key_prefix) })
    }

    pub(crate) fn fences(&mut self) -> Result<Vec<Option<Fence>>, StoreError> {
        let Self { connection, keys } = self;
        let texts = connection.with(|connection| read(connection, &keys.fences()))?;
        parse_fences(keys, texts)
    }

    pub(crate) fn counts<I: Id>(&mut self, items: &[I]) -> Result<Vec<Count<I>>, StoreError> {
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

    pub(crate) fn items<I: Id>(&mut self) -> Result<Vec<I>, StoreError> {
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

    pub(crate) fn debts<I: Id>(&mut self) -> Result<Debts<I>, StoreError> {
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
