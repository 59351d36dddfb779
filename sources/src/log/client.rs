use rdkafka::ClientContext;
use rdkafka::consumer::{BaseConsumer, ConsumerContext};
use rdkafka::error::KafkaError;

use super::config::PartitionEnd;
use super::{KafkaConfig, LogError};

/// A consumer whose partitions are assigned by hand.
pub(crate) type AssignedConsumer = BaseConsumer<ConsumerEvents>;

/// What happens to a consumer beside the records it reads.
pub(crate) struct ConsumerEvents;

impl ClientContext for ConsumerEvents {
    fn error(&self, error: KafkaError, reason: &str) {
        log_client_error(&error, reason);
    }
}

impl ConsumerContext for ConsumerEvents {}

/// Logs what the client library reports and goes on after by itself. The end of a partition is an error to it.
pub(crate) fn log_client_error(error: &KafkaError, reason: &str) {
    let end = rdkafka::error::RDKafkaErrorCode::PartitionEOF;
    if error.rdkafka_error_code() != Some(end) {
        tracing::warn!(%error, reason, "the log is held up; the Kafka client retries, check the brokers if this goes on");
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
        .create_with_context(ConsumerEvents)
        .map_err(|error| LogError::kafka(format_args!("cannot make a consumer of {what}"), &error))
}
