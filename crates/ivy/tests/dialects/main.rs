//! Every dialect against a real server of Tulip with a pretended engine: JSON compared literally.
//!
//! The engine's numbers are a function of the token ids, so what is written down here holds for
//! good; `support::checked_scores` ties it to that function.

#![allow(clippy::unwrap_used)] // of what the tests themselves made

mod cohere;
mod errors;
mod fleet;
mod forms;
mod jina;
mod mutations;
mod openai;
mod page;
mod ranking;
mod support;
mod tei;
mod truncation_side;
mod vllm;
mod voyage;
mod wrong_types;
