//! The script that is the fence: how an offer is put to it, and what its answer means.

use fencepost_model::Id;
use redis::{Cmd, ErrorKind, FromRedisValue, RedisResult, Script, ServerErrorKind, Value};

use super::keys::Keys;
use super::parse_fence;
use crate::offer::Offer;
use crate::store::{Outcome, StoreError};

/// Times that one round may find the script gone: a restart or failover forgets it, and SCRIPT FLUSH does.
const LOADS_MAX: usize = 5;

/// The script, known to Redis by its hash.
pub(crate) struct FenceScript {
    hash: String,
}

impl FenceScript {
    const SOURCE: &str = include_str!("fence.lua");

    pub(crate) fn new() -> Self {
        Self { hash: Script::new(Self::SOURCE).get_hash().to_owned() }
    }

    /// Makes the offers in one round trip. Those that met no script are made again, and only those: the others of the
    /// pipeline have run.
    pub(crate) fn apply<I: Id>(
        &self,
        connection: &mut redis::Connection,
        keys: &Keys,
        offers: &[Offer<I>],
    ) -> Result<Vec<Outcome<I>>, StoreError> {
        let mut outcomes: Vec<Option<Outcome<I>>> = vec![None; offers.len()];
        for load in 0..=LOADS_MAX {
            let open: Vec<usize> = (0..offers.len()).filter(|i| outcomes[*i].is_none()).collect();
            if open.is_empty() {
                break;
            }
            if load > 0 {
                redis::cmd("SCRIPT").arg("LOAD").arg(Self::SOURCE).exec(connection)?;
            }
            let mut pipeline = redis::pipe();
            for i in &open {
                pipeline.add_command(self.call(keys, &offers[*i]));
            }
            let answers: Vec<RedisResult<Value>> = pipeline.ignore_errors().query(connection)?;
            for (i, answer) in open.into_iter().zip(answers) {
                match answer {
                    Ok(answer) => outcomes[i] = Some(outcome(keys, &offers[i], answer)?),
                    Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        outcomes.into_iter().collect::<Option<Vec<_>>>().ok_or_else(|| {
            StoreError::Transient(format!(
                "redis forgot the script {LOADS_MAX} times in a row; is it flushed in a loop?"
            ))
        })
    }

    fn call<I: Id>(&self, keys: &Keys, offer: &Offer<I>) -> Cmd {
        let Offer { lane, before, after, amounts } = offer;
        // Three bulk strings of some 20 bytes each for an item.
        let mut call = Cmd::with_capacity(9 + 2 * amounts.len(), 512 + 32 * amounts.len());
        call.arg("EVALSHA")
            .arg(&self.hash)
            .arg(2 + amounts.len())
            .arg(keys.fence(*lane))
            .arg(keys.debt(*lane));
        for (item, _) in amounts {
            call.arg(keys.counter(*item));
        }
        call.arg(keys.prefix())
            .arg(before.to_string())
            .arg(after.to_string())
            .arg(after.window)
            .arg(after.epoch);
        for (_, amount) in amounts {
            call.arg(*amount);
        }
        call
    }
}

/// What the script says it did.
fn outcome<I: Id>(keys: &Keys, offer: &Offer<I>, answer: Value) -> Result<Outcome<I>, StoreError> {
    let garbled = || StoreError::Transient("redis gave an answer that the script never gives".to_owned());
    let Value::Array(parts) = answer else { return Err(garbled()) };
    let mut parts = parts.into_iter();
    match (parts.next(), parts.next(), parts.next()) {
        (Some(Value::Int(0)), Some(fence), None) => {
            let text = Option::<Vec<u8>>::from_redis_value(fence).map_err(|_| garbled())?;
            let fence = text.map(|text| parse_fence(keys, offer.lane, &text)).transpose()?;
            Ok(Outcome::Refused { fence })
        }
        (Some(Value::Int(1)), Some(set_aside), Some(debts)) => {
            let set_aside = Vec::<String>::from_redis_value(set_aside).map_err(|_| garbled())?;
            let debts = Vec::<String>::from_redis_value(debts).map_err(|_| garbled())?;
            let debts: Option<Vec<(I, i64)>> = debts
                .chunks(2)
                .map(|pair| match pair {
                    [item, debt] => Some((item.parse().ok()?, debt.parse().ok()?)),
                    _ => None,
                })
                .collect();
            Ok(Outcome::Applied { set_aside, debts: debts.ok_or_else(garbled)? })
        }
        _ => Err(garbled()),
    }
}
