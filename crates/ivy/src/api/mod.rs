//! One file for each dialect; all end in the two jobs of `job.rs`.

mod call;
mod cohere_embed;
mod cohere_rerank;
mod docs;
pub mod family;
mod input;
mod meta;
mod models;
mod openai;
mod options;
pub(crate) mod report;
mod rerank;
mod status;
mod tei;
mod vectors;
mod vllm;

pub(crate) use call::Arrival;
pub use docs::openapi;

use std::sync::Arc;

use axum::Router;
use axum::response::Response;
use axum::routing::{get, post};

use self::family::Family;
use crate::error::Error;
use crate::gateway::Gateway;

/// Every route of the gateway; errors of paths and methods in the words of the path's family.
pub(crate) fn router() -> Router<Arc<Gateway>> {
    Router::new()
        .route("/v1/embeddings", post(openai::embeddings))
        .route("/embeddings", post(openai::embeddings))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*model}", get(models::one))
        .route("/v2/rerank", post(cohere_rerank::rerank_v2))
        .route("/v2/embed", post(cohere_embed::embed_v2))
        .route("/v1/rerank", post(rerank::rerank_v1))
        .route("/v1/score", post(vllm::score))
        .route("/score", post(vllm::score))
        .route("/rerank", post(tei::rerank::rerank))
        .route("/embed", post(tei::embed::embed))
        .route("/embed_all", post(tei::embed::embed_all))
        .route("/embed_sparse", post(tei::embed::embed_sparse))
        .route("/predict", post(tei::predict::predict))
        .route("/similarity", post(tei::similarity::similarity))
        .route("/tokenize", post(tei::tokenize::tokenize))
        .route("/decode", post(tei::tokenize::decode))
        .route("/info", get(tei::info::info))
        .route("/health", get(tei::info::health))
        .route("/health/live", get(tei::info::live))
        .route("/status", get(status::status))
        .route("/openapi.json", get(docs::document))
        .route("/docs", get(docs::page))
        .fallback(unknown_route)
        .method_not_allowed_fallback(method_not_allowed)
}

/// The route of a path as metrics name it: paths that nobody serves must not become labels.
pub(crate) fn route_name(path: &str) -> &'static str {
    const ROUTES: [&str; 22] = [
        "/v1/embeddings",
        "/embeddings",
        "/v1/models",
        "/v2/rerank",
        "/v2/embed",
        "/v1/rerank",
        "/v1/score",
        "/score",
        "/rerank",
        "/embed",
        "/embed_all",
        "/embed_sparse",
        "/predict",
        "/similarity",
        "/tokenize",
        "/decode",
        "/info",
        "/health",
        "/health/live",
        "/status",
        "/openapi.json",
        "/docs",
    ];
    if path.starts_with("/v1/models/") {
        return "/v1/models";
    }
    let known = ROUTES.into_iter().find(|route| *route == path);
    known.unwrap_or("other")
}

/// Whether a path is for everybody, with or without a key: probes, and pages without contents.
pub(crate) fn is_public(path: &str) -> bool {
    matches!(path, "/health" | "/health/live" | "/openapi.json" | "/docs")
}

async fn unknown_route(request: axum::extract::Request) -> Response {
    let path = request.uri().path();
    let error = Error::UnknownRoute(path.to_owned());
    Family::of_path(path).respond(&error, request_id(&request))
}

async fn method_not_allowed(request: axum::extract::Request) -> Response {
    let path = request.uri().path();
    let error = Error::MethodNotAllowed {
        method: request.method().to_string(),
        path: path.to_owned(),
    };
    Family::of_path(path).respond(&error, request_id(&request))
}

fn request_id(request: &axum::extract::Request) -> &str {
    let arrival = request.extensions().get::<Arrival>();
    arrival.map_or("", |arrival| &arrival.request_id)
}
