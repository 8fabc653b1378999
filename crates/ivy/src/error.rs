//! Why a request failed, in the caller's terms. `api/family.rs` gives each family of dialects its
//! status codes and its JSON, nothing else does.

use std::time::Duration;

use tonic::{Code, Status};
use tulip_proto::shortened;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a whole request failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The body is not JSON.
    #[error("the body is not valid JSON: {0}")]
    Malformed(String),
    /// A field is wrong, or the request can never fit.
    #[error("{}", named(field, message))]
    Invalid {
        /// The field, as the client writes it; empty where it is none in particular.
        field: String,
        /// What is wrong, with limit and value.
        message: String,
    },
    /// A list or a text that must hold something holds nothing.
    #[error("{}", named(field, "must not be empty"))]
    Empty {
        /// The field, as the client writes it.
        field: String,
    },
    /// The request has no API key.
    #[error("no API key: send it as `Authorization: Bearer KEY`")]
    NoKey,
    /// The request has an API key that is none of ours.
    #[error("invalid API key")]
    WrongKey,
    /// There is nothing at this path.
    #[error("no route {0}")]
    UnknownRoute(String),
    /// Another method is meant for this path.
    #[error("method {method} is not allowed for {path}")]
    MethodNotAllowed {
        /// As sent.
        method: String,
        /// As sent.
        path: String,
    },
    /// No such model is served here.
    #[error("{0}")]
    UnknownModel(String),
    /// The client began a body and did not end it in time.
    #[error("the body did not arrive within {0} ms")]
    SlowBody(u128),
    /// The connection broke, or the body's framing is wrong.
    #[error("the body could not be read: {0}")]
    BrokenBody(String),
    /// The body is larger than it may be.
    #[error("the body is larger than max_body_bytes={limit}")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The body is something else than plain JSON.
    #[error("{0}")]
    MediaType(String),
    /// This model does not do that task.
    #[error("{0}")]
    WrongTask(String),
    /// No room now, but later.
    #[error("{message}")]
    Overloaded {
        /// What is full.
        message: String,
        /// When a retry has a fair chance; `None` = not known.
        retry_after: Option<Duration>,
    },
    /// Loading, draining, or no replica is healthy.
    #[error("{0}")]
    Unavailable(String),
    /// The deadline passed before the answer was there.
    #[error("{0}")]
    DeadlineExceeded(String),
    /// Our own fault, or the model's.
    #[error("{0}")]
    Internal(String),
}

fn named(field: &str, message: &str) -> String {
    if field.is_empty() {
        message.to_owned()
    } else {
        format!("{field}: {message}")
    }
}

impl Error {
    /// An [`Error::Invalid`].
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid {
            field: field.into(),
            message: message.into(),
        }
    }

    /// An [`Error::Empty`].
    pub fn empty(field: impl Into<String>) -> Self {
        Self::Empty {
            field: field.into(),
        }
    }

    /// The same error with the client's name of a field in place of the wire's: `documents[3]`
    /// of `tulip.v1` is `texts[3]` to a client of TEI.
    #[must_use]
    pub fn renamed(self, wire: &str, client: &str) -> Self {
        match self {
            Self::Invalid { field, message } => {
                let field = match field.strip_prefix(wire) {
                    Some(rest) if rest.is_empty() || rest.starts_with(['[', '.']) => {
                        format!("{client}{rest}")
                    }
                    _ => field,
                };
                Self::Invalid { field, message }
            }
            other => other,
        }
    }

    /// The same error with a message of bounded length, whatever of the request it repeats.
    #[must_use]
    pub fn shortened(mut self) -> Self {
        match &mut self {
            Self::Malformed(message)
            | Self::UnknownRoute(message)
            | Self::UnknownModel(message)
            | Self::BrokenBody(message)
            | Self::MediaType(message)
            | Self::WrongTask(message)
            | Self::Overloaded { message, .. }
            | Self::Unavailable(message)
            | Self::DeadlineExceeded(message)
            | Self::Internal(message) => shorten(message),
            Self::Invalid { field, message } => {
                shorten(field);
                shorten(message);
            }
            Self::Empty { field } => shorten(field),
            Self::MethodNotAllowed { method, path } => {
                shorten(method);
                shorten(path);
            }
            Self::NoKey | Self::WrongKey | Self::SlowBody(_) | Self::TooLarge { .. } => {}
        }
        self
    }

    /// Milliseconds after which a retry has a fair chance, for errors that pass by themselves.
    #[must_use]
    pub fn retry_after_ms(&self) -> Option<u64> {
        match self {
            Self::Overloaded { retry_after, .. } => {
                let after = retry_after.unwrap_or(DEFAULT_RETRY_AFTER);
                Some(u64::try_from(after.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
            }
            Self::Unavailable(_) => Some(DEFAULT_RETRY_AFTER.as_millis() as u64),
            _ => None,
        }
    }
}

fn shorten(text: &mut String) {
    *text = shortened(std::mem::take(text));
}

/// Where nobody knows better: a replica restarts, or a queue drains, in about this time.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Time that a status asks to wait, from Tulip's trailing metadata.
pub(crate) fn retry_after(status: &Status) -> Option<Duration> {
    let value = status.metadata().get("retry-after-ms")?;
    value.to_str().ok()?.parse().ok().map(Duration::from_millis)
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        let message = status.message().to_owned();
        match status.code() {
            Code::InvalidArgument | Code::OutOfRange => at_field(&message),
            Code::NotFound => Self::UnknownModel(message),
            Code::FailedPrecondition | Code::Unimplemented => Self::WrongTask(message),
            Code::ResourceExhausted => Self::Overloaded {
                retry_after: retry_after(&status),
                message,
            },
            Code::Unavailable => Self::Unavailable(message),
            Code::DeadlineExceeded | Code::Cancelled => Self::DeadlineExceeded(message),
            _ => Self::Internal(message),
        }
    }
}

/// Tulip's messages begin with the path of the field and a colon.
pub(crate) fn at_field(message: &str) -> Error {
    match message.split_once(": ") {
        Some((field, rest)) if is_path(field) => Error::invalid(field, rest),
        _ => Error::invalid("", message),
    }
}

fn is_path(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_.[]".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_keeps_its_field_and_its_time() {
        let error = Error::from(Status::invalid_argument("documents[3].form: 9 is none"));
        assert_eq!(error, Error::invalid("documents[3].form", "9 is none"));
        assert_eq!(
            error.renamed("documents", "texts").to_string(),
            "texts[3].form: 9 is none"
        );
        let mut status = Status::resource_exhausted("queue full: 5 tokens wait");
        let value = 1500_u64.into();
        status.metadata_mut().insert("retry-after-ms", value);
        assert_eq!(Error::from(status).retry_after_ms(), Some(1500));
    }

    #[test]
    fn prose_is_no_field() {
        let error = Error::from(Status::invalid_argument("no field here: none"));
        assert_eq!(error, Error::invalid("", "no field here: none"));
        let other = Error::invalid("documents_per_day", "is 3");
        assert_eq!(other.clone().renamed("documents", "texts"), other);
    }
}
