//! Tulip: requests in, batches of tokens to an engine, results out. No Python in here.

pub mod batch;
pub mod config;
pub mod cost;
pub mod cuda_event;
pub mod engine;
pub mod error;
pub mod job;
pub mod lazy_tensor;
pub mod load;
pub mod sequence;

pub mod dispatch;
pub mod fake_engine;
mod pace;
mod scheduler;
mod step_in_flight;
pub mod step_metrics;
mod waiter;

mod activation;
mod awake;
mod connection;
mod deadline;
mod endpoint;
mod front;
mod in_process;
pub mod metrics;
mod prompt;
pub mod server;
mod service;
mod similarity;
pub mod status;
pub mod text_encoder;
mod vectors;

pub use error::{Error, Result};
pub use in_process::InProcess;
