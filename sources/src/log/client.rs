use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::consumer::{BaseConsumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use super::config::PartitionEnd;
use super::{KafkaConfig, LogError};

/// The brokers are complained about no more often than this by each client.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(10);

/// A consumer whose partitions are assigned by hand.
pub(crate) type AssignedConsumer = BaseConsumer<ConsumerEvents>;

/// What happens to a consumer beside the records it reads.
#[derive(Default)]
pub(crate) struct ConsumerEvents {
    complaints: Complaints,
}

impl ClientContext for ConsumerEvents {
    fn error(&self, error: KafkaError, reason: &str) {
        self.complaints.hear(&error, reason);
    }
}

impl ConsumerContext for ConsumerEvents {}

/// Takes what the client library reports and goes on after by itself: connections lost, brokers away.
#[derive(Default)]
pub(crate) struct Complaints {
    last: Mutex<Option<Instant>>,
}

impl Complaints {
    pub(crate) fn hear(&self, error: &KafkaError, reason: &str) {
        // The end of a partition is an error to the library.
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::PartitionEOF) {
            return;
        }
        tracing::debug!(%error, reason, "the Kafka client retries");
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let quiet = last.is_none_or(|last| last.elapsed() > COMPLAINT_INTERVAL);
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::AllBrokersDown) && quiet {
            *last = Some(Instant::now());
            tracing::warn!(reason, "no Kafka broker answers; the client retries, start the brokers");
        }
    }
}

/// Makes a consumer that reads `what` with nothing assigned yet; `tuning` comes on top of the configuration.
pub(crate) fn consumer(
    config: &KafkaConfig,
    what: &str,
    end: PartitionEnd,
    tuning: &[(&str, &str)],
) -> Result<AssignedConsumer, LogError> {
    let mut client = config.consumer(end);
    for (key, value) in tuning {
        client.set(*key, *value);
    }
    client
        .create_with_context(ConsumerEvents::default())
        .map_err(|error| LogError::kafka(format_args!("cannot make a consumer of {what}"), &error))
}
