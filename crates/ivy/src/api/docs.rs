//! The OpenAPI document, made from the types of the dialects; `/docs` shows it.

use std::sync::LazyLock;

use axum::response::{IntoResponse as _, Response};
use http::header;
use utoipa::OpenApi as _;

use super::{cohere_embed, cohere_rerank, metrics, models, openai, rerank, status, tei, vllm};

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Ivy",
        description = "Reranking and embedding in the dialects that clients already speak.",
        license(name = "Apache-2.0")
    ),
    paths(
        openai::embeddings,
        models::list,
        models::one,
        cohere_rerank::rerank_v2,
        cohere_embed::embed_v2,
        cohere_embed::embed_v1,
        rerank::rerank_v1,
        vllm::score,
        tei::rerank::rerank,
        tei::embed::embed,
        tei::embed::embed_all,
        tei::embed::embed_sparse,
        tei::predict::predict,
        tei::similarity::similarity,
        tei::tokenize::tokenize,
        tei::tokenize::decode,
        tei::info::info,
        tei::info::health,
        tei::info::live,
        status::status,
        metrics::metrics,
    )
)]
struct Document;

static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    let document = Document::openapi();
    serde_json::to_string(&document).unwrap_or_default()
});

/// The OpenAPI document, as JSON.
#[must_use]
pub fn openapi() -> &'static str {
    &DOCUMENT
}

pub(super) async fn document() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], openapi()).into_response()
}
