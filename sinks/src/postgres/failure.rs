//! What an error of Postgres means for whoever waits for a store.

use postgres::error::SqlState;

use crate::store::StoreError;

/// A database that is away, fails over or is full comes back; one that knows no such table, user or database, or holds
/// what it must not, needs an operator, who is sent to this section of the configuration.
pub(crate) fn failure(place: &str, section: &str, error: &postgres::Error) -> StoreError {
    let text = match error.as_db_error() {
        Some(server) => format!("{place}: {server}"),
        None => format!("{place}: {error}"),
    };
    match error.code() {
        Some(code) if *code == SqlState::UNDEFINED_TABLE || *code == SqlState::INVALID_SCHEMA_NAME => {
            StoreError::Refused(format!("{text}; run `fencepost migrate`"))
        }
        // Classes 22 (a value out of range), 23 (constraint), 28 (authorization), 3D (no such database), 42 (no such
        // thing, no permission).
        Some(code) if ["22", "23", "28", "3D", "42"].iter().any(|class| code.code().starts_with(class)) => {
            StoreError::Refused(format!("{text}; check {section} url and its permissions"))
        }
        _ => StoreError::Transient(text),
    }
}
