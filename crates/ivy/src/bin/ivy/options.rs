//! Options of the command, and the configurations that they fill.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use ivy::{FleetConfig, GatewayConfig, HedgeConfig, ReplicaName, ReplicaTls, TlsConfig};
use rose_telemetry::LogFormat;

use crate::failure::Failure;

/// HTTP gateway for reranking and embedding, in front of Tulip replicas.
#[derive(Debug, Parser)]
#[command(name = "ivy", version, about)]
pub(crate) struct Options {
    /// A replica, or a name that stands for several; repeatable.
    #[arg(
        long = "replica",
        env = "IVY_REPLICAS",
        value_name = "HOST:PORT",
        required = true,
        value_delimiter = ','
    )]
    replicas: Vec<ReplicaName>,
    /// Where to listen; port 0 takes any.
    #[arg(
        long,
        env = "IVY_HTTP_ADDRESS",
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:8080",
        value_parser = listening_address
    )]
    http_address: SocketAddr,
    /// A key of which requests must carry one; repeatable.
    #[arg(
        long = "api-key",
        env = "IVY_API_KEYS",
        hide_env_values = true,
        value_name = "KEY",
        value_delimiter = ','
    )]
    api_keys: Vec<String>,
    /// An origin that browsers may call from, or *; repeatable.
    #[arg(
        long = "cors-origin",
        env = "IVY_CORS_ORIGINS",
        value_name = "ORIGIN",
        value_delimiter = ','
    )]
    cors_origins: Vec<String>,
    /// Certificate chain in PEM; with --tls-key.
    #[arg(
        long,
        env = "IVY_TLS_CERTIFICATE",
        value_name = "FILE",
        requires = "tls_key"
    )]
    tls_certificate: Option<PathBuf>,
    /// Private key in PEM; with --tls-certificate.
    #[arg(
        long,
        env = "IVY_TLS_KEY",
        value_name = "FILE",
        requires = "tls_certificate"
    )]
    tls_key: Option<PathBuf>,
    /// Speak TLS to the replicas.
    #[arg(long, env = "IVY_REPLICA_TLS")]
    replica_tls: bool,
    /// Authorities in PEM that sign the replicas' certificates; the system's if absent.
    #[arg(
        long,
        env = "IVY_REPLICA_CA",
        value_name = "FILE",
        requires = "replica_tls"
    )]
    replica_ca: Option<PathBuf>,
    /// Most bytes of one body.
    #[arg(long, env = "IVY_MAX_BODY_BYTES", value_name = "BYTES", default_value_t = GatewayConfig::default().max_body_bytes)]
    max_body_bytes: usize,
    /// Most documents or inputs of one request.
    #[arg(long, env = "IVY_MAX_ITEMS_PER_REQUEST", value_name = "COUNT", default_value_t = GatewayConfig::default().max_items_per_request)]
    max_items_per_request: usize,
    /// Most requests worked on at the same time.
    #[arg(long, env = "IVY_MAX_REQUESTS_IN_FLIGHT", value_name = "COUNT", default_value_t = GatewayConfig::default().max_requests_in_flight)]
    max_requests_in_flight: usize,
    /// Deadline of requests that bring none.
    #[arg(
        long,
        env = "IVY_REQUEST_TIMEOUT",
        value_name = "SECONDS",
        default_value = "60",
        value_parser = seconds,
        allow_negative_numbers = true
    )]
    request_timeout: Duration,
    /// Refuse over-long inputs where TEI's and OpenAI's requests do not say what to do.
    #[arg(long, env = "IVY_NO_AUTO_TRUNCATE")]
    no_auto_truncate: bool,
    /// Refuse requests that name another model than the one served.
    #[arg(long, env = "IVY_STRICT_MODEL_NAME")]
    strict_model_name: bool,
    /// Send late work a second time, elsewhere.
    #[arg(long, env = "IVY_HEDGE")]
    hedge: bool,
    /// Threads that tokenize.
    #[arg(long, env = "IVY_TOKENIZER_THREADS", value_name = "COUNT", default_value_t = GatewayConfig::default().tokenizer_threads)]
    tokenizer_threads: usize,
    /// How long a stopping gateway waits for what is in flight.
    #[arg(
        long,
        env = "IVY_DRAIN_TIMEOUT",
        value_name = "SECONDS",
        default_value = "30",
        value_parser = seconds,
        allow_negative_numbers = true
    )]
    drain_timeout: Duration,
    /// error, warn, info, debug, trace, or a filter such as ivy=debug,info.
    #[arg(
        long,
        env = "IVY_LOG_LEVEL",
        value_name = "LEVEL",
        default_value = "info"
    )]
    pub(crate) log_level: String,
    /// text or json.
    #[arg(
        long,
        env = "IVY_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "text"
    )]
    pub(crate) log_format: LogFormat,
}

impl Options {
    pub(crate) fn gateway(&self) -> Result<GatewayConfig, Failure> {
        let defaults = GatewayConfig::default();
        Ok(GatewayConfig {
            http_address: self.http_address,
            api_keys: self.api_keys.clone(),
            cors_origins: self.cors_origins.clone(),
            tls: TlsConfig::of_files(self.tls_certificate.clone(), self.tls_key.clone())?,
            max_body_bytes: self.max_body_bytes,
            max_items_per_request: self.max_items_per_request,
            max_requests_in_flight: self.max_requests_in_flight,
            drain_timeout: self.drain_timeout,
            auto_truncate: !self.no_auto_truncate,
            tokenizer_threads: self.tokenizer_threads,
            ..defaults
        }
        .with_default_timeout(self.request_timeout))
    }

    pub(crate) fn fleet(&self) -> Result<FleetConfig, Failure> {
        let tls = self.replica_tls.then(|| {
            ReplicaTls::signed_by(self.replica_ca.as_deref())
                .map_err(|message| Failure::of_option("replica-ca", message))
        });
        Ok(FleetConfig {
            replicas: self.replicas.clone(),
            tls: tls.transpose()?,
            strict_model_name: self.strict_model_name,
            hedge: self.hedge.then(HedgeConfig::default),
            ..FleetConfig::default()
        })
    }
}

/// The first address of `HOST:PORT`.
fn listening_address(text: &str) -> Result<SocketAddr, String> {
    let mut found = text.to_socket_addrs().map_err(|error| error.to_string())?;
    found.next().ok_or_else(|| "it has no address".into())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let value = text.parse::<f64>().map_err(|error| error.to_string())?;
    let time = Duration::try_from_secs_f64(value);
    time.map_err(|_| "must be seconds from 0, such as 1.5".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_consistent() {
        use clap::CommandFactory as _;
        Options::command().debug_assert();
    }

    fn parsed(more: &[&str]) -> Result<Options, String> {
        let given = ["ivy", "--replica", "a:1"].into_iter();
        Options::try_parse_from(given.chain(more.iter().copied())).map_err(|e| e.to_string())
    }

    #[test]
    fn a_host_name_is_looked_up_to_listen() {
        let options = parsed(&["--http-address", "localhost:80"]).unwrap();
        assert!(options.http_address.ip().is_loopback());
        assert_eq!(options.http_address.port(), 80);
        let refused = parsed(&["--http-address", "localhost"]).unwrap_err();
        assert!(
            refused.contains("'--http-address <HOST:PORT>'"),
            "{refused}"
        );
    }

    #[test]
    fn times_are_seconds_from_zero() {
        let options = parsed(&["--request-timeout", "7200", "--drain-timeout", "0.5"]).unwrap();
        let config = options.gateway().unwrap();
        assert_eq!(config.default_timeout, Duration::from_secs(7200));
        assert_eq!(config.drain_timeout, Duration::from_millis(500));
        config.validate().unwrap();
        for wrong in ["-1", "nan", "soon"] {
            let refused = parsed(&["--drain-timeout", wrong]).unwrap_err();
            assert!(refused.contains("'--drain-timeout <SECONDS>'"), "{refused}");
        }
    }
}
