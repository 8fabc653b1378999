//! How busy a server is: what its queue tells balancers and pages.

use crate::engine::GraphCounters;

/// What waits and what runs, at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Load {
    /// Tokens that wait.
    pub queued_tokens: u64,
    /// Sequences that wait.
    pub queued_sequences: usize,
    /// Tokens of the steps in flight.
    pub running_tokens: u64,
    /// Steps handed to the engine and not finished.
    pub steps_in_flight: usize,
    /// The bound of `queued_tokens`.
    pub max_queued_tokens: u64,
    /// Recent throughput; 0 = not known yet.
    pub tokens_per_second: f64,
    /// What the engine's graphs did so far; `None` without graphs.
    pub graphs: Option<GraphCounters>,
}
