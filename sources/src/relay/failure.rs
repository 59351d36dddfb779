use pgwire_replication::PgWireError;

use crate::log::LogError;

/// Why a session of the relay ended, by what is done about it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Failure {
    /// Passes: the start protocol runs again, after a while.
    #[error("{0}")]
    Transient(String),
    /// Another relay has taken over the log, or the brokers gave this one up because it stood still: stop.
    #[error(
        "another relay took over: {0}; if none is running, this one stood still for so long that the brokers gave it up: start it again"
    )]
    Fenced(String),
    /// Somebody has to decide. The message says what happened, to what, and what to run next.
    #[error("{0}")]
    Refused(String),
}

impl From<LogError> for Failure {
    fn from(error: LogError) -> Self {
        match error {
            LogError::Transient(message) => Failure::Transient(message),
            LogError::Fenced(message) => Failure::Fenced(message),
            LogError::Refused(message) => Failure::Refused(message),
        }
    }
}

impl Failure {
    /// What is done about an error of a query; `action` says what was being done.
    pub(super) fn query(action: &str, error: &postgres::Error) -> Self {
        let message = match error.as_db_error() {
            Some(db) => format!("{action}: {} (SQLSTATE {})", db.message(), db.code().code()),
            None => format!("{action}: {}", with_source(error)),
        };
        Self::by_sqlstate(error.code().map(postgres::error::SqlState::code), message)
    }

    /// What is done about an error of the replication stream.
    pub(super) fn stream(error: &PgWireError) -> Self {
        let message = format!("replication stream ended: {error}");
        match error {
            // The library gives the code in the text alone.
            PgWireError::Server(text) => {
                let code = text.rsplit_once("SQLSTATE ").and_then(|(_, code)| code.get(..5));
                Self::by_sqlstate(code, message)
            }
            PgWireError::Auth(_) | PgWireError::Tls(_) | PgWireError::MessageTooLarge { .. } => {
                Failure::Refused(message)
            }
            _ => Failure::Transient(message),
        }
    }

    fn by_sqlstate(code: Option<&str>, message: String) -> Self {
        match code {
            Some(code) if !passes(code) => Failure::Refused(message),
            _ => Failure::Transient(message),
        }
    }
}

/// Whether an error of this SQLSTATE goes away by itself.
fn passes(code: &str) -> bool {
    let class = code.get(..2).unwrap_or_default();
    // Connections, serialization, resources, the disk.
    matches!(class, "08" | "40" | "53" | "58")
        || matches!(
            code,
            "57P01" // the server shuts down
            | "57P02" // it recovers from a crash of another session
            | "57P03" // it starts up
            | "57P05" // the session was idle for too long
            | "57014" // the query took too long
            | "25P03" // the transaction was idle for too long
            | "55006" // the slot is still held by a session that is going away
            | "55P03" // a lock was not to be had
        )
}

/// The message of a client error with what caused it: `postgres` says only "error connecting to server".
fn with_source(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_and_what_does_not() {
        let stream = |text: &str| Failure::stream(&PgWireError::Server(text.to_owned()));
        for passing in ["slot is active (SQLSTATE 55006)", "shutting down (SQLSTATE 57P01)", "unknown"] {
            assert!(matches!(stream(passing), Failure::Transient(_)), "{passing}");
        }
        for lasting in ["slot does not exist (SQLSTATE 42704)", "denied (SQLSTATE 42501): SELECT"] {
            assert!(matches!(stream(lasting), Failure::Refused(_)), "{lasting}");
        }
    }
}
