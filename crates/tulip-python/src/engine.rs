//! A Python engine as Tulip's engine: one call into Python for each step.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tulip::batch::Batch;
use tulip::cuda_event::CudaEvent;
use tulip::engine::{Engine, GraphCounters, ModelInfo, StepError};
use tulip::lazy_tensor::{Event, LazyTensor, OutputBuffer};
use tulip_cuda::{Driver, EventHandle, LibCuda};

use crate::value_error;

/// One step runs, one is queued, one may still be read: fewer slots would be overwritten.
const MIN_SLOTS: usize = 3;

/// An int32 buffer that Python allocated (`rose.engine.InputSlot`).
struct InputSlot {
    /// Keeps the memory alive.
    object: Py<PyAny>,
    data_ptr: usize,
    capacity: usize,
}

/// What the server needs of a Python engine, usable on any thread until it runs.
pub(crate) struct EngineParts {
    info: ModelInfo,
    slots: Vec<InputSlot>,
    step_slot: Py<PyAny>,
    device_error: Py<PyAny>,
    driver: Option<Arc<dyn Driver>>,
    /// `rose.graphs.GraphCounters`; absent where the device has no graphs.
    graph_counters: Option<Py<PyAny>>,
}

impl EngineParts {
    pub(crate) fn new(engine: &Bound<'_, PyAny>, info: ModelInfo) -> PyResult<Self> {
        let slots: Vec<InputSlot> = engine
            .getattr("input_slots")?
            .try_iter()?
            .map(|slot| {
                let slot = slot?;
                let data_ptr = slot.getattr("data_ptr")?.extract()?;
                let capacity = slot.getattr("capacity")?.extract()?;
                Ok(InputSlot {
                    object: slot.unbind(),
                    data_ptr,
                    capacity,
                })
            })
            .collect::<PyResult<_>>()?;
        if slots.len() < MIN_SLOTS {
            return Err(value_error(format!(
                "input_slots: at least {MIN_SLOTS} are needed, there are {}",
                slots.len()
            )));
        }
        if let Some(slot) = slots
            .iter()
            .find(|slot| slot.data_ptr == 0 || slot.data_ptr % 4 != 0)
        {
            return Err(value_error(format!(
                "input_slots: {:#x} is not the address of int32 values",
                slot.data_ptr
            )));
        }
        let driver: Option<Arc<dyn Driver>> = match cuda_ordinal(&info.device) {
            None => None,
            Some(ordinal) => Some(Arc::new(LibCuda::open(ordinal).map_err(value_error)?)),
        };
        let device_error = engine
            .py()
            .import("rose.errors")?
            .getattr("DeviceError")?
            .unbind();
        let step_slot = engine.getattr("step_slot")?.unbind();
        let graph_counters: Option<Py<PyAny>> = engine.getattr("graph_counters")?.extract()?;
        Ok(Self {
            info,
            slots,
            step_slot,
            device_error,
            driver,
            graph_counters,
        })
    }
}

/// `cuda` → 0, `cuda:1` → 1, anything else → none.
fn cuda_ordinal(device: &str) -> Option<usize> {
    match device.strip_prefix("cuda")? {
        "" => Some(0),
        rest => rest.strip_prefix(':')?.parse().ok(),
    }
}

/// The engine, on the one thread that runs Python.
pub(crate) struct PyEngine<'py> {
    py: Python<'py>,
    parts: EngineParts,
    next_slot: usize,
}

impl<'py> PyEngine<'py> {
    pub(crate) fn new(py: Python<'py>, parts: EngineParts) -> Self {
        Self {
            py,
            parts,
            next_slot: 0,
        }
    }

    fn call(&mut self, batch: &Batch) -> Result<LazyTensor, StepError> {
        let parts = &self.parts;
        let slot = &parts.slots[self.next_slot];
        self.next_slot = (self.next_slot + 1) % parts.slots.len();
        // SAFETY: the slot's tensor is alive (`object`), holds `capacity` int32 values at this
        // aligned address, and nobody reads it: at most two steps are in flight, and each of them
        // has one of the other slots.
        let buffer =
            unsafe { std::slice::from_raw_parts_mut(slot.data_ptr as *mut i32, slot.capacity) };
        let shape = batch
            .write_packed(&parts.info.layout, buffer)
            .map_err(|error| StepError::Batch(error.to_string()))?;
        let arguments = (
            &slot.object,
            shape.num_tokens,
            shape.num_sequences,
            shape.max_seqlen,
            shape.padded_tokens,
            shape.padded_sequences,
        );
        let result = parts.step_slot.bind(self.py).call1(arguments);
        let tensor = result.map_err(|error| self.step_error(&error))?;
        self.lazy_tensor(tensor)
            .map_err(|error| self.step_error(&error))?
    }

    fn lazy_tensor(&self, tensor: Bound<'py, PyAny>) -> PyResult<Result<LazyTensor, StepError>> {
        let handle = tensor.call_method0("handle")?.cast_into::<PyTuple>()?;
        let (data_ptr, num_rows, width, event, predicted): (
            usize,
            usize,
            usize,
            usize,
            Option<f64>,
        ) = handle.extract()?;
        if data_ptr == 0 || data_ptr % 4 != 0 {
            return Err(value_error(format!(
                "{data_ptr:#x} is not the address of float32 values"
            )));
        }
        let rows = Box::new(PyRows {
            data_ptr,
            len: num_rows * width,
            _tensor: tensor.unbind(),
        });
        let Some(driver) = self.parts.driver.as_ref().filter(|_| event != 0) else {
            return Ok(LazyTensor::ready(rows, num_rows, width));
        };
        let event: Box<dyn Event> =
            Box::new(CudaEvent::new(Arc::clone(driver), EventHandle(event)));
        let predicted = predicted.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Ok(LazyTensor::pending(rows, num_rows, width, event, predicted))
    }

    /// The exception as the callers see it; its traceback goes to the log.
    fn step_error(&self, error: &PyErr) -> StepError {
        let traceback = error
            .traceback(self.py)
            .and_then(|traceback| traceback.format().ok());
        tracing::error!(traceback, "{error}");
        let message = error.to_string();
        if error
            .matches(self.py, &self.parts.device_error)
            .unwrap_or(false)
        {
            StepError::Fatal(message)
        } else {
            StepError::Batch(message)
        }
    }
}

impl Engine for PyEngine<'_> {
    fn info(&self) -> &ModelInfo {
        &self.parts.info
    }

    fn step(&mut self, batch: &Batch) -> Result<LazyTensor, StepError> {
        self.call(batch)
    }

    fn graphs(&self) -> Option<GraphCounters> {
        let counters = self.parts.graph_counters.as_ref()?.bind(self.py);
        match counters.extract::<PyGraphCounters>() {
            Ok(counters) => Some(counters.into()),
            Err(error) => {
                tracing::debug!("graph_counters: {error}");
                None
            }
        }
    }

    fn wait(&mut self, wait: &mut (dyn FnMut() + Send)) {
        self.py.detach(wait);
    }
}

/// `rose.graphs.graph_runner.GraphCounters`.
#[derive(FromPyObject)]
struct PyGraphCounters {
    eager_steps: u64,
    replayed_steps: u64,
    captures: u64,
    failed_captures: u64,
    capture_seconds: f64,
    graph_bytes: u64,
}

impl From<PyGraphCounters> for GraphCounters {
    fn from(counters: PyGraphCounters) -> Self {
        let capture_time = Duration::try_from_secs_f64(counters.capture_seconds);
        Self {
            eager_steps: counters.eager_steps,
            replayed_steps: counters.replayed_steps,
            captures: counters.captures,
            failed_captures: counters.failed_captures,
            capture_time: capture_time.unwrap_or_default(),
            bytes: counters.graph_bytes,
        }
    }
}

/// The rows of a Python `LazyTensor`.
struct PyRows {
    data_ptr: usize,
    len: usize,
    /// Keeps memory and event alive. Dropped without the interpreter it waits for the next attach.
    _tensor: Py<PyAny>,
}

impl OutputBuffer for PyRows {
    fn as_f32(&self) -> &[f32] {
        // SAFETY: `handle()` promises `num_rows * width` float32 values at this aligned address as
        // long as the tensor lives; they are read only after the step's event.
        unsafe { std::slice::from_raw_parts(self.data_ptr as *const f32, self.len) }
    }
}
