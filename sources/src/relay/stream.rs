//! Reads the replication stream on a thread of its own, ahead of the relay by a bounded number of changes.
//!
//! It goes on answering Postgres while the relay waits for Kafka, so a slow log never costs the connection.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use pgwire_replication::{Lsn, PgWireError, ReplicationClient, ReplicationConfig, ReplicationEvent};
use tokio::sync::watch;

use super::pgoutput::Decoder;
use super::{Change, Failure, RelayConfig, control, outbox};

/// A batch holds at most this many changes, and at most this many batches wait.
const BATCH_CHANGES_MAX: usize = 1_024;
const BATCHES_MAX: usize = 16;

/// Messages that the client library reads ahead.
const READ_AHEAD: usize = 4_096;

/// One row of the outbox, or a message that anyone may write to the WAL, has to fit into this.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// How often Postgres hears what may be forgotten.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// How long to wait before a full queue is tried again.
const FULL_RETRY: Duration = Duration::from_millis(1);

/// Changes in order; empty when only a sign of life came.
pub(super) type Batch = Result<Vec<Change>, Failure>;

/// A stream that is being read. It ends when this is dropped.
pub(super) struct Stream {
    /// What was read. A failure is the last.
    pub(super) batches: Receiver<Batch>,
    acknowledged: watch::Sender<u64>,
}

impl Stream {
    /// Starts to stream what was committed after `start_lsn`, all before which is in the log; 0: from where the slot
    /// stands.
    ///
    /// # Errors
    /// When the thread cannot be started, or the URL says too little. What the server refuses comes as a batch.
    pub(super) fn start(
        postgres: &postgres::Config,
        config: &RelayConfig,
        start_lsn: u64,
    ) -> Result<Self, Failure> {
        let replication = replication(postgres, config, start_lsn).map_err(Failure::Refused)?;
        let (sender, batches) = bounded(BATCHES_MAX);
        let (acknowledged, acknowledgements) = watch::channel(start_lsn);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::Transient(format!("cannot start the replication thread: {error}")))?;
        std::thread::Builder::new()
            .name("replication".to_owned())
            .spawn(move || runtime.block_on(read(replication, acknowledgements, sender)))
            .map_err(|error| Failure::Transient(format!("cannot start the replication thread: {error}")))?;
        Ok(Self { batches, acknowledged })
    }

    /// Lets Postgres forget what is before the LSN.
    pub(super) fn acknowledge(&self, lsn: u64) {
        self.acknowledged.send_if_modified(|known| {
            let risen = lsn > *known;
            *known = lsn.max(*known);
            risen
        });
    }
}

/// The connection's settings, as the replication client wants them.
fn replication(
    postgres: &postgres::Config,
    config: &RelayConfig,
    start_lsn: u64,
) -> Result<ReplicationConfig, String> {
    let host = match postgres.get_hosts() {
        [postgres::config::Host::Tcp(host)] => host.clone(),
        [postgres::config::Host::Unix(directory)] => directory.to_string_lossy().into_owned(),
        hosts => return Err(format!("postgres.url names {} hosts: name the primary alone", hosts.len())),
    };
    let user =
        postgres.get_user().ok_or("postgres.url names no user: write postgres://USER@HOST/DATABASE")?;
    let password = String::from_utf8(postgres.get_password().unwrap_or_default().to_owned())
        .map_err(|_| "the password in postgres.url is not UTF-8".to_owned())?;
    let database = postgres.get_dbname().unwrap_or(user);
    let port = postgres.get_ports().first().copied().unwrap_or(5432);
    Ok(ReplicationConfig::new(host, user, password, database, &config.slot, config.publication.as_str())
        .with_port(port)
        .with_start_lsn(Lsn::from_u64(start_lsn))
        .with_binary(true)
        .with_buffer_size(READ_AHEAD)
        .with_status_interval(STATUS_INTERVAL)
        .with_max_message_size(MESSAGE_BYTES_MAX)
        .with_wakeup_interval(STATUS_INTERVAL)
        .with_application_name(control::application_name()))
}

async fn read(config: ReplicationConfig, mut acknowledgements: watch::Receiver<u64>, batches: Sender<Batch>) {
    let mut client = match ReplicationClient::connect(config).await {
        Ok(client) => client,
        Err(error) => {
            let _ = deliver(Err(Failure::stream(&error)), &batches).await;
            return;
        }
    };
    let mut decoder = Decoder::default();
    loop {
        let event = tokio::select! {
            biased;
            known = acknowledgements.changed() => {
                if known.is_err() {
                    return;
                }
                client.update_applied_lsn(Lsn::from_u64(*acknowledgements.borrow_and_update()));
                continue;
            }
            event = client.recv() => event,
        };
        let Collected { changes, failure } = collect(event, &mut client, &mut decoder);
        if !deliver(Ok(changes), &batches).await {
            return;
        }
        if let Some(failure) = failure {
            let _ = deliver(Err(failure), &batches).await;
            return;
        }
    }
}

/// What was there to read without waiting, and what ended it.
struct Collected {
    changes: Vec<Change>,
    failure: Option<Failure>,
}

type Received = Result<Option<ReplicationEvent>, PgWireError>;

fn collect(first: Received, client: &mut ReplicationClient, decoder: &mut Decoder) -> Collected {
    let mut changes = Vec::new();
    let mut next = Some(first);
    while let Some(received) = next {
        match decode(received, decoder) {
            Ok(change) => changes.extend(change),
            Err(failure) => return Collected { changes, failure: Some(failure) },
        }
        next = if changes.len() < BATCH_CHANGES_MAX { ready(client) } else { None };
    }
    Collected { changes, failure: None }
}

/// The next event if it has arrived.
fn ready(client: &mut ReplicationClient) -> Option<Received> {
    let receive = pin!(tokio::task::unconstrained(client.recv()));
    match receive.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(received) => Some(received),
        Poll::Pending => None,
    }
}

fn decode(received: Received, decoder: &mut Decoder) -> Result<Option<Change>, Failure> {
    let event = received
        .map_err(|error| Failure::stream(&error))?
        .ok_or_else(|| Failure::Transient("replication stream was closed by Postgres".to_owned()))?;
    match event {
        ReplicationEvent::Begin { final_lsn, commit_time_micros, .. } => Ok(Some(Change::Begin {
            final_lsn: final_lsn.as_u64(),
            committed_at: outbox::unix_micros(commit_time_micros).unwrap_or(0),
        })),
        ReplicationEvent::Commit { end_lsn, .. } => Ok(Some(Change::Commit { end_lsn: end_lsn.as_u64() })),
        ReplicationEvent::XLogData { data, .. } => {
            decoder.decode(&data).map_err(|error| Failure::Refused(error.to_string()))
        }
        ReplicationEvent::KeepAlive { .. }
        | ReplicationEvent::Message { .. }
        | ReplicationEvent::StoppedAt { .. } => Ok(None),
    }
}

/// Hands a batch on, waiting while the queue is full. `false` when nobody wants it any more.
async fn deliver(mut batch: Batch, batches: &Sender<Batch>) -> bool {
    loop {
        match batches.try_send(batch) {
            Ok(()) => return true,
            Err(TrySendError::Disconnected(_)) => return false,
            Err(TrySendError::Full(refused)) => batch = refused,
        }
        tokio::time::sleep(FULL_RETRY).await;
    }
}
