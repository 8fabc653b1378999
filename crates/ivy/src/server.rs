//! The HTTP server: takes its port, answers, drains.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use axum::Router;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::backend::Backend;
use crate::config::{ConfigError, GatewayConfig};
use crate::connection::{Listening, Stop, accept};
use crate::gateway::Gateway;
use crate::{layers, tls};

/// How often somebody who waits for the end is asked whether he still does.
const LOOK_UP_TIME: Duration = Duration::from_millis(100);

/// Why the gateway cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An option cannot be.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The port is taken, or the address is not ours.
    #[error("http_address: cannot listen on {address}: {source}")]
    Bind {
        /// As given.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The system gives no threads.
    #[error("tokenizer_threads={threads}: {source}")]
    Threads {
        /// Threads wanted.
        threads: usize,
        /// What the system said.
        source: io::Error,
    },
}

/// The routes of the gateway as a service, without a socket: for tests, and for a server of the
/// caller's own.
///
/// # Errors
/// An option is wrong, or there are no threads; names the option.
pub fn app(config: GatewayConfig, backend: Arc<dyn Backend>) -> Result<Router, ServeError> {
    config.validate()?;
    let threads = config.tokenizer_threads;
    let gateway =
        Gateway::new(config, backend).map_err(|source| ServeError::Threads { threads, source })?;
    Ok(layers::app(Arc::new(gateway)))
}

/// Records what `/metrics` shows, unless the process has a recorder of its own.
fn record_metrics(runtime: &Handle, stop: &Stop) {
    if !rose_telemetry::metrics::install() {
        tracing::info!("the process records metrics by itself: /metrics has none");
        return;
    }
    crate::metrics::describe();
    crate::fleet::metrics::describe();
    let stop = stop.gracefully.clone();
    runtime.spawn(async move {
        let mut ticks = tokio::time::interval(rose_telemetry::metrics::UPKEEP_INTERVAL);
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            rose_telemetry::metrics::upkeep();
        }
    });
}

/// A running gateway. Dropping it ends it at once; [`Server::shutdown`] lets requests finish.
#[derive(Debug)]
pub struct Server {
    local_addr: SocketAddr,
    stop: Stop,
    connections: TaskTracker,
}

impl Server {
    /// Checks the options, takes the port and starts to answer, on the threads of `runtime`.
    ///
    /// # Errors
    /// An option is wrong, the port is taken, or there are no threads; names the option.
    pub fn bind(
        config: GatewayConfig,
        backend: Arc<dyn Backend>,
        runtime: &Handle,
    ) -> Result<Self, ServeError> {
        config.validate()?;
        let tls = config.tls.as_ref().map(tls::acceptor).transpose()?;
        let address = config.http_address;
        let bind_error = |source| ServeError::Bind { address, source };
        let listener = std::net::TcpListener::bind(address).map_err(bind_error)?;
        listener.set_nonblocking(true).map_err(bind_error)?;
        let local_addr = listener.local_addr().map_err(bind_error)?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(bind_error)?
        };
        let max_connections = config.max_connections;
        let (header_timeout, keepalive_timeout) = (config.header_timeout, config.keepalive_timeout);
        let stop = Stop::default();
        let connections = TaskTracker::new();
        let listening = Listening {
            app: app(config, backend)?,
            tls,
            header_timeout,
            keepalive_timeout,
            stop: stop.clone(),
        };
        record_metrics(runtime, &stop);
        runtime.spawn(accept(
            listener,
            listening,
            max_connections,
            connections.clone(),
        ));
        Ok(Self {
            local_addr,
            stop,
            connections,
        })
    }

    /// Where it listens, with the port that the system chose.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Accepts no more connections and closes each once its requests in flight are answered.
    pub fn begin_drain(&self) {
        self.stop.gracefully.cancel();
        self.connections.close();
    }

    /// As [`Server::shutdown`] for a thread outside of the runtime, but asks now and then whether
    /// to wait any longer; on `false` it ends at once what is left.
    pub fn shutdown_while(
        &self,
        runtime: &Handle,
        grace: Duration,
        patient: &mut dyn FnMut() -> bool,
    ) -> bool {
        self.begin_drain();
        let connections = self.connections.clone();
        let (done, result) = mpsc::sync_channel(1);
        runtime.spawn(async move {
            let clean = timeout(grace, connections.wait()).await.is_ok();
            // Nobody may be waiting any longer.
            let _ = done.send(clean);
        });
        let clean = loop {
            match result.recv_timeout(LOOK_UP_TIME) {
                Ok(clean) => break clean,
                Err(RecvTimeoutError::Timeout) if patient() => {}
                Err(_) => break false,
            }
        };
        self.stop.now.cancel();
        clean
    }

    /// Drains, waits up to `grace` for the requests in flight, then ends whatever is left.
    /// Returns whether all had ended by themselves.
    pub async fn shutdown(&self, grace: Duration) -> bool {
        self.begin_drain();
        let clean = timeout(grace, self.connections.wait()).await.is_ok();
        self.stop.now.cancel();
        clean
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.gracefully.cancel();
        self.stop.now.cancel();
    }
}
