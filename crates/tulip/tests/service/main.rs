//! The server over real sockets, with an engine without a model: one behaviour in each file.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod bad_input;
mod deadlines;
mod drain;
mod embed;
mod health;
mod item_errors;
mod long_documents;
mod model;
mod outputs;
mod overload;
mod ranking;
mod raw;
mod score;
mod streams;
mod support;
mod templates;
mod tokenize;
mod truncation_side;
