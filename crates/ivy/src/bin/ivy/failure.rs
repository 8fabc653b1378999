//! Why the command ends, in the words of its options.

use std::io;

use ivy::fleet::FleetConfigError;
use ivy::{ConfigError, ServeError};

/// One line for the operator.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Failure(String);

impl Failure {
    /// `--option: what is wrong`.
    pub(crate) fn of_option(option: &str, message: impl std::fmt::Display) -> Self {
        Self(format!("--{option}: {message}"))
    }

    fn of_field(field: &str, message: &str) -> Self {
        match field {
            "api_keys" => Self::of_option("api-key", message),
            "cors_origins" => Self::of_option("cors-origin", message),
            "default_timeout" => Self::of_option("request-timeout", message),
            "replicas" => Self::of_option("replica", message),
            _ => Self::of_option(&field.replace('_', "-"), message),
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::of_field(error.option, &error.message)
    }
}

impl From<FleetConfigError> for Failure {
    fn from(error: FleetConfigError) -> Self {
        Self::of_field(error.option, &error.message)
    }
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Self {
        match error {
            ServeError::Config(error) => error.into(),
            ServeError::Bind { address, source } => Self::of_option(
                "http-address",
                format!("cannot listen on {address}: {source}"),
            ),
            ServeError::Threads { threads, source } => {
                Self::of_option("tokenizer-threads", format!("{threads}: {source}"))
            }
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}
