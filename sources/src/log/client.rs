use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use super::config::PartitionEnd;
use super::{KafkaConfig, LogError};

/// The brokers are complained about no more often than this by each client.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(10);

/// A consumer whose partitions are assigned by hand.
pub(crate) type AssignedConsumer = BaseConsumer<Complaints>;

/// Takes what the client library reports and goes on after by itself: connections lost, brokers away. What a caller has
/// to know comes to it as the error of a call.
#[derive(Default)]
pub(crate) struct Complaints {
    last: Mutex<Option<Instant>>,
}

impl ClientContext for Complaints {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        match level {
            RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
                tracing::error!(facility, message, "the Kafka client is in trouble");
            }
            _ => tracing::debug!(facility, message, "the Kafka client notes"),
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let instead = match error.rdkafka_error_code() {
            // The end of a partition is an error to the library.
            Some(RDKafkaErrorCode::PartitionEOF) => return,
            Some(RDKafkaErrorCode::AllBrokersDown) => "start the brokers",
            Some(RDKafkaErrorCode::Resolve) => "check kafka.bootstrap_servers",
            Some(RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SSL) => "check kafka.properties",
            _ => {
                tracing::debug!(%error, reason, "the Kafka client retries");
                return;
            }
        };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_none_or(|last| last.elapsed() > COMPLAINT_INTERVAL) {
            *last = Some(Instant::now());
            tracing::warn!(%error, reason, "Kafka cannot be reached; the client retries, {instead}");
        }
    }
}

impl ConsumerContext for Complaints {}

/// Makes a consumer that reads `what` with nothing assigned yet.
pub(crate) fn consumer(
    config: &KafkaConfig,
    what: &str,
    end: PartitionEnd,
    tuning: &[(&str, &str)],
) -> Result<AssignedConsumer, LogError> {
    config
        .consumer(end, tuning)
        .create_with_context(Complaints::default())
        .map_err(|error| LogError::kafka(format_args!("cannot make a consumer of {what}"), &error))
}
