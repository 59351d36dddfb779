//! A store on Redis: a counter is a plain string, a lane's fence another, and one script moves them together.

mod connection;
mod counts;
mod keys;
mod script;

use fencepost_model::placement::LANES;
use fencepost_model::{Fence, Id};

pub use connection::RedisConfig;
pub(crate) use counts::RedisCounts;

use self::connection::Connection;
use self::keys::Keys;
use self::script::FenceScript;
use crate::offer::Offer;
use crate::store::{Buildable, Outcome, Store, StoreError};

/// Keys that one SCAN step looks at.
const SCAN_COUNT: usize = 1_000;

/// Counters and fences in one Redis, under one prefix.
pub struct RedisStore {
    connection: Connection,
    keys: Keys,
    script: FenceScript,
}

impl RedisStore {
    /// A store that connects when first used, and again after each error.
    ///
    /// # Errors
    /// When the URL is no Redis URL.
    pub fn new(config: &RedisConfig) -> Result<Self, StoreError> {
        Ok(Self {
            connection: Connection::new(config)?,
            keys: Keys::new(&config.key_prefix),
            script: FenceScript::new(),
        })
    }
}

impl Buildable for RedisStore {
    fn readable_fences(&mut self) -> Result<Vec<Option<Fence>>, StoreError> {
        let keys = &self.keys;
        let texts = self.connection.with(|connection| read(connection, &keys.fences()))?;
        Ok((0..LANES).zip(texts).map(|(lane, text)| parse_fence(keys, lane, &text?).ok()).collect())
    }

    fn create(&mut self, generation: u64) -> Result<(), StoreError> {
        let fence = Fence::unapplied(generation).to_string();
        let mut pipeline = redis::pipe();
        for key in self.keys.fences() {
            pipeline.cmd("SETNX").arg(key).arg(&fence);
        }
        self.connection.with(|connection| Ok(pipeline.exec(connection)?))
    }

    fn is_empty<I: Id>(&mut self) -> Result<bool, StoreError> {
        let keys = &self.keys;
        self.connection.with(|connection| {
            let mut empty = true;
            scan(connection, keys, |_, found| {
                empty &= !found.iter().any(|key| keys.owns::<I>(key));
                Ok(empty)
            })?;
            Ok(empty)
        })
    }

    /// The fences first. Keys under a longer prefix are another store's and stay.
    fn clear<I: Id>(&mut self) -> Result<(), StoreError> {
        let keys = &self.keys;
        self.connection.with(|connection| {
            redis::cmd("DEL").arg(keys.fences()).exec(connection)?;
            scan(connection, keys, |connection, found| {
                let own: Vec<_> = found.iter().filter(|key| keys.owns::<I>(key)).collect();
                if !own.is_empty() {
                    redis::cmd("UNLINK").arg(own).exec(connection)?;
                }
                Ok(true)
            })
        })
    }
}

impl<I: Id> Store<I> for RedisStore {
    fn fences(&mut self) -> Result<Vec<Option<Fence>>, StoreError> {
        let keys = &self.keys;
        let texts = self.connection.with(|connection| read(connection, &keys.fences()))?;
        parse_fences(keys, texts)
    }

    fn apply(&mut self, offers: &[Offer<I>]) -> Result<Vec<Outcome<I>>, StoreError> {
        let Self { connection, keys, script } = self;
        connection.with(|connection| script.apply(connection, keys, offers))
    }
}

/// What stands at each of the keys, as of one instant; `None` also where it is no string.
fn read(connection: &mut redis::Connection, keys: &[String]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
    Ok(redis::cmd("MGET").arg(keys).query(connection)?)
}

/// The fence of each lane from the bytes that stand at its key, if any.
fn parse_fences(keys: &Keys, texts: Vec<Option<Vec<u8>>>) -> Result<Vec<Option<Fence>>, StoreError> {
    (0..LANES)
        .zip(texts)
        .map(|(lane, text)| text.map(|text| parse_fence(keys, lane, &text)).transpose())
        .collect()
}

/// The fence that the bytes at its key say.
fn parse_fence(keys: &Keys, lane: u8, text: &[u8]) -> Result<Fence, StoreError> {
    String::from_utf8_lossy(text).parse().map_err(|error| {
        StoreError::Refused(format!(
            "the fence of lane {lane} at key {} is {error}; something else writes under this prefix: stop it, then \
             rebuild the store (`fencepost apply --store NAME --from-start`)",
            keys.fence(lane)
        ))
    })
}

/// Hands on the keys that begin like the store's, a batch at a time, until told to stop. A key may come twice.
fn scan(
    connection: &mut redis::Connection,
    keys: &Keys,
    mut batch: impl FnMut(&mut redis::Connection, &[Vec<u8>]) -> Result<bool, StoreError>,
) -> Result<(), StoreError> {
    let mut cursor = 0_u64;
    loop {
        let (next, found): (u64, Vec<Vec<u8>>) = redis::cmd("SCAN")
            .arg(cursor)
            .arg("MATCH")
            .arg(keys.pattern())
            .arg("COUNT")
            .arg(SCAN_COUNT)
            .query(connection)?;
        if !batch(connection, &found)? || next == 0 {
            return Ok(());
        }
        cursor = next;
    }
}
