//! The few CUDA driver calls that waiting for a step needs, behind a trait with a fake.
//!
//! The driver library is opened at run time, so one binary serves hosts with and without a GPU.
#![expect(unsafe_code, reason = "calls into the driver library")]

mod driver;
mod fake;
mod library;

pub use driver::{Driver, DriverError, EventHandle};
pub use fake::FakeDriver;
pub use library::LibCuda;
