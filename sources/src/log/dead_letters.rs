use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use rdkafka::{ClientContext, Message};

use super::client::Complaints;
use super::{KafkaConfig, LogError};

/// A dead letter that the brokers do not take for this long is given up: its record still stands where it was found.
const DELIVERY_TIMEOUT_MS: &str = "60000";

/// Room for the headers on top of a record of the broker's default size.
const RECORD_BYTES_MAX: &str = "2000000";

/// Dead letters that wait for the brokers, at most.
const QUEUE_KBYTES_MAX: &str = "65536";

/// rdkafka polls for the whole of this time, whatever has happened: short, because readers wait for it.
const POLL_STEP: Duration = Duration::from_millis(1);

/// Writes records that cannot be counted to the dead-letters topic, as they were, with headers that say why, and where
/// they were found. Written again when the log is read again.
pub(crate) struct DeadLetters {
    producer: BaseProducer<Failures>,
    topic: String,
    written: Arc<AtomicU64>,
    /// Of those written since the last flush: how many, and the first reason.
    unflushed: Option<(u64, String)>,
}

impl DeadLetters {
    pub(crate) fn open(config: &KafkaConfig, written: Arc<AtomicU64>) -> Result<Self, LogError> {
        let mut client = config.producer(&[("queue.buffering.max.kbytes", QUEUE_KBYTES_MAX)]);
        client.set("message.timeout.ms", DELIVERY_TIMEOUT_MS).set("message.max.bytes", RECORD_BYTES_MAX);
        let producer = client
            .create_with_context(Failures::default())
            .map_err(|error| LogError::kafka("cannot make the producer of dead letters", &error))?;
        Ok(Self { producer, topic: config.dead_letters_topic(), written, unflushed: None })
    }

    /// Queues a record. Its time is now: retention counts from when it was set aside, not from what it claims.
    pub(crate) fn write(&mut self, found: &BorrowedMessage<'_>, reason: &str) {
        let header = |key, value| Header { key, value: Some(value) };
        let headers = OwnedHeaders::new_with_capacity(4)
            .insert(header("reason", reason))
            .insert(header("topic", found.topic()))
            .insert(header("partition", &found.partition().to_string()))
            .insert(header("offset", &found.offset().to_string()));
        let mut record = BaseRecord::<[u8], [u8]>::to(&self.topic).partition(0).headers(headers);
        record.key = found.key();
        record.payload = found.payload();
        // The queue is full at times; its own time-out bounds the wait.
        while let Err((error, unsent)) = self.producer.send(record) {
            if error.rdkafka_error_code() != Some(RDKafkaErrorCode::QueueFull) {
                tracing::error!(
                    partition = found.partition(), offset = found.offset(), %error,
                    "a dead letter cannot be written; find its record there"
                );
                break;
            }
            self.producer.poll(POLL_STEP);
            record = unsent;
        }
        self.written.fetch_add(1, Ordering::Relaxed);
        self.unflushed.get_or_insert_with(|| (0, reason.to_owned())).0 += 1;
    }

    /// Waits until the brokers have taken or given up what was written.
    pub(crate) fn flush(&mut self) {
        let Some((count, reason)) = self.unflushed.take() else { return };
        while self.producer.in_flight_count() > 0 {
            self.producer.poll(POLL_STEP);
        }
        tracing::warn!(
            count,
            first_reason = reason,
            topic = self.topic,
            "records that cannot be counted are set aside; see `fencepost dump dead-letters`"
        );
    }
}

/// Reports dead letters that could not be written.
#[derive(Default)]
struct Failures {
    complaints: Complaints,
}

impl ClientContext for Failures {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.complaints.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.complaints.error(error, reason);
    }
}

impl ProducerContext for Failures {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = result {
            tracing::error!(%error, "a dead letter could not be written; its record stands in the topic it was found in");
        }
    }
}
