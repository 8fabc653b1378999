//! What is recorded of each step.

use std::time::Duration;

use crate::batch::{Batch, BatchLayout};

/// Sequences of a step.
pub const STEP_SEQUENCES: &str = "tulip_step_sequences";
/// Tokens of a step, without padding.
pub const STEP_TOKENS: &str = "tulip_step_tokens";
/// Padding rows of steps.
pub const PADDING_TOKENS: &str = "tulip_padding_tokens_total";
/// Seconds from the start of a step to its rows.
pub const STEP_SECONDS: &str = "tulip_step_seconds";
/// Steps that failed.
pub const STEP_FAILURES: &str = "tulip_step_failures_total";

pub(crate) fn step_finished(layout: &BatchLayout, batch: &Batch, elapsed: Duration) {
    let shape = layout.shape(
        batch.num_tokens(),
        batch.num_sequences(),
        batch.max_seqlen(),
    );
    metrics::histogram!(STEP_SEQUENCES).record(batch.num_sequences() as f64);
    metrics::histogram!(STEP_TOKENS).record(batch.num_tokens() as f64);
    metrics::histogram!(STEP_SECONDS).record(elapsed.as_secs_f64());
    metrics::counter!(PADDING_TOKENS).increment((shape.padded_tokens - shape.num_tokens) as u64);
}

pub(crate) fn step_failed() {
    metrics::counter!(STEP_FAILURES).increment(1);
}
