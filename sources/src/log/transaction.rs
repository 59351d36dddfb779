//! Windows as Kafka transactions: everything of a window becomes visible at once, in every partition, or never (I4).

use std::sync::Mutex;
use std::time::{Duration, Instant};

use fencepost_model::{Position, WindowId, WindowRecord, record};
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{DeliveryResult, Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, NoCustomPartitioner, Producer, ProducerContext};

use super::client::Complaints;
use super::{KafkaConfig, LogError};
use crate::relay::{BadRow, FlipRecord, WindowLog};

/// The brokers abort a transaction that stays open for longer.
const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(60);

/// How long one step (taking over, flushing, committing, waiting for room) may take before the session is given up.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// What is sent and not acknowledged yet is held in memory, up to these.
const QUEUE_RECORDS_MAX: &str = "100000";
const QUEUE_KILOBYTES_MAX: &str = "65536";

/// How long to serve the client library while waiting for it.
const POLL: Duration = Duration::from_millis(1);

/// Deliveries are reported now and then, not after each record.
const POLL_EVERY: u32 = 1_000;

/// The log as the relay writes it. Holds the transactional id: whoever took over before can commit no more.
pub struct KafkaWindowLog {
    transaction: Transaction,
    flips: String,
    windows: String,
    dead_letters: String,
    partitions: u32,
    commit: Duration,
}

impl KafkaWindowLog {
    /// Takes over the log: a window that a predecessor left open is aborted, and it is fenced off. What is committed
    /// after this returns is committed by this one.
    ///
    /// # Errors
    /// See [`LogError`].
    pub fn take_over(
        config: &KafkaConfig,
        transactional_id: &str,
        partitions: u32,
    ) -> Result<Self, LogError> {
        let mut settings = config.producer(&[
            ("linger.ms", "5"),
            ("batch.size", "1000000"),
            ("batch.num.messages", "100000"),
            ("queue.buffering.max.messages", QUEUE_RECORDS_MAX),
            ("queue.buffering.max.kbytes", QUEUE_KILOBYTES_MAX),
        ]);
        settings
            .set("transactional.id", transactional_id)
            .set("transaction.timeout.ms", TRANSACTION_TIMEOUT.as_millis().to_string());
        let producer: BaseProducer<Deliveries> = settings
            .create_with_context(Deliveries::default())
            .map_err(|error| LogError::kafka("cannot make a Kafka producer", &error))?;
        // Without a connection the library would look for one again only after half a second.
        producer
            .client()
            .fetch_metadata(Some(&config.windows_topic()), STEP_TIMEOUT)
            .map_err(|error| failed("cannot reach the log", &error, &producer))?;
        producer.init_transactions(STEP_TIMEOUT).map_err(|error| {
            // A newer incarnation would be fenced by this very call: whoever was refused here may ask again.
            match failed("cannot take over the log", &error, &producer) {
                LogError::Fenced(message) => LogError::Transient(message),
                other => other,
            }
        })?;
        Ok(Self {
            transaction: Transaction { producer, open: false, sent: 0 },
            flips: config.flips_topic(),
            windows: config.windows_topic(),
            dead_letters: config.dead_letters_topic(),
            partitions,
            commit: Duration::ZERO,
        })
    }

    /// Serves the client library. To be called now and then.
    ///
    /// # Errors
    /// When a record of the open window was not delivered.
    pub fn poll(&self) -> Result<(), LogError> {
        self.transaction.poll()
    }

    /// How long the last close took, in milliseconds.
    pub fn commit_ms(&self) -> u128 {
        self.commit.as_millis()
    }
}

impl WindowLog for KafkaWindowLog {
    fn partitions(&self) -> u32 {
        self.partitions
    }

    fn send(&mut self, record: &FlipRecord<'_>) -> Result<(), LogError> {
        self.transaction.produce(
            BaseRecord::to(&self.flips)
                .partition(record.partition.cast_signed())
                .key(record.key)
                .payload(record.value)
                .timestamp(record.timestamp.cast_signed()),
        )
    }

    fn bury(&mut self, position: Position, row: &BadRow, timestamp: WindowId) -> Result<(), LogError> {
        let Position { epoch, lsn, index } = position;
        let position = format!("[{epoch},{lsn},{index}]");
        tracing::error!(
            reason = row.reason,
            row = row.row,
            position,
            topic = self.dead_letters,
            "outbox row is no event: it goes to the dead letters, and is counted nowhere"
        );
        let header = |key, value| Header { key, value: Some(value) };
        let headers = OwnedHeaders::new_with_capacity(2)
            .insert(header("reason", row.reason))
            .insert(header("position", position.as_str()));
        self.transaction.produce(
            BaseRecord::to(&self.dead_letters)
                .partition(0)
                .payload(row.row.as_bytes())
                .headers(headers)
                .timestamp(timestamp.cast_signed()),
        )
    }

    fn close(&mut self, record: &WindowRecord) -> Result<(), LogError> {
        let started = Instant::now();
        let timestamp = record.window.cast_signed();
        let mut value = Vec::new();
        for partition in 0..self.partitions {
            value.clear();
            record::encode_marker(&record.marker(partition as usize), &mut value);
            let marker = BaseRecord::to(&self.flips).partition(partition.cast_signed());
            self.transaction.produce(marker.payload(&value[..]).timestamp(timestamp))?;
        }
        value.clear();
        record::encode_window(record, &mut value);
        let window = BaseRecord::to(&self.windows).partition(0);
        self.transaction.produce(window.payload(&value[..]).timestamp(timestamp))?;
        self.transaction.commit()?;
        self.commit = started.elapsed();
        Ok(())
    }
}

/// The producer and its open transaction.
struct Transaction {
    producer: BaseProducer<Deliveries>,
    open: bool,
    sent: u32,
}

impl Transaction {
    fn poll(&self) -> Result<(), LogError> {
        self.producer.poll(Duration::ZERO);
        self.producer.context().check(&self.producer)
    }

    fn produce(&mut self, mut record: BaseRecord<'_, [u8], [u8]>) -> Result<(), LogError> {
        if !self.open {
            self.producer
                .begin_transaction()
                .map_err(|error| failed("cannot open a window", &error, &self.producer))?;
            self.open = true;
        }
        let until = Instant::now() + STEP_TIMEOUT;
        while let Err((error, refused)) = self.producer.send(record) {
            if error.rdkafka_error_code() != Some(Code::QueueFull) {
                return Err(failed("cannot write to the open window", &error, &self.producer));
            }
            if Instant::now() >= until {
                return Err(LogError::Transient("Kafka takes no records".to_owned()));
            }
            self.producer.poll(POLL);
            self.producer.context().check(&self.producer)?;
            record = refused;
        }
        self.sent = self.sent.wrapping_add(1);
        if self.sent.is_multiple_of(POLL_EVERY) {
            self.poll()?;
        }
        Ok(())
    }

    /// Waits until everything that was sent is acknowledged. The library's own flush looks only each 100 ms.
    fn settle(&self) -> Result<(), LogError> {
        let until = Instant::now() + STEP_TIMEOUT;
        while self.producer.in_flight_count() > 0 {
            if Instant::now() >= until {
                return Err(LogError::Transient("Kafka does not acknowledge the open window".to_owned()));
            }
            self.producer.poll(POLL);
            self.producer.context().check(&self.producer)?;
        }
        self.producer.context().check(&self.producer)
    }

    fn commit(&mut self) -> Result<(), LogError> {
        self.settle()?;
        self.producer
            .commit_transaction(STEP_TIMEOUT)
            .map_err(|error| failed("cannot commit the window", &error, &self.producer))?;
        self.open = false;
        Ok(())
    }
}

impl Drop for Transaction {
    /// Aborts the open window, so that readers need not wait for the successor or the brokers to do it.
    fn drop(&mut self) {
        if self.open
            && let Err(error) = self.producer.abort_transaction(Duration::from_secs(1))
        {
            tracing::debug!(%error, "open window is left for the next relay to abort");
        }
    }
}

/// Keeps the first delivery that failed: the transaction is lost then.
#[derive(Default)]
struct Deliveries {
    failed: Mutex<Option<KafkaError>>,
    complaints: Complaints,
}

impl ClientContext for Deliveries {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.complaints.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.complaints.error(error, reason);
    }
}

impl ProducerContext<NoCustomPartitioner> for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, _: ()) {
        if let Err((error, _)) = result
            && let Ok(mut failed) = self.failed.lock()
        {
            failed.get_or_insert_with(|| error.clone());
        }
    }
}

impl Deliveries {
    fn check(&self, producer: &BaseProducer<Deliveries>) -> Result<(), LogError> {
        match self.failed.lock() {
            Ok(failure) => match &*failure {
                None => Ok(()),
                Some(error) => Err(failed("a record of the open window was not delivered", error, producer)),
            },
            Err(_) => Err(LogError::Transient("a delivery report panicked".to_owned())),
        }
    }
}

/// What the relay does about an error of its producer. Only a fenced producer knows of a successor, and only what an
/// operator has to change is refused: everything else is settled by taking over again, and asking the log.
fn failed(action: &str, error: &KafkaError, producer: &BaseProducer<Deliveries>) -> LogError {
    let fatal = producer.client().fatal_error();
    if let Some((Code::Fenced | Code::ProducerFenced | Code::InvalidProducerEpoch, reason)) = &fatal {
        return LogError::Fenced(format!("{action}: {reason}"));
    }
    // Brokers that start know of no topics yet. Whether one is gone is found out before the next window is opened.
    let unknown = matches!(
        error.rdkafka_error_code(),
        Some(Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition)
    );
    match LogError::kafka(action, error) {
        LogError::Refused(message) if unknown || fatal.is_some() => LogError::Transient(message),
        other => other,
    }
}
