//! The relay's rule, without sockets, threads or a clock: changes in, windows out.
//!
//! Invariants, and how they are kept (I5 to I8 in `docs/architecture.md`):
//!
//! 1. *Every event is in exactly one window, in order.* Events are taken in commit order, and whatever stands at or
//!    before the position of the last window in the log is skipped: the log itself says where to go on.
//! 2. *Positions rise strictly.* Final LSNs rise from transaction to transaction, indexes within one; both are checked.
//! 3. *A whole window ends at a commit.* A partial one ends within a transaction that did not fit, or that the source
//!    sends slower than the log keeps a window open; it says the position of its last event, and acknowledges nothing
//!    of that transaction.
//! 4. *A window holds at most `events_max` events*, and a transaction of up to half of that is never cut for its size.
//! 5. *Nothing is acknowledged that is not in the log*: [`Relay::acknowledged`] moves when a close has succeeded.

use fencepost_model::placement::{self, PartitionKey};
use fencepost_model::{CutKind, Event, Micros, Position, Positioned, WINDOW_LIMIT, WindowId, WindowRecord};
use fencepost_model::{record, record::VERSION};

use super::change::lsn;
use super::{BadRow, Change, FlipRecord, WindowLog};
use crate::log::LogError;

/// The first epoch of relays.
const FIRST_EPOCH: u64 = 1;

/// A window is not held open for a commit longer than this, in milliseconds. The source may send a row of a transaction
/// long after the one before, having decoded millions for other tables in between; the log aborts what stays open.
const OPEN_MS_MAX: u64 = 10_000;

/// When windows close.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// A window that ends at a commit is closed once this much time has passed since the one before, in milliseconds.
    pub window_ms: u64,
    /// A window never holds more events than this.
    pub events_max: u64,
}

/// What the relay writes into every window about where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Kafka's id of the flips topic.
    pub flips_topic: String,
    /// Postgres' system identifier.
    pub system: String,
    /// Postgres' timeline.
    pub timeline: u32,
}

/// A window as it was closed, for logs and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The window.
    pub window: WindowId,
    /// Number of events in it.
    pub events: u64,
    /// What kind of cut it ends at.
    pub kind: CutKind,
}

/// Turns changes into windows. See the [module](self) for what it keeps true.
#[derive(Debug)]
pub struct Relay {
    pace: Pace,
    origin: Origin,
    /// The last window in the log.
    last: Cut,
    /// When that was, by the caller's clock: the open window is open since.
    closed_at_ms: u64,
    open: Option<Open>,
    transaction: Option<Transaction>,
    /// Final LSN of the last transaction that the stream began.
    streamed: u64,
    finishing: bool,
    key: PartitionKey,
    value: Vec<u8>,
}

/// Where a window ends.
#[derive(Clone, Copy, Debug)]
struct Cut {
    window: WindowId,
    position: Position,
    end_lsn: u64,
    as_of: Micros,
    op: i64,
}

/// What is in the log behind the last window, seen by nobody yet.
#[derive(Debug)]
struct Open {
    timestamp: WindowId,
    /// When it was opened, by the caller's clock.
    since_ms: u64,
    counts: Vec<u64>,
    events: u64,
    /// Where the window would end if it were closed now. Its `window` is still the one before.
    cut: Cut,
}

/// The transaction that is streaming.
#[derive(Clone, Copy, Debug)]
struct Transaction {
    final_lsn: u64,
    committed_at: Micros,
    next_index: u32,
}

impl Relay {
    /// A relay that goes on behind `last`, the last window in the log, or starts a new log.
    pub fn resume(pace: Pace, origin: Origin, last: Option<&WindowRecord>, now_ms: u64) -> Self {
        let last = match last {
            Some(record) => Cut {
                window: record.window,
                position: record.position,
                end_lsn: record.end_lsn,
                as_of: record.as_of,
                op: record.op,
            },
            None => Cut {
                window: 0,
                position: Position { epoch: FIRST_EPOCH, lsn: 0, index: 0 },
                end_lsn: 0,
                as_of: 0,
                op: 0,
            },
        };
        Self {
            pace,
            origin,
            last,
            closed_at_ms: now_ms,
            open: None,
            transaction: None,
            streamed: 0,
            finishing: false,
            key: PartitionKey::new(),
            value: Vec::with_capacity(256),
        }
    }

    /// Takes the next change of the stream, and returns the window that it closed, if it did.
    ///
    /// # Errors
    /// Those of the log, and [`LogError::Refused`] for a stream that is not what it should be. After an error the
    /// relay is of no more use: [`Relay::resume`] from what the log holds.
    pub fn apply(
        &mut self,
        change: Change,
        now_ms: u64,
        log: &mut impl WindowLog,
    ) -> Result<Option<Closed>, LogError> {
        match change {
            Change::Begin { final_lsn, committed_at } => self.begin(final_lsn, committed_at).map(|()| None),
            Change::Row(row) => self.row(row, now_ms, log),
            Change::Commit { end_lsn } => {
                self.commit(end_lsn, now_ms, log)?;
                let full = self.open.as_ref().is_some_and(|open| open.events >= self.pace.events_max / 2);
                if full { self.close(CutKind::Whole, now_ms, log).map(Some) } else { self.tick(now_ms, log) }
            }
        }
    }

    /// Closes the window if its time has come, and returns it if so. To be called now and then, also while no
    /// change arrives.
    ///
    /// # Errors
    /// As [`Relay::apply`].
    pub fn tick(&mut self, now_ms: u64, log: &mut impl WindowLog) -> Result<Option<Closed>, LogError> {
        // A clock that was set back must not hold the window open until it has caught up.
        self.closed_at_ms = self.closed_at_ms.min(now_ms);
        let Some(open) = &mut self.open else { return Ok(None) };
        open.since_ms = open.since_ms.min(now_ms);
        let (kind, due) = if open.cut.position.index == Position::WHOLE {
            (CutKind::Whole, self.finishing || now_ms - self.closed_at_ms >= self.pace.window_ms)
        } else {
            (CutKind::Partial, now_ms - open.since_ms >= OPEN_MS_MAX)
        };
        if due { self.close(kind, now_ms, log).map(Some) } else { Ok(None) }
    }

    /// From now on, closes the window at the next commit, whatever the time.
    pub fn finish(&mut self) {
        self.finishing = true;
    }

    /// Whether everything that was taken is in the log.
    pub fn is_at_rest(&self) -> bool {
        self.open.is_none() && self.transaction.is_none()
    }

    /// Whether a window is open in the log, which the log will not keep open for ever.
    pub fn holds_window_open(&self) -> bool {
        self.open.is_some()
    }

    /// What Postgres may forget: the end LSN of the last transaction that is whole in the log. 0 when there is none.
    pub fn acknowledged(&self) -> u64 {
        self.last.end_lsn
    }

    fn begin(&mut self, final_lsn: u64, committed_at: Micros) -> Result<(), LogError> {
        if self.transaction.is_some() || final_lsn <= self.streamed {
            return Err(out_of_order(format!(
                "a transaction with final LSN {} after {}",
                lsn(final_lsn),
                lsn(self.streamed)
            )));
        }
        self.streamed = final_lsn;
        self.transaction = Some(Transaction { final_lsn, committed_at, next_index: 0 });
        Ok(())
    }

    fn row(
        &mut self,
        row: Result<Event<i64>, BadRow>,
        now_ms: u64,
        log: &mut impl WindowLog,
    ) -> Result<Option<Closed>, LogError> {
        let Some(transaction) = &mut self.transaction else {
            return Err(out_of_order("a row outside a transaction".to_owned()));
        };
        let position = Position {
            epoch: self.last.position.epoch,
            lsn: transaction.final_lsn,
            index: transaction.next_index,
        };
        if position.index == Position::WHOLE {
            return Err(LogError::Refused(format!(
                "transaction {} has more than 2^32 outbox rows",
                lsn(position.lsn)
            )));
        }
        transaction.next_index += 1;
        if position <= self.last.position {
            return Ok(None);
        }
        let full = self.open.as_ref().is_some_and(|open| open.events == self.pace.events_max);
        let closed = if full { Some(self.close(CutKind::Partial, now_ms, log)?) } else { None };
        match row {
            Ok(event) => self.send(Positioned { position, event }, now_ms, log)?,
            Err(bad) => {
                let open = self.open(now_ms, log.partitions());
                open.cut.position = position;
                let timestamp = open.timestamp;
                log.bury(position, &bad, timestamp)?;
            }
        }
        Ok(closed)
    }

    fn send(
        &mut self,
        event: Positioned<i64>,
        now_ms: u64,
        log: &mut impl WindowLog,
    ) -> Result<(), LogError> {
        let partitions = log.partitions();
        let (item, bucket) = (event.event.item(), event.event.bucket());
        self.value.clear();
        record::encode_event(&event, &mut self.value);

        let open = self.open(now_ms, partitions);
        assert!(open.cut.position < event.position, "positions rise strictly (I5)");
        open.cut.position = event.position;
        open.events += 1;
        if let Event::Flip(flip) = &event.event {
            open.cut.op = open.cut.op.max(flip.op);
        }
        let timestamp = open.timestamp;
        let key = self.key.write(item, bucket);
        let partition = placement::partition_of_key(key, partitions);
        if let Some(open) = &mut self.open {
            open.counts[partition as usize] += 1;
        }
        log.send(&FlipRecord { partition, key, value: &self.value, timestamp })
    }

    fn commit(&mut self, end_lsn: u64, now_ms: u64, log: &mut impl WindowLog) -> Result<(), LogError> {
        let Some(transaction) = self.transaction.take() else {
            return Err(out_of_order(format!("a commit at {} outside a transaction", lsn(end_lsn))));
        };
        let position = Position::after_transaction(self.last.position.epoch, transaction.final_lsn);
        if position <= self.last.position {
            return Ok(());
        }
        let cut = &mut self.open(now_ms, log.partitions()).cut;
        assert!(cut.position < position, "a commit stands behind its rows (I5)");
        cut.position = position;
        cut.end_lsn = end_lsn;
        cut.as_of = cut.as_of.max(transaction.committed_at);
        Ok(())
    }

    fn open(&mut self, now_ms: u64, partitions: u32) -> &mut Open {
        let last = self.last;
        self.open.get_or_insert_with(|| Open {
            // Never the time of the window before plus one alone: after a long silence that lies so far back that the
            // log's retention would take the records at once.
            timestamp: now_ms.max(last.window + 1),
            since_ms: now_ms,
            counts: vec![0; partitions as usize],
            events: 0,
            cut: last,
        })
    }

    fn close(&mut self, kind: CutKind, now_ms: u64, log: &mut impl WindowLog) -> Result<Closed, LogError> {
        let Open { timestamp, counts, events, cut, .. } =
            self.open.take().expect("only an open window is closed");
        assert_eq!(counts.iter().sum::<u64>(), events, "every event was counted in its partition (I11)");
        assert!(events <= self.pace.events_max, "a window is bounded (I7)");
        assert_eq!(
            kind.ends_at_commit(),
            cut.position.index == Position::WHOLE,
            "whole means the position of a commit (I6)"
        );
        let window = now_ms.max(timestamp);
        if window >= WINDOW_LIMIT {
            return Err(LogError::Refused(format!(
                "window {window} is not below 2^52: set the clock of this machine"
            )));
        }
        let record = WindowRecord {
            v: VERSION,
            window,
            before: self.last.window,
            position: cut.position,
            end_lsn: cut.end_lsn,
            as_of: cut.as_of,
            kind,
            op: cut.op,
            counts,
            flips_topic: self.origin.flips_topic.clone(),
            system: self.origin.system.clone(),
            timeline: self.origin.timeline,
        };
        log.close(&record)?;
        self.last = Cut { window, ..cut };
        self.closed_at_ms = now_ms;
        Ok(Closed { window, events, kind })
    }
}

fn out_of_order(what: String) -> LogError {
    LogError::Refused(format!("replication stream is out of order: {what}; restart the relay, and report it"))
}

#[cfg(test)]
mod tests;
