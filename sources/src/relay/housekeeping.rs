//! Keeps the outbox in partitions: makes those of the days ahead, and drops those that are done with.
//!
//! It has a connection and a thread of its own, and takes no lock that a writer waits for. A partition is dropped by
//! steps each of which may be the last before a crash, and is found and taken up again:
//!
//! 1. Everything that is committed up to now is in the log: the slot says so.
//! 2. The partition is marked, and detached concurrently. That waits for the transactions that have written to the
//!    outbox: whatever the partition holds is committed, or never will be.
//! 3. Again, everything that is committed up to now is in the log, and so every row of the partition (I9).
//! 4. It is dropped, for being marked: a table that someone else has detached is not ours to drop.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use fencepost_schema::OUTBOX_DAYS_AHEAD;
use postgres::{CancelToken, Client, NoTls};

use super::partitions::{Partition, State, days_ahead, expired};
use super::{Failure, RelayConfig};

/// With partitions for fewer days ahead than this, somebody has to look before likes fail.
const DAYS_AHEAD_MIN: u32 = 7;

/// Between two rounds, and after one that did not do all it was to do.
const PERIOD: Duration = Duration::from_secs(3_600);
const PERIOD_AFTER_FAILURE: Duration = Duration::from_secs(60);

/// A statement takes no longer than this, waiting for other transactions included, or is tried again in a later round.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long to wait for the log to hold what is committed, and how often to look.
const RELAYED_PATIENCE: Duration = Duration::from_secs(60);
const RELAYED_RETRY: Duration = Duration::from_millis(200);

/// Between two attempts to cancel the statement under way.
const CANCEL_RETRY: Duration = Duration::from_millis(50);

/// The comment on a table that is to be dropped once it is detached.
const MARK: &str = "fencepost: to be dropped";

/// Partitions by day, and tables that are to be dropped. A partition that is not exactly of the day in its name was not
/// made by Fencepost, and is left alone.
const PARTITIONS: &str = "
    SELECT relname::text, number, inhparent IS NULL, coalesce(inhdetachpending, false),
        EXISTS (
            SELECT FROM pg_locks
            WHERE relation = pg_class.oid
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        )
    FROM generate_series(-4000, 400) AS number
    CROSS JOIN LATERAL (SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date + number AS day) AS days
    JOIN pg_class ON relname = 'outbox_' || to_char(day, 'YYYYMMDD')
        AND relnamespace = 'fencepost'::regnamespace AND relkind = 'r'
    LEFT JOIN pg_inherits ON inhrelid = pg_class.oid
    WHERE CASE WHEN inhparent IS NULL
        THEN obj_description(pg_class.oid, 'pg_class') = $1
        ELSE inhparent = 'fencepost.outbox'::regclass AND pg_get_expr(relpartbound, pg_class.oid) = format(
            'FOR VALUES FROM (%L) TO (%L)',
            day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC')
        END
    ORDER BY day";

/// The thread that keeps the partitions. It ends when this is dropped, whatever it is waiting for.
pub(super) struct Housekeeper {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    running: Arc<Mutex<Option<CancelToken>>>,
}

impl Housekeeper {
    /// Starts with a round at once.
    pub(super) fn start(postgres: &postgres::Config, config: &RelayConfig) -> Result<Self, Failure> {
        let (end, ended) = bounded(0);
        let running = Arc::<Mutex<Option<CancelToken>>>::default();
        let housekeeping = Housekeeping {
            postgres: postgres.clone(),
            slot: config.slot.clone(),
            retention_days: config.outbox_retention_days,
            ended,
            running: Arc::clone(&running),
        };
        let thread = thread::Builder::new()
            .name("housekeeping".to_owned())
            .spawn(move || housekeeping.run())
            .map_err(|error| Failure::Transient(format!("cannot start the housekeeping thread: {error}")))?;
        Ok(Self { end: Some(end), thread: Some(thread), running })
    }
}

impl Drop for Housekeeper {
    fn drop(&mut self) {
        drop(self.end.take());
        let Some(thread) = self.thread.take() else { return };
        while !thread.is_finished() {
            // Again, since it may have been between two statements. One that cannot be cancelled ends by its time-out.
            let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(token) = running {
                let _ = token.cancel_query(NoTls);
            }
            thread::sleep(CANCEL_RETRY);
        }
        if thread.join().is_err() {
            tracing::error!("the housekeeping thread panicked; restart the relay, and report it");
        }
    }
}

/// Why a round ended early.
enum Broken {
    /// The relay ends.
    Ended,
    Failed(Failure),
}

impl From<Failure> for Broken {
    fn from(failure: Failure) -> Self {
        Broken::Failed(failure)
    }
}

struct Housekeeping {
    postgres: postgres::Config,
    slot: String,
    retention_days: u32,
    ended: Receiver<()>,
    running: Arc<Mutex<Option<CancelToken>>>,
}

impl Housekeeping {
    fn run(&self) {
        loop {
            let period = match self.round() {
                Ok(()) => PERIOD,
                Err(Broken::Ended) => return,
                Err(Broken::Failed(failure)) => {
                    tracing::warn!(
                        reason = %failure,
                        again_s = PERIOD_AFTER_FAILURE.as_secs(),
                        "housekeeping of the outbox is not done; it will be tried again"
                    );
                    PERIOD_AFTER_FAILURE
                }
            };
            *self.running.lock().unwrap_or_else(PoisonError::into_inner) = None;
            if self.wait(period).is_err() {
                return;
            }
        }
    }

    fn round(&self) -> Result<(), Broken> {
        let mut client = self.connect()?;
        let made = make(&mut client);
        let partitions = list(&mut client)?;
        report(&made, days_ahead(&partitions));
        self.drop_expired(&mut client, &partitions)?;
        made.map(drop).map_err(Broken::from)
    }

    fn connect(&self) -> Result<Client, Broken> {
        let mut settings = self.postgres.clone();
        settings
            .application_name("fencepost housekeeping")
            .connect_timeout(PATIENCE)
            .tcp_user_timeout(PATIENCE)
            .keepalives_idle(PATIENCE);
        let mut client =
            settings.connect(NoTls).map_err(|error| Failure::query("cannot connect to Postgres", &error))?;
        // The text of bounds follows zone and style.
        let session = format!(
            "SET statement_timeout = {}; SET timezone = 'UTC'; SET datestyle = 'ISO'",
            PATIENCE.as_millis()
        );
        client
            .batch_execute(&session)
            .map_err(|error| Failure::query("cannot set up the session", &error))?;
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(client.cancel_token());
        Ok(client)
    }

    fn drop_expired(&self, client: &mut Client, partitions: &[Partition]) -> Result<(), Broken> {
        let expired: Vec<_> = expired(partitions, self.retention_days).collect();
        let mut leaving: Vec<_> =
            partitions.iter().filter(|partition| partition.state != State::Attached).collect();
        if expired.is_empty() && leaving.is_empty() {
            return Ok(());
        }
        // First, since no partition can be detached beside one whose detaching was broken off.
        for partition in leaving.iter().filter(|partition| partition.state == State::Detaching) {
            self.alter(client, &partition.name, "detach", "FINALIZE")?;
        }
        if !expired.is_empty() {
            self.wait_until_relayed(client)?;
        }
        for partition in &expired {
            let name = &partition.name;
            self.execute(client, name, "mark", &format!("COMMENT ON TABLE fencepost.{name} IS '{MARK}'"))?;
            self.alter(client, name, "detach", "CONCURRENTLY")?;
        }
        leaving.extend(expired);
        self.wait_until_relayed(client)?;
        for Partition { name, day, .. } in leaving {
            self.execute(client, name, "drop", &format!("DROP TABLE fencepost.{name}"))?;
            tracing::info!(partition = name, days_old = -day, "outbox partition dropped");
        }
        Ok(())
    }

    fn alter(&self, client: &mut Client, name: &str, action: &str, how: &str) -> Result<(), Broken> {
        let statement = format!("ALTER TABLE fencepost.outbox DETACH PARTITION fencepost.{name} {how}");
        self.execute(client, name, action, &statement)
    }

    fn execute(&self, client: &mut Client, name: &str, action: &str, statement: &str) -> Result<(), Broken> {
        self.wait(Duration::ZERO)?;
        client.batch_execute(statement).map_err(|error| {
            Failure::query(&format!("cannot {action} outbox partition {name}"), &error).into()
        })
    }

    /// Waits until the log holds everything that is committed now: what the relay acknowledges to the slot.
    fn wait_until_relayed(&self, client: &mut Client) -> Result<(), Broken> {
        let failed = |error| Failure::query("cannot read how far the slot is", &error);
        let committed: String =
            client.query_one("SELECT pg_current_wal_insert_lsn()::text", &[]).map_err(failed)?.get(0);
        let until = Instant::now() + RELAYED_PATIENCE;
        loop {
            let relayed = "SELECT FROM pg_replication_slots
                WHERE slot_name = $1 AND confirmed_flush_lsn >= $2::text::pg_lsn";
            if client.query_opt(relayed, &[&self.slot, &committed]).map_err(failed)?.is_some() {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(Failure::Transient(format!(
                    "the log does not yet hold what was committed up to {committed}; outbox partitions are kept"
                ))
                .into());
            }
            self.wait(RELAYED_RETRY)?;
        }
    }

    /// Waits, but not once the relay ends.
    fn wait(&self, time: Duration) -> Result<(), Broken> {
        match self.ended.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => Err(Broken::Ended),
        }
    }
}

/// Makes the partitions that are missing, and returns how many.
fn make(client: &mut Client) -> Result<i32, Failure> {
    client
        .query_one("SELECT fencepost.make_outbox_partitions($1)", &[&OUTBOX_DAYS_AHEAD])
        .map(|row| row.get(0))
        .map_err(|error| Failure::query("cannot make partitions of fencepost.outbox", &error))
}

fn list(client: &mut Client) -> Result<Vec<Partition>, Failure> {
    let rows = client
        .query(PARTITIONS, &[&MARK])
        .map_err(|error| Failure::query("cannot list the partitions of fencepost.outbox", &error))?;
    let partitions = rows.into_iter().map(|row| Partition {
        name: row.get(0),
        day: row.get(1),
        state: match (row.get(2), row.get(3)) {
            (true, _) => State::Detached,
            (false, true) => State::Detaching,
            (false, false) => State::Attached,
        },
        in_use: row.get(4),
    });
    Ok(partitions.collect())
}

/// Tells how long likes can go on.
fn report(made: &Result<i32, Failure>, days_ahead: Option<u32>) {
    match (made, days_ahead) {
        (Ok(made), Some(days_ahead)) => tracing::info!(made, days_ahead, "outbox partitions are made"),
        (_, None) => tracing::error!(
            "the outbox has no partition for today: likes fail now; run `fencepost migrate`, and see what is in its way"
        ),
        (Err(failure), Some(days_left)) if days_left < DAYS_AHEAD_MIN => tracing::error!(
            days_left,
            reason = %failure,
            "outbox partitions run out, and likes fail then; run `fencepost migrate`, and see what is in its way"
        ),
        (Err(_), Some(_)) => {}
    }
}
