//! The class `rose._tulip.Server`: a port from birth, an engine once it is loaded.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use rose_telemetry::LogFormat;
use tulip::config::{SchedulerConfig, ServerConfig};
use tulip::dispatch::{Dispatch, RunEnd};
use tulip::server::{ServeError, Server};

use crate::config::{PyBatchLimits, PyModelInfo, PyServeConfig, default_spin};
use crate::engine::{EngineParts, PyEngine};
use crate::gateway::{PyHttpConfig, gateway_error};
use crate::value_error;

/// Sends logs to stderr. Returns false when they already go somewhere.
#[pyfunction]
pub(crate) fn init_logging(level: &str, log_format: &str) -> PyResult<bool> {
    let format: LogFormat = log_format.parse().map_err(value_error)?;
    rose_telemetry::init(level, format).map_err(value_error)
}

/// See `_tulip.pyi`.
#[pyclass(name = "Server", module = "rose._tulip", frozen)]
pub(crate) struct PyServer {
    server: Server,
    /// Dropped before the threads that it runs on.
    http: Option<ivy::Server>,
    scheduler: SchedulerConfig,
    names_spin: bool,
    drain_timeout: Duration,
    process: u32,
    engine: Mutex<EngineState>,
    engine_ended: Condvar,
}

/// What became of the engine thread.
enum EngineState {
    Absent,
    Running(Dispatch),
    Ended(RunEnd),
}

#[pymethods]
impl PyServer {
    #[new]
    fn new(py: Python<'_>, config: PyServeConfig, engine_config: PyBatchLimits) -> PyResult<Self> {
        let names_spin = config.names_spin();
        let mut config = config;
        let http = config
            .http
            .take()
            .map(PyHttpConfig::into_config)
            .transpose()?;
        let config: ServerConfig = config.into_config(engine_config)?;
        let (scheduler, drain_timeout) = (config.scheduler.clone(), config.drain_timeout);
        let server = py
            .detach(|| Server::bind(config))
            .map_err(|error| serve_error(&error))?;
        let http = match (http, server.runtime()) {
            (Some(http), Some(runtime)) => {
                let service = server.in_process();
                let load = service.clone();
                let backend = Arc::new(ivy::Local::new(service).with_load(move || load.load()));
                let bound = py.detach(|| ivy::Server::bind(http, backend, &runtime));
                Some(bound.map_err(|error| gateway_error(&error))?)
            }
            _ => None,
        };
        Ok(Self {
            server,
            http,
            scheduler,
            names_spin,
            drain_timeout,
            process: std::process::id(),
            engine: Mutex::new(EngineState::Absent),
            engine_ended: Condvar::new(),
        })
    }

    #[getter]
    fn address(&self) -> String {
        self.server.local_addr().to_string()
    }

    #[getter]
    fn http_address(&self) -> Option<String> {
        let http = self.http.as_ref()?;
        Some(http.local_addr().to_string())
    }

    fn run_engine(
        &self,
        py: Python<'_>,
        engine: &Bound<'_, PyAny>,
        on_serving: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.check_process()?;
        let info: PyModelInfo = engine.getattr("info")?.extract()?;
        let max_whole_request_tokens = info.max_whole_request_tokens();
        let info = info.into_info()?;
        let parts = EngineParts::new(engine, info.clone())?;
        let mut scheduler = self.scheduler.clone();
        scheduler.max_whole_request_tokens = max_whole_request_tokens;
        if !self.names_spin {
            scheduler.spin = default_spin(&info.device);
        }
        let dispatch = Dispatch::new(scheduler);
        {
            let mut state = self.engine.lock();
            if !matches!(*state, EngineState::Absent) {
                return Err(PyRuntimeError::new_err("this server has an engine already"));
            }
            *state = EngineState::Running(dispatch.clone());
        }
        let ended = EndOnDrop { server: self };
        let set = py.detach(|| self.server.set_model(info, dispatch.clone()));
        set.map_err(|error| serve_error(&error))?;
        on_serving.call0()?;
        let end = dispatch.run(&mut PyEngine::new(py, parts));
        if let RunEnd::Fatal(message) = &end {
            tracing::error!(message, "the engine has failed");
            py.detach(|| self.server.set_unhealthy(message));
        }
        ended.with(end);
        Ok(())
    }

    fn wait(&self, py: Python<'_>, timeout: f64) -> PyResult<Option<String>> {
        let timeout = seconds("timeout", timeout)?;
        Ok(py.detach(|| {
            let mut state = self.engine.lock();
            if !matches!(*state, EngineState::Ended(_)) {
                self.engine_ended.wait_for(&mut state, timeout);
            }
            match &*state {
                EngineState::Ended(RunEnd::Fatal(message)) => Some(message.clone()),
                EngineState::Ended(RunEnd::Closed) => Some(String::new()),
                EngineState::Absent | EngineState::Running(_) => None,
            }
        }))
    }

    fn begin_drain(&self, py: Python<'_>) -> PyResult<()> {
        self.check_process()?;
        py.detach(|| {
            self.server.begin_drain();
            if let Some(http) = &self.http {
                http.begin_drain();
            }
        });
        Ok(())
    }

    #[pyo3(signature = (timeout = None))]
    fn shutdown(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        self.check_process()?;
        let grace = timeout.map_or(Ok(self.drain_timeout), |timeout| {
            seconds("timeout", timeout)
        })?;
        let mut signals = Ok(());
        let clean = py.detach(|| {
            // Python runs its handlers only when it is asked to: a second Ctrl-C must not wait.
            let mut patient = || {
                signals = Python::attach(|py| py.check_signals());
                signals.is_ok()
            };
            let begun = Instant::now();
            self.server.begin_drain();
            // HTTP first: its answers leave on the threads of the server.
            let http_clean = match (&self.http, self.server.runtime()) {
                (Some(http), Some(runtime)) => http.shutdown_while(&runtime, grace, &mut patient),
                _ => true,
            };
            let left = grace.saturating_sub(begun.elapsed());
            let clean = self.server.shutdown_while(left, &mut patient) && http_clean;
            let dispatch = match &*self.engine.lock() {
                EngineState::Running(dispatch) => dispatch.clone(),
                EngineState::Absent | EngineState::Ended(_) => return clean,
            };
            // Calls have ended: what is left in the queue is wanted by nobody.
            dispatch.abort("shut down");
            clean
        });
        signals.map(|()| clean)
    }
}

impl PyServer {
    /// Threads do not survive a fork: a forked child must not wait for them.
    fn check_process(&self) -> PyResult<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        Err(PyRuntimeError::new_err(
            "this server was started by another process: it does not survive a fork",
        ))
    }
}

/// Tells `wait` that the engine thread has ended, however it ended.
struct EndOnDrop<'a> {
    server: &'a PyServer,
}

impl EndOnDrop<'_> {
    fn with(self, end: RunEnd) {
        *self.server.engine.lock() = EngineState::Ended(end);
    }
}

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        let mut state = self.server.engine.lock();
        if !matches!(*state, EngineState::Ended(_)) {
            *state = EngineState::Ended(RunEnd::Fatal("the engine thread ended early".into()));
        }
        drop(state);
        self.server.engine_ended.notify_all();
    }
}

pub(crate) fn seconds(name: &str, value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value)
        .map_err(|error| value_error(format!("{name}: {error}, is {value}")))
}

fn serve_error(error: &ServeError) -> PyErr {
    let message = error.to_string();
    match error {
        ServeError::Config(_) | ServeError::Model(_) => value_error(message),
        ServeError::Bind { .. } | ServeError::Threads { .. } => PyOSError::new_err(message),
        ServeError::Reflection(_) | ServeError::Stopping => PyRuntimeError::new_err(message),
    }
}
