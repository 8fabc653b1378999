//! Why a request failed, in the caller's terms. `api/family.rs` gives each dialect family's
//! status and JSON, nothing else does.

use std::time::Duration;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a whole request failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The request is wrong, or can never fit.
    #[error("{message}")]
    Invalid {
        /// The field, as the client wrote it; empty where it is none in particular.
        field: String,
        /// What is wrong, with field, limit and value.
        message: String,
    },
}

/// Time that a status asks to wait, from Tulip's trailing metadata.
pub(crate) fn retry_after(status: &tonic::Status) -> Option<Duration> {
    let value = status.metadata().get("retry-after-ms")?;
    value.to_str().ok()?.parse().ok().map(Duration::from_millis)
}
