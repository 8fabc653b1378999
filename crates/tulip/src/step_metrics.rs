//! What is recorded of each step.

use std::time::Duration;

use metrics::{counter, gauge};

use crate::batch::{Batch, BatchLayout};
use crate::engine::GraphCounters;

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

/// Steps of an engine with CUDA graphs, by `kind`: `replayed` from a graph, or `eager`.
pub const GRAPH_STEPS: &str = "tulip_graph_steps_total";
/// Graphs captured; all are kept.
pub const GRAPH_CAPTURES: &str = "tulip_graph_captures_total";
/// Shapes whose capture failed.
pub const GRAPH_CAPTURE_FAILURES: &str = "tulip_graph_capture_failures_total";
/// Seconds that captures took, all together.
pub const GRAPH_CAPTURE_SECONDS: &str = "tulip_graph_capture_seconds";
/// Device memory of the graphs.
pub const GRAPH_BYTES: &str = "tulip_graph_bytes";

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

/// The engine counts for itself: these are its totals.
pub(crate) fn graphs(counters: &GraphCounters) {
    counter!(GRAPH_STEPS, "kind" => "eager").absolute(counters.eager_steps);
    counter!(GRAPH_STEPS, "kind" => "replayed").absolute(counters.replayed_steps);
    counter!(GRAPH_CAPTURES).absolute(counters.captures);
    counter!(GRAPH_CAPTURE_FAILURES).absolute(counters.failed_captures);
    gauge!(GRAPH_CAPTURE_SECONDS).set(counters.capture_time.as_secs_f64());
    gauge!(GRAPH_BYTES).set(counters.bytes as f64);
}

pub(crate) fn step_failed() {
    metrics::counter!(STEP_FAILURES).increment(1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    #[test]
    fn graphs_are_told_as_totals() {
        let recorder = DebuggingRecorder::new();
        let counters = GraphCounters {
            eager_steps: 3,
            replayed_steps: 40,
            captures: 2,
            failed_captures: 1,
            capture_time: Duration::from_millis(1500),
            bytes: 4096,
        };
        metrics::with_local_recorder(&recorder, || {
            graphs(&GraphCounters::default());
            graphs(&counters);
        });
        let mut found: Vec<(String, f64)> = recorder
            .snapshotter()
            .snapshot()
            .into_vec()
            .into_iter()
            .map(|(key, _, _, value)| {
                let labels = key.key().labels().map(|label| label.value());
                let name = [key.key().name()].into_iter().chain(labels);
                let value = match value {
                    DebugValue::Counter(count) => count as f64,
                    DebugValue::Gauge(value) => value.into_inner(),
                    DebugValue::Histogram(_) => f64::NAN,
                };
                (name.collect::<Vec<_>>().join(" "), value)
            })
            .collect();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let expected = [
            ("tulip_graph_bytes", 4096.0),
            ("tulip_graph_capture_failures_total", 1.0),
            ("tulip_graph_capture_seconds", 1.5),
            ("tulip_graph_captures_total", 2.0),
            ("tulip_graph_steps_total eager", 3.0),
            ("tulip_graph_steps_total replayed", 40.0),
        ];
        assert_eq!(
            found,
            expected.map(|(name, value)| (name.to_owned(), value))
        );
    }
}
