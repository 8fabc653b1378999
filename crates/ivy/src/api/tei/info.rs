//! TEI `GET /info` and `/health`.

use std::collections::BTreeMap;

use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use serde::Serialize;
use tulip_proto::v1::Task;
use utoipa::ToSchema;

use crate::api::call::{Call, Reply};
use crate::api::family::Family;
use crate::error::Result;
use crate::model::Model;

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Info<'a> {
    model_id: &'a str,
    model_sha: &'a str,
    model_dtype: &'a str,
    served_model_name: &'a str,
    model_type: ModelType<'a>,
    max_concurrent_requests: usize,
    max_input_length: u32,
    max_batch_tokens: u64,
    max_client_batch_size: usize,
    auto_truncate: bool,
    tokenization_workers: usize,
    version: &'static str,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ModelType<'a> {
    Embedding(EmbeddingType<'a>),
    Classifier(LabelledType),
    Reranker(LabelledType),
}

#[derive(Debug, Serialize, ToSchema)]
struct EmbeddingType<'a> {
    pooling: &'a str,
}

#[derive(Debug, Serialize, ToSchema)]
struct LabelledType {
    id2label: BTreeMap<String, String>,
    label2id: BTreeMap<String, usize>,
}

impl LabelledType {
    fn of(model: &Model) -> Self {
        let labels = model.info.labels.iter().enumerate();
        Self {
            id2label: labels
                .clone()
                .map(|(index, label)| (index.to_string(), label.clone()))
                .collect(),
            label2id: labels
                .map(|(index, label)| (label.clone(), index))
                .collect(),
        }
    }
}

/// What is served, and its limits (TEI).
#[utoipa::path(
    get, path = "/info", tag = "TEI",
    responses((status = 200, body = Info<'static>))
)]
pub(crate) async fn info(call: Call) -> Response {
    let outcome = answer(&call);
    call.respond(Family::Tei, outcome)
}

fn answer(call: &Call) -> Result<Reply> {
    let model = call.gateway.model("")?;
    let config = &call.gateway.config;
    let limits = model.limits();
    let items = limits.max_items_per_request as usize;
    Reply::plain(&Info {
        model_id: model.name(),
        model_sha: &model.info.fingerprint,
        model_dtype: &model.info.dtype,
        served_model_name: model.name(),
        model_type: match model.task() {
            Task::Embed | Task::Unspecified => ModelType::Embedding(EmbeddingType {
                pooling: &model.info.pooling,
            }),
            Task::Score => ModelType::Reranker(LabelledType::of(&model)),
            Task::Classify => ModelType::Classifier(LabelledType::of(&model)),
        },
        max_concurrent_requests: config.max_requests_in_flight,
        max_input_length: limits.max_sequence_tokens,
        max_batch_tokens: limits.max_batch_tokens,
        max_client_batch_size: config.max_items_per_request.min(items),
        auto_truncate: config.auto_truncate,
        tokenization_workers: config.tokenizer_threads,
        version: env!("CARGO_PKG_VERSION"),
    })
}

/// Whether requests can be answered (TEI).
#[utoipa::path(
    get, path = "/health", tag = "TEI",
    responses((status = 200, description = "They can"), (status = 503, description = "Not now"))
)]
pub(crate) async fn health(call: Call) -> Response {
    match call.gateway.check_serving() {
        Ok(()) => StatusCode::OK.into_response(),
        Err(error) => call.respond(Family::Tei, Err(error)),
    }
}

/// Whether the process listens; says nothing of the model.
#[utoipa::path(
    get, path = "/health/live", tag = "TEI",
    responses((status = 200, description = "It does"))
)]
pub(crate) async fn live() -> StatusCode {
    StatusCode::OK
}
