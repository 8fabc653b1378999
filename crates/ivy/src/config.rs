//! Options of the gateway, checked before a port is bound.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Options of the HTTP side.
#[derive(Debug, Clone, PartialEq)]
pub struct GatewayConfig {
    /// Where to listen; port 0 takes any.
    pub http_address: SocketAddr,
    /// Keys of which a request must carry one; none = every request is welcome.
    pub api_keys: Vec<String>,
    /// Origins that browsers may call from; `*` = any; none = no CORS headers.
    pub cors_origins: Vec<String>,
    /// Certificate and key; none = plain HTTP.
    pub tls: Option<TlsConfig>,
    /// Bytes of one body at the most.
    pub max_body_bytes: usize,
    /// Documents or inputs of one request at the most.
    pub max_items_per_request: usize,
    /// Requests worked on at the same time at the most; more are told to come back.
    pub max_requests_in_flight: usize,
    /// Connections at the same time at the most; more wait in the system's backlog.
    pub max_connections: usize,
    /// How long a new connection may take to the end of its first request's headers.
    pub header_timeout: Duration,
    /// How long a connection may rest between requests, the next one's headers included. Longer
    /// than clients keep theirs, or they send on connections that are just being closed.
    pub keepalive_timeout: Duration,
    /// How long a client may take for the body of a request.
    pub body_timeout: Duration,
    /// Deadline of requests that bring none.
    pub default_timeout: Duration,
    /// The longest deadline that a request may bring.
    pub max_timeout: Duration,
    /// How long drain waits for what is in flight.
    pub drain_timeout: Duration,
    /// Whether TEI's and OpenAI's dialects cut over-long inputs where the request does not say.
    pub auto_truncate: bool,
    /// Threads for tokenization, and for JSON that is large.
    pub tokenizer_threads: usize,
}

/// Files in PEM format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsConfig {
    /// The certificate chain, the server's own first.
    pub certificate: PathBuf,
    /// The private key.
    pub private_key: PathBuf,
}

impl TlsConfig {
    /// Both files, or none.
    ///
    /// # Errors
    /// One without the other.
    pub fn of_files(
        certificate: Option<PathBuf>,
        private_key: Option<PathBuf>,
    ) -> Result<Option<Self>, ConfigError> {
        match (certificate, private_key) {
            (Some(certificate), Some(private_key)) => Ok(Some(Self {
                certificate,
                private_key,
            })),
            (None, None) => Ok(None),
            (Some(_), None) => Err(ConfigError::new(
                "tls_key",
                "missing beside tls_certificate",
            )),
            (None, Some(_)) => Err(ConfigError::new(
                "tls_certificate",
                "missing beside tls_key",
            )),
        }
    }
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            http_address: SocketAddr::from(([127, 0, 0, 1], 8080)),
            api_keys: Vec::new(),
            cors_origins: Vec::new(),
            tls: None,
            max_body_bytes: 64 << 20,
            max_items_per_request: 10_000,
            max_requests_in_flight: 4_096,
            max_connections: 8_192,
            header_timeout: Duration::from_secs(10),
            keepalive_timeout: Duration::from_secs(120),
            body_timeout: Duration::from_secs(30),
            default_timeout: Duration::from_secs(60),
            max_timeout: Duration::from_secs(3_600),
            drain_timeout: Duration::from_secs(30),
            auto_truncate: true,
            tokenizer_threads: 2,
        }
    }
}

/// An option that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{option}: {message}")]
pub struct ConfigError {
    /// Name of the option, as in the struct.
    pub option: &'static str,
    /// What is wrong, with limit and value.
    pub message: String,
}

impl ConfigError {
    pub(crate) fn new(option: &'static str, message: impl Into<String>) -> Self {
        Self {
            option,
            message: message.into(),
        }
    }
}

impl GatewayConfig {
    /// The same with another deadline for requests that bring none; a longer one than requests
    /// may bring raises that limit too.
    #[must_use]
    pub fn with_default_timeout(self, default_timeout: Duration) -> Self {
        Self {
            default_timeout,
            max_timeout: self.max_timeout.max(default_timeout),
            ..self
        }
    }

    /// Checks every option.
    ///
    /// # Errors
    /// The first option that cannot be.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let positive = [
            ("max_body_bytes", self.max_body_bytes),
            ("max_items_per_request", self.max_items_per_request),
            ("max_requests_in_flight", self.max_requests_in_flight),
            ("max_connections", self.max_connections),
            ("tokenizer_threads", self.tokenizer_threads),
        ];
        for (option, value) in positive {
            if value == 0 {
                return Err(ConfigError::new(option, "must be at least 1, is 0"));
            }
        }
        let times = [
            ("header_timeout", self.header_timeout),
            ("keepalive_timeout", self.keepalive_timeout),
            ("body_timeout", self.body_timeout),
            ("default_timeout", self.default_timeout),
            ("max_timeout", self.max_timeout),
        ];
        for (option, value) in times {
            if value.is_zero() {
                return Err(ConfigError::new(option, "must be more than 0, is 0"));
            }
        }
        if self.default_timeout > self.max_timeout {
            let (default, max) = (self.default_timeout, self.max_timeout);
            let message = format!("is {default:?}, must not pass max_timeout={max:?}");
            return Err(ConfigError::new("default_timeout", message));
        }
        if self.api_keys.iter().any(String::is_empty) {
            return Err(ConfigError::new("api_keys", "a key must not be empty"));
        }
        for origin in &self.cors_origins {
            let parsed = http::HeaderValue::from_str(origin);
            let plain = origin == "*" || origin.contains("://");
            if parsed.is_err() || !plain || origin.ends_with('/') {
                let message = format!("{origin:?} is neither * nor SCHEME://HOST[:PORT]");
                return Err(ConfigError::new("cors_origins", message));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid() {
        assert_eq!(GatewayConfig::default().validate(), Ok(()));
    }

    #[test]
    fn what_cannot_be_is_named() {
        let refused = |change: fn(&mut GatewayConfig)| {
            let mut config = GatewayConfig::default();
            change(&mut config);
            config.validate().unwrap_err().to_string()
        };
        assert_eq!(
            refused(|config| config.max_body_bytes = 0),
            "max_body_bytes: must be at least 1, is 0"
        );
        assert_eq!(
            refused(|config| config.default_timeout = Duration::from_secs(7_200)),
            "default_timeout: is 7200s, must not pass max_timeout=3600s"
        );
        assert_eq!(
            refused(|config| config.cors_origins = vec!["example.org".into()]),
            "cors_origins: \"example.org\" is neither * nor SCHEME://HOST[:PORT]"
        );
    }
}
