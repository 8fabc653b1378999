//! The fleet over real Tulip servers, with engines of different speeds.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod command;
mod device;
mod failures;
mod sharing;
mod support;
mod tls;
