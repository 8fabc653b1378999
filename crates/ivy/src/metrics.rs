//! Names of what the HTTP side measures, and the recording around each request.

use std::time::Instant;

use metrics::{
    Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

/// Requests answered, by `route` and `status`; 499 = the client left first.
pub const REQUESTS: &str = "ivy_requests_total";
/// Seconds from the headers of a request to its answer, by `route`.
pub const REQUEST_SECONDS: &str = "ivy_request_seconds";
/// Requests that are worked on.
pub const REQUESTS_IN_FLIGHT: &str = "ivy_requests_in_flight";
/// Documents or inputs of answered requests, by `route`.
pub const ITEMS: &str = "ivy_items_total";
/// Tokens of answered requests, special tokens included, by `route`.
pub const TOKENS: &str = "ivy_tokens_total";
/// Documents, inputs and queries that were cut, by `route`.
pub const TRUNCATIONS: &str = "ivy_truncations_total";
/// Items that failed in answered requests, by `route`.
pub const ITEM_ERRORS: &str = "ivy_item_errors_total";
/// Connections that are open.
pub const CONNECTIONS: &str = "ivy_connections";

/// Tells the installed recorder what each metric means. Call it once the recorder is installed.
pub fn describe() {
    describe_counter!(REQUESTS, "HTTP requests answered, by route and status");
    describe_histogram!(
        REQUEST_SECONDS,
        Unit::Seconds,
        "Headers of an HTTP request to its answer"
    );
    describe_gauge!(REQUESTS_IN_FLIGHT, "HTTP requests that are worked on");
    describe_counter!(ITEMS, "Documents or inputs of answered HTTP requests");
    describe_counter!(TOKENS, "Tokens of answered HTTP requests");
    describe_counter!(TRUNCATIONS, "Documents, inputs and queries that were cut");
    describe_counter!(ITEM_ERRORS, "Items that failed in answered HTTP requests");
    describe_gauge!(CONNECTIONS, "HTTP connections that are open");
}

/// One request from its headers to its answer; dropped without an answer it counts as 499.
#[derive(Debug)]
pub(crate) struct RequestRecord {
    route: &'static str,
    arrived: Instant,
    status: u16,
}

/// nginx's number for a client that closed the connection before the answer.
const CLIENT_CLOSED: u16 = 499;

impl RequestRecord {
    pub(crate) fn start(route: &'static str) -> Self {
        gauge!(REQUESTS_IN_FLIGHT).increment(1.0);
        Self {
            route,
            arrived: Instant::now(),
            status: CLIENT_CLOSED,
        }
    }

    pub(crate) fn finish(mut self, status: http::StatusCode) {
        self.status = status.as_u16();
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        gauge!(REQUESTS_IN_FLIGHT).decrement(1.0);
        let status = self.status.to_string();
        counter!(REQUESTS, "route" => self.route, "status" => status).increment(1);
        histogram!(REQUEST_SECONDS, "route" => self.route).record(self.arrived.elapsed());
    }
}

/// What an answered request took.
pub(crate) struct Answered {
    pub(crate) items: usize,
    pub(crate) tokens: u64,
    pub(crate) truncations: usize,
    pub(crate) item_errors: usize,
}

pub(crate) fn answered(route: &'static str, answered: &Answered) {
    counter!(ITEMS, "route" => route).increment(answered.items as u64);
    counter!(TOKENS, "route" => route).increment(answered.tokens);
    if answered.truncations > 0 {
        counter!(TRUNCATIONS, "route" => route).increment(answered.truncations as u64);
    }
    if answered.item_errors > 0 {
        counter!(ITEM_ERRORS, "route" => route).increment(answered.item_errors as u64);
    }
}
