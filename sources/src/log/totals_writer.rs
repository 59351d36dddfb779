use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use fencepost_model::WindowId;
use rdkafka::ClientContext;
use rdkafka::Message;
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Header, Headers, OwnedHeaders};
use rdkafka::producer::{BaseRecord, DeliveryResult, ProducerContext, ThreadedProducer};

use super::client::Complaints;
use super::{KafkaConfig, LogError, TotalsWriter, Waker};

/// Name of the header that carries the incarnation of the pipeline, in decimal.
const INCARNATION_HEADER: &str = "incarnation";

/// Parts that wait for the brokers, at most: by number, and in KiB.
const QUEUE_PARTS_MAX: &str = "20000";
const QUEUE_KBYTES_MAX: &str = "131072";

/// Appends to the totals topic by an idempotent producer: in order in each lane, without repeats of its own, and
/// waiting for the brokers as long as it takes.
pub struct KafkaTotalsWriter {
    producer: ThreadedProducer<Deliveries>,
    topic: String,
    headers: OwnedHeaders,
    state: Arc<Mutex<State>>,
}

/// What the deliveries have come to.
#[derive(Debug, Default)]
struct State {
    /// Number of parts under way, by window: none is zero.
    unconfirmed: BTreeMap<WindowId, u64>,
    failure: Option<KafkaError>,
}

impl KafkaTotalsWriter {
    /// The waker is called, from another thread, when a window's parts have all been confirmed, or one has failed.
    ///
    /// # Errors
    /// [`LogError::Refused`] when the configuration is none that librdkafka takes.
    pub fn open(config: &KafkaConfig, incarnation: u64, waker: Waker) -> Result<Self, LogError> {
        let mut client = config.producer(&[
            ("queue.buffering.max.messages", QUEUE_PARTS_MAX),
            ("queue.buffering.max.kbytes", QUEUE_KBYTES_MAX),
        ]);
        client.set("message.timeout.ms", "0");
        let state = Arc::<Mutex<State>>::default();
        let context =
            Deliveries { state: state.clone(), waker: Mutex::new(waker), complaints: Complaints::default() };
        let producer = ThreadedProducer::from_config_and_context(&client, context)
            .map_err(|error| LogError::kafka("cannot make the producer of totals", &error))?;
        let incarnation = incarnation.to_string();
        let headers =
            OwnedHeaders::new().insert(Header { key: INCARNATION_HEADER, value: Some(&incarnation) });
        Ok(Self { producer, topic: config.totals_topic(), headers, state })
    }

    fn state(&self) -> Result<MutexGuard<'_, State>, LogError> {
        let state = lock(&self.state);
        match &state.failure {
            Some(error) => Err(LogError::kafka(
                format_args!("a record of topic {} could not be written", self.topic),
                error,
            )),
            None => Ok(state),
        }
    }
}

impl TotalsWriter for KafkaTotalsWriter {
    fn send(&mut self, lane: u8, window: WindowId, part: &[u8]) -> Result<bool, LogError> {
        // Counted before it is sent: its delivery may be reported at once, on the other thread.
        *self.state()?.unconfirmed.entry(window).or_default() += 1;
        let record = BaseRecord::<(), [u8], usize>::with_opaque_to(&self.topic, opaque(window))
            .partition(i32::from(lane))
            .timestamp(window.cast_signed())
            .headers(self.headers.clone())
            .payload(part);
        let Err((error, _)) = self.producer.send(record) else { return Ok(true) };
        lock(&self.state).settle(window);
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::QueueFull) => Ok(false),
            _ => Err(LogError::kafka(
                format_args!(
                    "cannot write the totals of window {window} to lane {lane} of topic {}",
                    self.topic
                ),
                &error,
            )),
        }
    }

    fn unconfirmed(&mut self) -> Result<Option<WindowId>, LogError> {
        Ok(self.state()?.unconfirmed.first_key_value().map(|(window, _)| *window))
    }
}

impl State {
    /// One part of the window is no longer under way; returns whether it was the last.
    fn settle(&mut self, window: WindowId) -> bool {
        let Some(parts) = self.unconfirmed.get_mut(&window) else {
            unreachable!("a part of window {window} was settled that was never sent");
        };
        *parts -= 1;
        let last = *parts == 0;
        if last {
            self.unconfirmed.remove(&window);
        }
        last
    }
}

/// Takes the delivery reports, on the producer's thread.
struct Deliveries {
    state: Arc<Mutex<State>>,
    waker: Mutex<Waker>,
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

impl ProducerContext for Deliveries {
    /// The window.
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, opaque: usize) {
        let mut state = lock(&self.state);
        let wake = match result {
            Ok(_) => state.settle(window(opaque)),
            // Left unconfirmed for ever: nobody may take the window for written.
            Err((error, _)) => {
                let first = state.failure.is_none();
                state.failure.get_or_insert_with(|| error.clone());
                first
            }
        };
        drop(state);
        if wake {
            lock(&self.waker)();
        }
    }
}

/// The incarnation of the pipeline that wrote a part, by its header.
pub(crate) fn incarnation(message: &BorrowedMessage<'_>) -> Option<u64> {
    let mut headers = message.headers()?.iter();
    let value = headers.find(|header| header.key == INCARNATION_HEADER)?.value?;
    str::from_utf8(value).ok()?.parse().ok()
}

/// A window passes through librdkafka in the place of a pointer.
fn opaque(window: WindowId) -> usize {
    usize::try_from(window).expect("pointers have 64 bits")
}

fn window(opaque: usize) -> WindowId {
    WindowId::try_from(opaque).expect("pointers have 64 bits")
}

/// A thread that panics while it holds one of these locks leaves it whole: each critical section is a single step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
