//! Names of what is measured, and the recording around each call. What steps record is in
//! [`crate::step_metrics`].

use std::time::Instant;

use metrics::{
    Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use tonic::Code;
use tulip_proto::code_name;

use crate::load::Load;
use crate::step_metrics::{
    GRAPH_BYTES, GRAPH_CAPTURE_FAILURES, GRAPH_CAPTURE_SECONDS, GRAPH_CAPTURES, GRAPH_STEPS,
    PADDING_TOKENS, STEP_FAILURES, STEP_SECONDS, STEP_SEQUENCES, STEP_TOKENS,
};

/// Calls answered, by `method` and `code`; a request on a stream counts like a call.
pub const REQUESTS: &str = "tulip_requests_total";
/// Seconds from arrival to answer, by `method`.
pub const REQUEST_SECONDS: &str = "tulip_request_seconds";
/// Documents or inputs of answered requests, by `method`.
pub const REQUEST_ITEMS: &str = "tulip_request_items_total";
/// Items that failed while their request was answered, by `method`.
pub const ITEM_ERRORS: &str = "tulip_item_errors_total";
/// Seconds a request spent on tokenization.
pub const TOKENIZE_SECONDS: &str = "tulip_tokenize_seconds";
/// Seconds from admission to the first step.
pub const QUEUE_SECONDS: &str = "tulip_queue_seconds";
/// Tokens that the model read for requests, special tokens included, padding not.
pub const INPUT_TOKENS: &str = "tulip_input_tokens_total";
/// Tokens that wait.
pub const QUEUED_TOKENS: &str = "tulip_queued_tokens";
/// Tokens of the steps in flight.
pub const RUNNING_TOKENS: &str = "tulip_running_tokens";

/// Tells the installed recorder what each metric means. Call it once the recorder is installed.
pub fn describe() {
    describe_counter!(
        REQUESTS,
        "Requests answered, by method and gRPC status code"
    );
    describe_histogram!(
        REQUEST_SECONDS,
        Unit::Seconds,
        "Arrival of a request to its answer"
    );
    describe_counter!(REQUEST_ITEMS, "Documents or inputs of answered requests");
    describe_counter!(
        ITEM_ERRORS,
        "Documents or inputs that failed in answered requests"
    );
    describe_histogram!(
        TOKENIZE_SECONDS,
        Unit::Seconds,
        "Tokenization of one request"
    );
    describe_histogram!(
        QUEUE_SECONDS,
        Unit::Seconds,
        "Admission of a request to its first step"
    );
    describe_counter!(
        INPUT_TOKENS,
        "Tokens read by the model for requests, without padding"
    );
    describe_gauge!(QUEUED_TOKENS, "Tokens that wait for a step");
    describe_gauge!(RUNNING_TOKENS, "Tokens of the steps in flight");
    describe_histogram!(STEP_SEQUENCES, "Sequences of one step");
    describe_histogram!(STEP_TOKENS, "Tokens of one step, without padding");
    describe_histogram!(STEP_SECONDS, Unit::Seconds, "Start of a step to its rows");
    describe_counter!(
        PADDING_TOKENS,
        "Padding rows of steps; divide by step tokens for the share"
    );
    describe_counter!(STEP_FAILURES, "Steps that failed");
    describe_counter!(
        GRAPH_STEPS,
        "Steps of an engine with CUDA graphs, by kind: replayed or eager"
    );
    describe_counter!(GRAPH_CAPTURES, "CUDA graphs captured; all are kept");
    describe_counter!(
        GRAPH_CAPTURE_FAILURES,
        "Step shapes whose capture failed; they stay eager"
    );
    describe_gauge!(
        GRAPH_CAPTURE_SECONDS,
        Unit::Seconds,
        "Time that captures took, all together"
    );
    describe_gauge!(GRAPH_BYTES, Unit::Bytes, "Device memory of the CUDA graphs");
}

/// One request from arrival to answer. Dropped without an answer it counts as cancelled.
#[derive(Debug)]
pub(crate) struct CallRecord {
    method: &'static str,
    arrived: Instant,
    code: Code,
}

impl CallRecord {
    pub(crate) fn start(method: &'static str) -> Self {
        Self {
            method,
            arrived: Instant::now(),
            code: Code::Cancelled,
        }
    }

    pub(crate) fn finish(mut self, code: Code) {
        self.code = code;
    }
}

impl Drop for CallRecord {
    fn drop(&mut self) {
        counter!(REQUESTS, "method" => self.method, "code" => code_name(self.code)).increment(1);
        histogram!(REQUEST_SECONDS, "method" => self.method).record(self.arrived.elapsed());
    }
}

/// What an answered Score or Embed request took.
pub(crate) struct Answered {
    pub(crate) method: &'static str,
    pub(crate) items: usize,
    pub(crate) item_errors: usize,
    pub(crate) input_tokens: u64,
    pub(crate) tokenize: std::time::Duration,
    pub(crate) queue: std::time::Duration,
}

pub(crate) fn answered(answered: &Answered, load: &Load) {
    counter!(REQUEST_ITEMS, "method" => answered.method).increment(answered.items as u64);
    counter!(ITEM_ERRORS, "method" => answered.method).increment(answered.item_errors as u64);
    counter!(INPUT_TOKENS).increment(answered.input_tokens);
    histogram!(TOKENIZE_SECONDS).record(answered.tokenize);
    histogram!(QUEUE_SECONDS).record(answered.queue);
    gauge!(QUEUED_TOKENS).set(load.queued_tokens as f64);
    gauge!(RUNNING_TOKENS).set(load.running_tokens as f64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    #[test]
    fn calls_count_by_code_and_abandoned_ones_as_cancelled() {
        let recorder = DebuggingRecorder::new();
        ::metrics::with_local_recorder(&recorder, || {
            CallRecord::start("Score").finish(Code::Ok);
            CallRecord::start("Score").finish(Code::InvalidArgument);
            drop(CallRecord::start("Score"));
            drop(CallRecord::start("Score"));
        });
        let mut counts = Vec::new();
        for (key, _, _, value) in recorder.snapshotter().snapshot().into_vec() {
            let labels = key.key().labels();
            let code = labels
                .filter(|label| label.key() == "code")
                .map(|label| label.value().to_owned());
            if let (REQUESTS, DebugValue::Counter(count)) = (key.key().name(), value) {
                counts.push((code.collect::<String>(), count));
            }
        }
        counts.sort();
        let expected = [("CANCELLED", 2), ("INVALID_ARGUMENT", 1), ("OK", 1)];
        assert_eq!(
            counts,
            expected.map(|(code, count)| (code.to_owned(), count))
        );
    }
}
