//! `GET /metrics`: what is measured in this process, as Prometheus reads it.

use axum::response::{IntoResponse as _, Response};
use http::header;

use super::call::Call;
use super::family::Family;
use crate::error::Error;

/// Version 0.0.4 of the text format.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What is measured in this process.
#[utoipa::path(
    get, path = "/metrics", tag = "Gateway",
    responses(
        (status = 200, body = String, content_type = "text/plain"),
        (status = 404, description = "The process records its metrics elsewhere")
    )
)]
pub(crate) async fn metrics(call: Call) -> Response {
    match rose_telemetry::metrics::render() {
        Some(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        None => call.respond(Family::Tei, Err(Error::UnknownRoute("/metrics".into()))),
    }
}
