//! The HTTP side of a server, and the class `rose._tulip.Gateway`: Ivy in front of replicas.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ivy::{
    Backend, Fleet, FleetConfig, GatewayConfig, HedgeConfig, ReplicaName, ReplicaTls, ServeError,
    Server, TlsConfig,
};
use parking_lot::Mutex;
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};

use crate::config::resolve;
use crate::server::seconds;
use crate::value_error;

/// `rose.http_config.HttpConfig`.
#[derive(FromPyObject)]
pub(crate) struct PyHttpConfig {
    address: String,
    api_keys: Vec<String>,
    cors_origins: Vec<String>,
    tls_certificate: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    max_body_bytes: usize,
    max_items_per_request: usize,
    max_requests_in_flight: usize,
    request_timeout: f64,
    drain_timeout: f64,
    auto_truncate: bool,
    tokenizer_threads: usize,
}

impl PyHttpConfig {
    pub(crate) fn into_config(self) -> PyResult<GatewayConfig> {
        let tls = TlsConfig::of_files(self.tls_certificate, self.tls_key).map_err(value_error)?;
        let default_timeout = seconds("request_timeout", self.request_timeout)?;
        Ok(GatewayConfig {
            http_address: resolve("http_address", &self.address)?,
            api_keys: self.api_keys,
            cors_origins: self.cors_origins,
            tls,
            max_body_bytes: self.max_body_bytes,
            max_items_per_request: self.max_items_per_request,
            max_requests_in_flight: self.max_requests_in_flight,
            drain_timeout: seconds("drain_timeout", self.drain_timeout)?,
            auto_truncate: self.auto_truncate,
            tokenizer_threads: self.tokenizer_threads,
            ..GatewayConfig::default()
        }
        .with_default_timeout(default_timeout))
    }
}

/// `rose.http_config.ReplicasConfig`.
#[derive(FromPyObject)]
pub(crate) struct PyReplicasConfig {
    addresses: Vec<String>,
    tls: bool,
    tls_authorities: Option<PathBuf>,
    strict_model_name: bool,
    hedge: bool,
    worker_threads: usize,
}

impl PyReplicasConfig {
    fn into_config(self) -> PyResult<FleetConfig> {
        let names = self.addresses.iter().map(|address| address.parse());
        let replicas = names.collect::<Result<Vec<ReplicaName>, _>>();
        let tls = self.tls.then(|| {
            ReplicaTls::signed_by(self.tls_authorities.as_deref())
                .map_err(|message| value_error(format!("tls_authorities: {message}")))
        });
        Ok(FleetConfig {
            replicas: replicas.map_err(value_error)?,
            tls: tls.transpose()?,
            strict_model_name: self.strict_model_name,
            hedge: self.hedge.then(HedgeConfig::default),
            ..FleetConfig::default()
        })
    }
}

/// See `_tulip.pyi`.
#[pyclass(name = "Gateway", module = "rose._tulip", frozen)]
pub(crate) struct PyGateway {
    server: Server,
    fleet: Arc<Fleet>,
    drain_timeout: Duration,
    process: u32,
    /// Gone once it has stopped.
    runtime: Mutex<Option<Runtime>>,
}

#[pymethods]
impl PyGateway {
    #[new]
    fn new(py: Python<'_>, config: PyHttpConfig, replicas: PyReplicasConfig) -> PyResult<Self> {
        let config = config.into_config()?;
        let drain_timeout = config.drain_timeout;
        let worker_threads = replicas.worker_threads;
        let fleet_config = replicas.into_config()?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(worker_threads)
            .thread_name("ivy-worker")
            .enable_all()
            .build()?;
        let (server, fleet) = py.detach(|| {
            let _inside = runtime.enter();
            let fleet = Arc::new(Fleet::start(fleet_config).map_err(value_error)?);
            let backend = Arc::clone(&fleet) as Arc<dyn Backend>;
            let server = Server::bind(config, backend, runtime.handle());
            let server = server.map_err(|error| gateway_error(&error))?;
            Ok::<_, PyErr>((server, fleet))
        })?;
        Ok(Self {
            server,
            fleet,
            drain_timeout,
            process: std::process::id(),
            runtime: Mutex::new(Some(runtime)),
        })
    }

    #[getter]
    fn address(&self) -> String {
        self.server.local_addr().to_string()
    }

    fn wait_ready(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        self.check_process()?;
        let timeout = seconds("timeout", timeout)?;
        let Some(runtime) = self.handle() else {
            return Ok(false);
        };
        let ready = async { tokio::time::timeout(timeout, self.fleet.ready()).await };
        Ok(py.detach(|| runtime.block_on(ready)).is_ok())
    }

    #[pyo3(signature = (timeout = None))]
    fn shutdown(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        self.check_process()?;
        let grace = timeout.map_or(Ok(self.drain_timeout), |timeout| {
            seconds("timeout", timeout)
        })?;
        let Some(runtime) = self.handle() else {
            return Ok(true);
        };
        let mut signals = Ok(());
        let clean = py.detach(|| {
            // Python runs its handlers only when it is asked to: a second Ctrl-C must not wait.
            let mut patient = || {
                signals = Python::attach(|py| py.check_signals());
                signals.is_ok()
            };
            let clean = self.server.shutdown_while(&runtime, grace, &mut patient);
            if let Some(runtime) = self.runtime.lock().take() {
                runtime.shutdown_timeout(RUNTIME_TIME);
            }
            clean
        });
        signals.map(|()| clean)
    }
}

/// Time for tasks to end once nothing is left to do.
const RUNTIME_TIME: Duration = Duration::from_secs(1);

impl PyGateway {
    fn handle(&self) -> Option<tokio::runtime::Handle> {
        let runtime = self.runtime.lock();
        runtime.as_ref().map(|runtime| runtime.handle().clone())
    }

    /// Threads do not survive a fork: a forked child must not wait for them.
    fn check_process(&self) -> PyResult<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        Err(PyRuntimeError::new_err(
            "this gateway was started by another process: it does not survive a fork",
        ))
    }
}

impl Drop for PyGateway {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.get_mut().take() {
            runtime.shutdown_background();
        }
    }
}

pub(crate) fn gateway_error(error: &ServeError) -> PyErr {
    let message = error.to_string();
    match error {
        ServeError::Config(_) => value_error(message),
        ServeError::Bind { .. } | ServeError::Threads { .. } => PyOSError::new_err(message),
    }
}
