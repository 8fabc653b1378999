//! The one place where errors become gRPC statuses.

use std::time::Duration;

use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Code, Status};
use tulip_proto::shortened;
use tulip_proto::v1::StreamError;

use crate::error::Error;

/// Trailing metadata of `RESOURCE_EXHAUSTED`: milliseconds after which a retry has a fair chance.
pub const RETRY_AFTER_MS: &str = "retry-after-ms";

/// The same for the retry policy built into gRPC clients.
const RETRY_PUSHBACK_MS: &str = "grpc-retry-pushback-ms";

/// The gRPC code of an error.
#[must_use]
pub fn code(error: &Error) -> Code {
    match error {
        Error::InvalidArgument { .. } => Code::InvalidArgument,
        Error::WrongTask(_) => Code::FailedPrecondition,
        Error::UnknownModel { .. } => Code::NotFound,
        Error::QueueFull { .. } => Code::ResourceExhausted,
        Error::DeadlineExceeded { .. } => Code::DeadlineExceeded,
        Error::Unavailable(_) => Code::Unavailable,
        Error::Internal(_) => Code::Internal,
    }
}

fn retry_after_ms(error: &Error) -> Option<u64> {
    match error {
        Error::QueueFull { retry_after, .. } => Some(whole_ms(*retry_after)),
        _ => None,
    }
}

/// Rounded up: a retry must not come early.
fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let mut status = Self::new(code(&error), shortened(error.to_string()));
        if let Some(retry_after_ms) = retry_after_ms(&error) {
            let value: MetadataValue<Ascii> = retry_after_ms.into();
            status.metadata_mut().insert(RETRY_AFTER_MS, value.clone());
            status.metadata_mut().insert(RETRY_PUSHBACK_MS, value);
        }
        status
    }
}

impl From<Error> for StreamError {
    fn from(error: Error) -> Self {
        Self {
            code: code(&error) as i32,
            message: shortened(error.to_string()),
            retry_after_ms: retry_after_ms(&error).unwrap_or(0),
        }
    }
}

/// tonic refuses an over-long message as `OUT_OF_RANGE`; to us it is a request that can never fit.
pub(crate) fn message_too_large(refused: &Status, max_message_bytes: usize) -> Status {
    // Its own words name the limit too, but not as the option that sets it.
    let found = refused.message().split_once("found ");
    let bytes = found.and_then(|(_, rest)| rest.split(' ').next()?.parse::<u64>().ok());
    let what = bytes.map_or_else(
        || "is too large".to_owned(),
        |bytes| format!("has {bytes} bytes"),
    );
    Status::invalid_argument(format!(
        "message: {what}, limit max_message_bytes={max_message_bytes}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_its_code() {
        let queue_full = Error::QueueFull {
            request_tokens: 1,
            queued_tokens: 2,
            max_queued_tokens: 2,
            retry_after: Duration::from_micros(1500),
        };
        let unknown = Error::UnknownModel {
            requested: "a".into(),
            served: "b".into(),
        };
        let cases = [
            (Error::invalid("query", "is missing"), Code::InvalidArgument),
            (Error::WrongTask("no".into()), Code::FailedPrecondition),
            (unknown, Code::NotFound),
            (queue_full, Code::ResourceExhausted),
            (
                Error::DeadlineExceeded { waited_ms: 3 },
                Code::DeadlineExceeded,
            ),
            (Error::Unavailable("draining".into()), Code::Unavailable),
            (Error::Internal("broken".into()), Code::Internal),
        ];
        for (error, code) in cases {
            let message = error.to_string();
            let status = Status::from(error.clone());
            assert_eq!((status.code(), status.message()), (code, &*message));
            assert_eq!(StreamError::from(error).code, code as i32);
        }
    }

    #[test]
    fn a_message_that_is_too_large_says_how_large() {
        let tonics =
            "Error, decoded message length too large: found 70 bytes, the limit is: 60 bytes";
        let status = message_too_large(&Status::out_of_range(tonics), 60);
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(
            status.message(),
            "message: has 70 bytes, limit max_message_bytes=60"
        );
        let status = message_too_large(&Status::out_of_range("found none"), 60);
        assert_eq!(
            status.message(),
            "message: is too large, limit max_message_bytes=60"
        );
    }

    #[test]
    fn messages_fit_into_headers() {
        let status = Status::from(Error::invalid("label", "ä".repeat(10_000)));
        assert!(status.message().len() <= 2000, "{}", status.message().len());
        let error = StreamError::from(Error::invalid("label", "ä".repeat(10_000)));
        assert!(error.message.len() <= 2000, "{}", error.message.len());
    }

    #[test]
    fn a_full_queue_says_when_to_retry() {
        let error = Error::QueueFull {
            request_tokens: 1,
            queued_tokens: 2,
            max_queued_tokens: 2,
            retry_after: Duration::from_micros(1500),
        };
        let status = Status::from(error.clone());
        for key in [RETRY_AFTER_MS, RETRY_PUSHBACK_MS] {
            assert_eq!(status.metadata().get(key).unwrap(), "2");
        }
        assert_eq!(StreamError::from(error).retry_after_ms, 2);
    }
}
