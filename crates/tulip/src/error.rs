//! Why a request failed, in the caller's terms. `status.rs` maps these to gRPC, nothing else does.

use std::time::Duration;

use tulip_proto::quoted;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a whole request failed. One bad item is an item error instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The request is wrong, or can never fit.
    #[error("{field}: {message}")]
    InvalidArgument {
        /// Path of the field in the request, such as `documents[3].token_ids`.
        field: String,
        /// What is wrong, with the limit and the value.
        message: String,
    },
    /// This model does not do that task.
    #[error("{0}")]
    WrongTask(String),
    /// Another model is served here.
    #[error("model: {} is not served here, {served:?} is", quoted(requested))]
    UnknownModel {
        /// The name in the request.
        requested: String,
        /// The name served.
        served: String,
    },
    /// Admission would pass the bound of the queue.
    #[error(
        "queue full: {queued_tokens} tokens wait, this request has {request_tokens}, limit max_queued_tokens={max_queued_tokens}"
    )]
    QueueFull {
        /// Tokens of this request.
        request_tokens: u64,
        /// Tokens that wait already.
        queued_tokens: u64,
        /// The bound.
        max_queued_tokens: u64,
        /// When a retry has a fair chance.
        retry_after: Duration,
    },
    /// The deadline passed before all results were there.
    #[error("deadline exceeded after {waited_ms} ms")]
    DeadlineExceeded {
        /// Milliseconds since arrival.
        waited_ms: u64,
    },
    /// Loading, draining, unhealthy or stopped.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// The step that held this request failed.
    #[error("internal: {0}")]
    Internal(String),
}

impl Error {
    /// An [`Error::InvalidArgument`].
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::InvalidArgument {
            field: field.into(),
            message: message.into(),
        }
    }
}
