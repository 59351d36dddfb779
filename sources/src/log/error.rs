use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

/// What went wrong with the log, by what the caller does about it.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Passes: try again, after a while, from the last state that is known to be in the log.
    #[error("{0}")]
    Transient(String),
    /// Another instance has taken over: stop.
    #[error("{0}")]
    Fenced(String),
    /// The log is not what it was or not what it should be: stop, and let an operator decide. The message says what
    /// happened, to what, and what to run next.
    #[error("{0}")]
    Refused(String),
}

impl LogError {
    /// What the caller does about an error of the client library; `action` says what was being done, and to what.
    pub(crate) fn kafka(action: impl std::fmt::Display, error: &KafkaError) -> Self {
        let message = format!("{action}: {error}");
        match error.rdkafka_error_code() {
            Some(Code::Fenced | Code::ProducerFenced | Code::InvalidProducerEpoch) => {
                LogError::Fenced(message)
            }
            Some(
                Code::UnknownTopic
                | Code::UnknownTopicOrPartition
                | Code::UnknownPartition
                | Code::UnknownTopicId
                | Code::AutoOffsetReset
                | Code::OffsetOutOfRange
                | Code::MessageSizeTooLarge
                | Code::InvalidArgument
                | Code::Authentication
                | Code::SaslAuthenticationFailed
                | Code::TopicAuthorizationFailed
                | Code::GroupAuthorizationFailed
                | Code::ClusterAuthorizationFailed
                | Code::TransactionalIdAuthorizationFailed
                | Code::Fatal,
            ) => LogError::Refused(message),
            None if matches!(error, KafkaError::ClientConfig(..) | KafkaError::ClientCreation(_)) => {
                LogError::Refused(message)
            }
            _ => LogError::Transient(message),
        }
    }

    /// Judges an error that a consumer met while it read `what`: those that pass are the client library's to retry.
    ///
    /// # Errors
    /// Gives back what does not pass by itself.
    pub(crate) fn unless_passing(what: &str, error: &KafkaError) -> Result<(), LogError> {
        let gone = matches!(error.rdkafka_error_code(), Some(Code::AutoOffsetReset | Code::OffsetOutOfRange));
        if gone {
            return Err(LogError::Refused(format!(
                "{what}: the records to go on from are gone ({error}): retention removed them, or the topic was made anew"
            )));
        }
        match LogError::kafka(format_args!("cannot read {what}"), error) {
            LogError::Transient(_) if !matches!(error, KafkaError::MessageConsumptionFatal(_)) => Ok(()),
            error => Err(error),
        }
    }
}
