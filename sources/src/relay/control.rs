//! The relay's own connection to Postgres: it holds the lock, tells what Postgres is, and writes heartbeats.

use std::thread;
use std::time::{Duration, Instant};

use backon::{BackoffBuilder, ConstantBuilder};
use crossbeam_channel::{Receiver, RecvTimeoutError};
use postgres::{Client, NoTls};

use super::refusal::{Publication, Slot, Source};
use super::{Failure, RelayConfig};

/// A connection is made, and a query is answered, within this time, or counts as lost.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long to wait for a predecessor's lock: a killed process' session outlives it by a moment.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
const LOCK_RETRY: Duration = Duration::from_millis(50);

/// Prefix of the heartbeats' messages in the WAL.
const HEARTBEAT_PREFIX: &str = "fencepost";

/// The connection that makes its holder the one relay of a slot.
pub(super) struct Control {
    client: Client,
}

impl Control {
    /// Connects and takes the lock.
    ///
    /// # Errors
    /// [`Failure::Refused`] when another relay holds it; the message says who.
    pub(super) fn lock(postgres: &postgres::Config, slot: &str) -> Result<Self, Failure> {
        let application = application_name();
        let mut settings = postgres.clone();
        settings
            .application_name(&application)
            .connect_timeout(PATIENCE)
            .tcp_user_timeout(PATIENCE)
            .keepalives_idle(PATIENCE);
        let mut client =
            settings.connect(NoTls).map_err(|error| Failure::query("cannot connect to Postgres", &error))?;
        // Heartbeats wait for no standby: they promise nothing to anyone.
        let session = format!(
            "SET statement_timeout = {}; SET synchronous_commit = local; SET idle_session_timeout = 0",
            PATIENCE.as_millis()
        );
        client
            .batch_execute(&session)
            .map_err(|error| Failure::query("cannot set up the session", &error))?;

        let until = Instant::now() + LOCK_PATIENCE;
        for delay in ConstantBuilder::default().with_delay(LOCK_RETRY).without_max_times().build() {
            if try_lock(&mut client, slot)? {
                return Ok(Self { client });
            }
            if Instant::now() >= until {
                break;
            }
            thread::sleep(delay);
        }
        let holder = holder(&mut client, slot)?;
        Err(match holder {
            // It went away in between.
            None => Failure::Transient("the lock is taken and given back".to_owned()),
            // A session of this very process that Postgres has not ended yet.
            Some(holder) if holder.application == application => Failure::Transient(format!(
                "an earlier session of this relay still holds the lock (Postgres backend {})",
                holder.pid
            )),
            Some(Holder { pid, application, client }) => Failure::Refused(format!(
                "slot {slot} is being relayed by {application:?}, client {client}, Postgres backend {pid}: stop that \
                 relay, or if it is dead run `SELECT pg_terminate_backend({pid})`"
            )),
        })
    }

    /// What Postgres is.
    pub(super) fn source(&mut self, config: &RelayConfig) -> Result<Source, Failure> {
        self.query_source(config).map_err(|error| Failure::query("cannot read what Postgres is", &error))
    }

    fn query_source(&mut self, config: &RelayConfig) -> Result<Source, postgres::Error> {
        let row = self.client.query_one(
            "SELECT system_identifier::text, current_setting('wal_level'), current_database()::text,
                    CASE WHEN NOT pg_is_in_recovery()
                         THEN ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int8 END,
                    CASE WHEN NOT pg_is_in_recovery()
                         THEN (pg_current_wal_flush_lsn() - '0/0')::int8 ELSE 0 END
             FROM pg_control_system()",
            &[],
        )?;
        let timeline: Option<i64> = row.get(3);
        let slot = self.client.query_opt(
            "SELECT plugin::text, database::text, coalesce(wal_status = 'lost', false),
                    coalesce((confirmed_flush_lsn - '0/0')::int8, 0)
             FROM pg_replication_slots WHERE slot_name = $1",
            &[&config.slot],
        )?;
        // Row filters are a column of newer versions only.
        let publication = self.client.query_opt(
            "SELECT pubinsert, pubviaroot,
                    NOT EXISTS (SELECT FROM pg_publication_tables t
                                WHERE t.pubname = p.pubname AND to_jsonb(t) ->> 'rowfilter' IS NOT NULL),
                    ARRAY(SELECT schemaname || '.' || tablename FROM pg_publication_tables t
                          WHERE t.pubname = p.pubname ORDER BY 1)
             FROM pg_publication p WHERE pubname = $1",
            &[&config.publication],
        )?;
        Ok(Source {
            system: row.get(0),
            wal_level: row.get(1),
            database: row.get(2),
            flushed_lsn: row.get::<_, i64>(4).cast_unsigned(),
            timeline: timeline.and_then(|timeline| u32::try_from(timeline).ok()),
            slot: slot.map(|row| Slot {
                plugin: row.get(0),
                database: row.get(1),
                lost: row.get(2),
                confirmed_lsn: row.get::<_, i64>(3).cast_unsigned(),
            }),
            publication: publication.map(|row| Publication {
                inserts: row.get(0),
                via_root: row.get(1),
                all_rows: row.get(2),
                tables: row.get(3),
            }),
        })
    }

    /// Writes an empty transaction now and each `period`, until `stop` is closed.
    ///
    /// # Errors
    /// When the connection, and the lock with it, is lost.
    pub(super) fn beat(mut self, period: Duration, stop: &Receiver<()>) -> Result<(), Failure> {
        let failed = |error| Failure::query("cannot write a heartbeat", &error);
        let heartbeat = "SELECT pg_logical_emit_message(true, $1, ''::text)";
        let heartbeat = self.client.prepare(heartbeat).map_err(failed)?;
        loop {
            self.client.execute(&heartbeat, &[&HEARTBEAT_PREFIX]).map_err(failed)?;
            match stop.recv_timeout(period) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }
}

/// Who holds the lock.
struct Holder {
    pid: i32,
    application: String,
    client: String,
}

/// The lock's key follows from the slot: two relays of one slot meet, those of others do not.
const LOCK_KEY: &str = "hashtextextended('fencepost relay ' || $1::text, 0)";

fn try_lock(client: &mut Client, slot: &str) -> Result<bool, Failure> {
    client
        .query_one(&format!("SELECT pg_try_advisory_lock({LOCK_KEY})"), &[&slot])
        .map(|row| row.get(0))
        .map_err(|error| Failure::query("cannot take the relay's lock", &error))
}

fn holder(client: &mut Client, slot: &str) -> Result<Option<Holder>, Failure> {
    let query = format!(
        "SELECT l.pid, coalesce(a.application_name, ''), coalesce(host(a.client_addr), 'on a local socket')
         FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid)
         WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
           AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
           AND (l.classid::int8 << 32 | l.objid::int8) = {LOCK_KEY}"
    );
    let row = client
        .query_opt(&query, &[&slot])
        .map_err(|error| Failure::query("cannot read who holds the relay's lock", &error))?;
    Ok(row.map(|row| Holder { pid: row.get(0), application: row.get(1), client: row.get(2) }))
}

/// Tells operators which process this is: `fencepost relay HOST:PID`, cut to what Postgres keeps of a name.
pub(super) fn application_name() -> String {
    const NAME_BYTES_MAX: usize = 63;
    let pid = std::process::id().to_string();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String = host.trim().chars().filter(char::is_ascii_graphic).collect();
    let room = NAME_BYTES_MAX - "fencepost relay :".len() - pid.len();
    format!("fencepost relay {}:{pid}", &host[..host.len().min(room)])
}
