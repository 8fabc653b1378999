//! Names of what is measured at the replicas, and the recording.

use std::sync::Arc;
use std::time::Duration;

use metrics::{
    Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use tonic::Code;
use tulip_proto::code_name;

/// 1 while the replica gets work, else 0; by `replica`.
pub const REPLICA_UP: &str = "ivy_replica_up";
/// Tokens sent to the replica and not answered, by `replica`.
pub const REPLICA_OUTSTANDING_TOKENS: &str = "ivy_replica_outstanding_tokens";
/// Calls answered, by `replica` and `code`; chunks count one by one.
pub const REPLICA_CALLS: &str = "ivy_replica_calls_total";
/// Seconds from a call to its answer, by `replica`.
pub const REPLICA_CALL_SECONDS: &str = "ivy_replica_call_seconds";
/// Replicas taken out of use, by `replica` and `reason`.
pub const EJECTIONS: &str = "ivy_replica_ejections_total";
/// Chunks of one request.
pub const REQUEST_CHUNKS: &str = "ivy_request_chunks";
/// Tokens of one chunk.
pub const CHUNK_TOKENS: &str = "ivy_chunk_tokens";
/// Chunks sent again, by `reason`.
pub const RETRIES: &str = "ivy_retries_total";
/// Chunks not sent again because too many were.
pub const RETRIES_REFUSED: &str = "ivy_retries_refused_total";
/// Second calls for late chunks, by `outcome`: `won` or `lost` against the first.
pub const HEDGES: &str = "ivy_hedges_total";

/// Tells the installed recorder what each metric means. Call it once the recorder is installed.
pub fn describe() {
    describe_gauge!(REPLICA_UP, "Whether a replica gets work");
    describe_gauge!(
        REPLICA_OUTSTANDING_TOKENS,
        "Tokens sent to a replica and not answered"
    );
    describe_counter!(
        REPLICA_CALLS,
        "Calls to a replica, by replica and gRPC status code"
    );
    describe_histogram!(
        REPLICA_CALL_SECONDS,
        Unit::Seconds,
        "A call to a replica until its answer"
    );
    describe_counter!(
        EJECTIONS,
        "Replicas taken out of use, by replica and reason"
    );
    describe_histogram!(REQUEST_CHUNKS, "Chunks that one request was cut into");
    describe_histogram!(CHUNK_TOKENS, "Tokens of one chunk");
    describe_counter!(RETRIES, "Chunks sent again, by reason");
    describe_counter!(
        RETRIES_REFUSED,
        "Chunks not sent again because the retry budget was spent"
    );
    describe_counter!(HEDGES, "Second calls for late chunks, by outcome");
}

pub(crate) fn up(replica: &Arc<str>, up: bool) {
    gauge!(REPLICA_UP, "replica" => Arc::clone(replica)).set(if up { 1.0 } else { 0.0 });
}

pub(crate) fn outstanding(replica: &Arc<str>, tokens: u64) {
    gauge!(REPLICA_OUTSTANDING_TOKENS, "replica" => Arc::clone(replica)).set(tokens as f64);
}

pub(crate) fn call(replica: &Arc<str>, code: Code, elapsed: Duration) {
    let replica = || Arc::clone(replica);
    counter!(REPLICA_CALLS, "replica" => replica(), "code" => code_name(code)).increment(1);
    histogram!(REPLICA_CALL_SECONDS, "replica" => replica()).record(elapsed);
}

pub(crate) fn ejected(replica: &Arc<str>, reason: &'static str) {
    counter!(EJECTIONS, "replica" => Arc::clone(replica), "reason" => reason).increment(1);
}
