//! Cohere `POST /v2/rerank`.

use axum::response::Response;
use serde::{Deserialize, Serialize};
use tulip_proto::v1::ScoreRequest;
use utoipa::ToSchema;

use super::call::{Call, Reply};
use super::family::Family;
use super::input::text;
use super::meta::Meta;
use super::options;
use crate::error::{Error, Result};
use crate::job::{Names, ScoreJob};

/// Tokens of one document that are read where the request does not say.
pub(super) const DEFAULT_MAX_TOKENS_PER_DOC: i64 = 4096;

/// Documents in order of relevance to a query.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct RerankV2Request {
    /// Any name is accepted where one model is served.
    #[serde(default)]
    model: Option<String>,
    query: String,
    documents: Vec<String>,
    /// How many results; all if absent.
    #[serde(default)]
    top_n: Option<i64>,
    /// Longer documents are cut and reported in `meta.warnings`; 4096 if absent.
    #[serde(default)]
    max_tokens_per_doc: Option<i64>,
    /// 0 goes first.
    #[serde(default)]
    priority: Option<i64>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RerankV2Response<'a> {
    id: &'a str,
    results: Vec<RerankV2Result>,
    meta: Meta,
}

#[derive(Debug, Serialize, ToSchema)]
struct RerankV2Result {
    index: u32,
    relevance_score: f32,
}

/// Documents in order of relevance (Cohere, version 2).
#[utoipa::path(
    post, path = "/v2/rerank", tag = "Cohere", request_body = RerankV2Request,
    responses((status = 200, body = RerankV2Response<'static>))
)]
pub(crate) async fn rerank_v2(call: Call) -> Response {
    let outcome = answer(&call).await;
    call.respond(Family::Cohere, outcome)
}

async fn answer(call: &Call) -> Result<Reply> {
    let body: RerankV2Request = call.json().await?;
    if body.query.trim().is_empty() {
        return Err(Error::empty("query"));
    }
    let max_tokens = body.max_tokens_per_doc.or(Some(DEFAULT_MAX_TOKENS_PER_DOC));
    let mut truncation = options::cut();
    truncation.max_document_tokens = options::count("max_tokens_per_doc", max_tokens, 1)?;
    let job = ScoreJob {
        model: call.model(body.model.as_deref())?,
        request: ScoreRequest {
            query: Some(text(body.query)),
            documents: body.documents.into_iter().map(text).collect(),
            truncation: Some(truncation),
            top_n: options::count("top_n", body.top_n, 1)?,
            priority: options::priority(&call.headers, body.priority)?.into(),
            ..ScoreRequest::default()
        },
        names: Names::list("documents"),
    };
    let scored = call.score(job).await?;
    let results = scored.ranked().map(|(index, score)| RerankV2Result {
        index,
        relevance_score: score,
    });
    let response = RerankV2Response {
        id: &call.arrival.request_id,
        results: results.collect(),
        meta: Meta::of_rerank("2", &scored.report),
    };
    Reply::with_report(&response, scored.report)
}
