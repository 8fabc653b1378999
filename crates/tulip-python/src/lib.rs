//! `rose._tulip`: the Tulip server and the Ivy gateway inside a Python process. Only translates.
//!
//! - [`config`]: dataclasses of `rose.config` to the structs of `tulip`
//! - [`engine`]: a Python engine as a [`tulip::engine::Engine`]
//! - [`gateway`]: the HTTP side of a server, and the class `Gateway`
//! - [`server`]: the class `Server`
//! - [`text_encoder`]: the class `TextEncoder`
#![expect(unsafe_code, reason = "reads and writes buffers that Python allocated")]

mod config;
mod engine;
mod gateway;
mod server;
mod text_encoder;

use pyo3::prelude::*;

/// The native part of ROSE; `_tulip.pyi` documents it.
#[pymodule]
mod _tulip {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::gateway::PyGateway;
    #[pymodule_export]
    use crate::server::{PyServer, init_logging};
    #[pymodule_export]
    use crate::text_encoder::PyTextEncoder;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

/// A value in a Python object that is not what it should be.
fn value_error(message: impl std::fmt::Display) -> PyErr {
    pyo3::exceptions::PyValueError::new_err(message.to_string())
}
