//! The gRPC server: a port, threads of its own, and the order of start and stop.
//!
//! All methods may be called from any thread, inside or outside of an async runtime.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::server::{HealthReporter, HealthService};
use tulip_proto::FILE_DESCRIPTOR_SET;

use crate::config::{ConfigError, ServerConfig};
use crate::connection::{Stop, accept};
use crate::dispatch::Dispatch;
use crate::endpoint::{Endpoint, SERVICE_NAME};
use crate::engine::ModelInfo;
use crate::front::{Ended, Fronts};
use crate::in_process::InProcess;
pub use crate::service::ModelError;
use crate::service::ServiceState;

/// How often somebody who waits for the end is asked whether he still does.
const LOOK_UP_TIME: Duration = Duration::from_millis(100);
/// Time for our own tasks to end once nothing is left to do.
const RUNTIME_TIME: Duration = Duration::from_secs(1);

/// Why a server cannot start or serve a model.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An option cannot be.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The address cannot be listened on.
    #[error("grpc_address: cannot listen on {address}: {source}")]
    Bind {
        /// The address wanted.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The system gives no threads.
    #[error("worker_threads={threads}: {source}")]
    Threads {
        /// Threads wanted.
        threads: usize,
        /// What the system said.
        source: std::io::Error,
    },
    /// The reflection service refuses the contract: a bug in the build.
    #[error("reflection: {0}")]
    Reflection(String),
    /// The model cannot be served.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The server was told to stop before.
    #[error("the server is stopping")]
    Stopping,
}

/// A running server. It answers `UNAVAILABLE` until [`Server::set_model`]. Dropping it ends it at
/// once; [`Server::shutdown`] lets calls finish.
#[derive(Debug)]
pub struct Server {
    local_addr: SocketAddr,
    state: Arc<ServiceState>,
    health: HealthReporter,
    calls: TaskTracker,
    connections: TaskTracker,
    stop: Stop,
    fronts_ended: Mutex<Option<Ended>>,
    /// Everything but connections and their calls.
    runtime: Mutex<Option<Runtime>>,
}

impl Server {
    /// Checks the options, takes the port and starts to answer.
    ///
    /// # Errors
    /// An option is wrong, the port is taken, or there are no threads; names the option.
    pub fn bind(config: ServerConfig) -> Result<Self, ServeError> {
        config.validate()?;
        let address = config.grpc_address;
        let bind_error = |source| ServeError::Bind { address, source };
        let listener = TcpListener::bind(address).map_err(bind_error)?;
        listener.set_nonblocking(true).map_err(bind_error)?;
        let local_addr = listener.local_addr().map_err(bind_error)?;

        let threads = config.worker_threads;
        let no_threads = |source| ServeError::Threads { threads, source };
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("tulip-worker")
            .enable_all()
            .build()
            .map_err(no_threads)?;

        let max_message_bytes = config.max_message_bytes;
        let state = Arc::new(ServiceState::new(Arc::new(config)));
        let health = HealthReporter::new();
        let calls = TaskTracker::new();
        let connections = TaskTracker::new();
        let stop = Stop::default();
        let endpoint = Endpoint::new(
            Arc::clone(&state),
            routes(&health)?,
            calls.clone(),
            max_message_bytes,
        );
        let (fronts, fronts_ended) =
            Fronts::spawn(threads, &endpoint, &stop, &connections).map_err(no_threads)?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(bind_error)?
        };
        let server = Self {
            local_addr,
            state,
            health,
            calls,
            connections,
            stop,
            fronts_ended: Mutex::new(Some(fronts_ended)),
            runtime: Mutex::new(Some(runtime)),
        };
        // Before the first connection is accepted.
        server.set_health(ServingStatus::NotServing);
        server.spawn(accept(listener, fronts, server.stop.clone()));
        Ok(server)
    }

    /// Where it listens, with the port that the system chose.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Serves `info` with the rows that come out of `dispatch`, and reports SERVING. Loads the
    /// tokenizer: some tenths of a second, in the caller's thread.
    ///
    /// # Errors
    /// The tokenizer cannot be used, the description contradicts itself, or the server is stopping.
    pub fn set_model(&self, info: ModelInfo, dispatch: Dispatch) -> Result<(), ServeError> {
        if !self.state.set_model(info, dispatch)? {
            return Err(ServeError::Stopping);
        }
        self.set_health(ServingStatus::Serving);
        if self.state.is_stopped() {
            // Stopped in between: the last word must be NOT_SERVING.
            self.set_health(ServingStatus::NotServing);
        }
        Ok(())
    }

    /// The service for callers of this process, which need no socket. It answers as the port does:
    /// `UNAVAILABLE` before a model is set and once the server stops.
    #[must_use]
    pub fn in_process(&self) -> InProcess {
        InProcess::new(Arc::clone(&self.state), self.calls.clone())
    }

    /// Threads for a gateway in the same process; `None` once they ended.
    #[must_use]
    pub fn runtime(&self) -> Option<Handle> {
        let runtime = self.runtime.lock();
        runtime.as_ref().map(|runtime| runtime.handle().clone())
    }

    /// Calls of Tulip that have begun to arrive and whose answer has not left.
    #[must_use]
    pub fn calls_in_flight(&self) -> usize {
        self.calls.len()
    }

    /// Reports NOT_SERVING and answers new calls with UNAVAILABLE; calls in flight go on.
    pub fn begin_drain(&self) {
        self.stop_serving("draining");
    }

    /// Reports NOT_SERVING and answers new calls with UNAVAILABLE and the reason, for good.
    pub fn set_unhealthy(&self, reason: &str) {
        self.stop_serving(reason);
    }

    fn stop_serving(&self, reason: &str) {
        self.state.stop(reason);
        self.set_health(ServingStatus::NotServing);
    }

    /// Drains, waits up to `grace` for the calls in flight and for their answers to leave, then ends
    /// whatever is left. Returns whether all had ended by themselves. A second call does nothing.
    pub fn shutdown(&self, grace: Duration) -> bool {
        self.shutdown_while(grace, &mut || true)
    }

    /// As [`Server::shutdown`], but asks now and then, on the caller's thread, whether to wait any
    /// longer; on `false` it ends at once what is left.
    pub fn shutdown_while(&self, grace: Duration, patient: &mut dyn FnMut() -> bool) -> bool {
        self.begin_drain();
        let calls = self.calls.clone();
        let connections = self.connections.clone();
        let stop = self.stop.clone();
        let enough = CancellationToken::new();
        let waited_enough = enough.clone();
        calls.close();
        connections.close();
        let (done, result) = mpsc::sync_channel(1);
        self.spawn(async move {
            let ended = async {
                calls.wait().await;
                // Their answers may still be on the way: connections end once they have left.
                stop.gracefully.cancel();
                connections.wait().await;
            };
            let clean = tokio::select! {
                ended = timeout(grace, ended) => ended.is_ok(),
                () = waited_enough.cancelled() => false,
            };
            stop.gracefully.cancel();
            stop.now.cancel();
            // The receiver waits below for as long as this lives.
            let _ = done.send(clean);
        });
        let clean = loop {
            match result.recv_timeout(LOOK_UP_TIME) {
                Ok(clean) => break clean,
                Err(RecvTimeoutError::Disconnected) => break true,
                Err(RecvTimeoutError::Timeout) => {
                    if !enough.is_cancelled() && !patient() {
                        enough.cancel();
                    }
                }
            }
        };
        if let Some(fronts) = self.fronts_ended.lock().take() {
            fronts.wait(RUNTIME_TIME);
        }
        let Some(runtime) = self.runtime.lock().take() else {
            return clean;
        };
        // Waiting for threads is not allowed on a thread of another runtime, so a thread of its own.
        let ended = thread::Builder::new()
            .name("tulip-shutdown".into())
            .spawn(move || runtime.shutdown_timeout(RUNTIME_TIME))
            .map(thread::JoinHandle::join);
        if let Err(error) = ended {
            tracing::warn!(%error, "the server's threads were left to themselves");
        }
        clean
    }

    fn set_health(&self, status: ServingStatus) {
        let health = self.health.clone();
        self.wait_for(async move {
            health.set_service_status("", status).await;
            health.set_service_status(SERVICE_NAME, status).await;
        });
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &*self.runtime.lock() {
            runtime.spawn(task);
        }
    }

    /// Runs a short task on the server's own threads and waits for it; `None` once they have ended.
    fn wait_for<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (done, result) = mpsc::sync_channel(1);
        self.spawn(async move {
            // The receiver waits below for as long as this lives.
            let _ = done.send(task.await);
        });
        result.recv().ok()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state.stop("shut down");
        self.stop.now.cancel();
        if let Some(runtime) = self.runtime.get_mut().take() {
            runtime.shutdown_background();
        }
    }
}

/// Health and reflection.
fn routes(health: &HealthReporter) -> Result<Routes, ServeError> {
    use tonic_health::pb::health_server::HealthServer;
    use tonic_reflection::server::Builder;

    let reflection = || {
        Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let v1 = reflection()
        .build_v1()
        .map_err(|error| ServeError::Reflection(error.to_string()))?;
    let v1alpha = reflection()
        .build_v1alpha()
        .map_err(|error| ServeError::Reflection(error.to_string()))?;
    let health = HealthServer::new(HealthService::from_health_reporter(health.clone()));
    Ok(Routes::new(health).add_service(v1).add_service(v1alpha))
}
