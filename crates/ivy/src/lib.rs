//! Ivy: the HTTP gateway that every client already speaks.
//!
//! What happens to a request:
//!
//! 1. [`server`] accepts the connection; layers around the router count, time and bound the
//!    request, check its key and give it an id and a deadline;
//! 2. one file of [`api`] for each dialect turns its JSON into one of two jobs ([`job`]);
//! 3. the job becomes a message of `tulip.v1`, with token ids where this process tokenizes;
//! 4. a [`Backend`] answers it: [`Local`] asks the server in this process, the fleet asks remote
//!    replicas (chosen, split, retried and hedged there);
//! 5. the dialect writes the answer in its own words; what failed goes through [`Error`] to the
//!    status and the JSON of its family.
//!
//! | files | what | used by |
//! |---|---|---|
//! | `backend.rs`, `model.rs`, `local.rs` | the trait, the model it serves, the in-process back end | all |
//! | `fleet*.rs`, `replica*.rs`, `balancer*.rs`, `split*.rs`, `retry*.rs`, `hedge*.rs`, `resolve*.rs` | the remote back end | `server` |
//! | `job.rs`, `encode.rs` | score and embed jobs, tokenization | `api` |
//! | `api/*` | one dialect in one file | `server` |
//! | `page.rs`, `activity.rs` | the page at `/` and what its charts count | `server`, `api/status.rs` |
//! | `server.rs`, `config.rs`, `error.rs` | HTTP around it | `bin/ivy`, the extension module |

mod activity;
pub mod api;
mod auth;
pub mod backend;
mod balancer;
pub mod config;
mod connection;
mod deadline;
mod encode;
pub mod error;
pub mod fleet;
mod gateway;
mod hedge;
mod job;
mod layers;
pub mod local;
pub mod metrics;
pub mod model;
mod page;
mod replica;
mod resolve;
mod retry;
pub mod server;
mod split;
mod surrogates;
mod tls;

pub use backend::Backend;
pub use config::{ConfigError, GatewayConfig, TlsConfig};
pub use error::{Error, Result};
pub use fleet::{Fleet, FleetConfig};
pub use hedge::HedgeConfig;
pub use local::Local;
pub use model::Model;
pub use replica::connection::ReplicaTls;
pub use resolve::{ReplicaName, ReplicaNameError};
pub use server::{ServeError, Server};
