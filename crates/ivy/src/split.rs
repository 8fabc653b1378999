//! Large requests become chunks for different replicas, merged in input order.
//!
//! Work is handed out as replicas become free (`run.rs`), in chunks whose size shrinks towards the
//! end (`plan.rs`), so that all finish at about the same time even where the rates were guessed
//! wrong. `score.rs` and `embed.rs` cut and merge the messages.

pub(crate) mod chunk;
mod embed;
mod merge;
mod path;
mod plan;
mod room;
mod run;
mod score;
mod tokenize;
mod weight;

use std::ops::Range;

use tonic::Request;
use tulip_proto::v1::{LoadReport, Timings};

pub(crate) use run::{Budgets, run};
pub(crate) use weight::Weight;

use crate::replica::connection::{Answer, Connection};

/// A request whose items can be answered apart.
pub(crate) trait Split: Send + Sync + 'static {
    /// What answers it.
    type Answer: Send + Sync + 'static;
    /// Name of the field that holds the items, as errors give it.
    const ITEMS: &'static str;

    /// What each item costs, with what it brings along (the query).
    fn weights(&self, max_sequence_tokens: usize) -> Vec<Weight>;

    /// Whether it may be cut at all.
    fn is_divisible(&self) -> bool {
        true
    }

    /// The request for some of the items, or for all: then it is the request itself.
    fn part(&self, items: Range<usize>, model: &str) -> Self;

    /// Sends it.
    fn send(connection: &dyn Connection, call: Request<Self>) -> Answer<Self::Answer>
    where
        Self: Sized;

    /// What an answer says of its replica: model, load and times.
    fn report(answer: &Self::Answer) -> Report<'_>;

    /// One answer for all; parts in input order, each with the items it is for.
    fn merge(&self, parts: Vec<Part<Self::Answer>>) -> Result<Self::Answer, Mismatch>;
}

/// See [`Split::report`].
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Report<'a> {
    /// Empty where the answer has none.
    pub(crate) fingerprint: &'a str,
    pub(crate) load: Option<LoadReport>,
    pub(crate) timings: Option<Timings>,
}

/// The answer for some of the items.
#[derive(Debug)]
pub(crate) struct Part<A> {
    pub(crate) items: Range<usize>,
    pub(crate) answer: A,
}

/// Answers that do not belong together: a replica's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("answers of the replicas do not fit together: {0}")]
pub(crate) struct Mismatch(pub(crate) String);
