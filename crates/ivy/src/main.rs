//! The gateway alone, in front of remote replicas.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use ivy::{
    Fleet, FleetConfig, GatewayConfig, HedgeConfig, ReplicaName, ReplicaTls, Server, TlsConfig,
};
use rose_telemetry::LogFormat;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// HTTP gateway for reranking and embedding, in front of Tulip replicas.
#[derive(Debug, Parser)]
#[command(name = "ivy", version, about)]
struct Options {
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
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:8080"
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
        default_value_t = 60.0
    )]
    request_timeout: f64,
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
        default_value_t = 30.0
    )]
    drain_timeout: f64,
    /// error, warn, info, debug, trace, or a filter such as ivy=debug,info.
    #[arg(
        long,
        env = "IVY_LOG_LEVEL",
        value_name = "LEVEL",
        default_value = "info"
    )]
    log_level: String,
    /// text or json.
    #[arg(
        long,
        env = "IVY_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "text"
    )]
    log_format: String,
}

type Failure = Box<dyn std::error::Error>;

impl Options {
    fn gateway(&self) -> Result<GatewayConfig, Failure> {
        let tls = match (&self.tls_certificate, &self.tls_key) {
            (Some(certificate), Some(private_key)) => Some(TlsConfig {
                certificate: certificate.clone(),
                private_key: private_key.clone(),
            }),
            _ => None,
        };
        let default_timeout = seconds("request-timeout", self.request_timeout)?;
        Ok(GatewayConfig {
            http_address: self.http_address,
            api_keys: self.api_keys.clone(),
            cors_origins: self.cors_origins.clone(),
            tls,
            max_body_bytes: self.max_body_bytes,
            max_items_per_request: self.max_items_per_request,
            max_requests_in_flight: self.max_requests_in_flight,
            default_timeout,
            drain_timeout: seconds("drain-timeout", self.drain_timeout)?,
            auto_truncate: !self.no_auto_truncate,
            tokenizer_threads: self.tokenizer_threads,
            ..GatewayConfig::default()
        })
    }

    fn fleet(&self) -> Result<FleetConfig, Failure> {
        let tls = if self.replica_tls {
            let ca_pem = self.replica_ca.as_ref().map(|path| {
                std::fs::read(path)
                    .map_err(|error| format!("--replica-ca {}: {error}", path.display()))
            });
            Some(ReplicaTls {
                ca_pem: ca_pem.transpose()?,
                identity_pem: None,
                domain: None,
            })
        } else {
            None
        };
        Ok(FleetConfig {
            replicas: self.replicas.clone(),
            tls,
            strict_model_name: self.strict_model_name,
            hedge: self.hedge.then(HedgeConfig::default),
            ..FleetConfig::default()
        })
    }
}

fn seconds(option: &str, value: f64) -> Result<Duration, Failure> {
    Duration::try_from_secs_f64(value)
        .map_err(|error| format!("--{option}: {error}, is {value}").into())
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "the one line of a command that failed")]
            {
                eprintln!("ivy: {error}");
            }
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options) -> Result<(), Failure> {
    let format: LogFormat = options.log_format.parse()?;
    rose_telemetry::init(&options.log_level, format)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("ivy-worker")
        .enable_all()
        .build()?;
    runtime.block_on(serve(options, runtime.handle()))
}

/// Serves until SIGINT or SIGTERM; a second one ends the process at once.
async fn serve(options: &Options, runtime: &tokio::runtime::Handle) -> Result<(), Failure> {
    let mut signals = StopSignals::new()?;
    let config = options.gateway()?;
    let drain_timeout = config.drain_timeout;
    let fleet = Arc::new(Fleet::start(options.fleet()?)?);
    let server = Server::bind(config, Arc::clone(&fleet) as Arc<dyn ivy::Backend>, runtime)?;
    tokio::select! {
        () = fleet.ready() => {
            #[expect(clippy::print_stdout, reason = "the line that tells who waits for it")]
            {
                println!("ready http={}", server.local_addr());
            }
            signals.next().await;
        }
        () = signals.next() => {}
    }
    tracing::info!(?drain_timeout, "draining");
    tokio::select! {
        clean = server.shutdown(drain_timeout) => {
            if !clean {
                tracing::warn!("stopped with requests still in flight");
            }
        }
        () = signals.next() => tracing::warn!("second signal: stopped at once"),
    }
    Ok(())
}

/// SIGINT and SIGTERM.
struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
