//! `GET /status`: what is served and where the work goes, for people and for the page.

use axum::response::Response;
use serde::Serialize;
use tulip_proto::v1::Task;
use utoipa::ToSchema;

use super::call::{Call, Reply};
use super::family::Family;
use crate::activity::{Activity, Counts};
use crate::backend::ReplicaLoad;
use crate::gateway::Gateway;
use crate::job::form_name;
use crate::model::Model;

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Status<'a> {
    version: &'static str,
    uptime_seconds: f64,
    models: Vec<ModelStatus<'a>>,
    replicas: Vec<ReplicaStatus<'a>>,
    /// Since the start; the difference of two answers is what happened in between.
    totals: Totals,
    /// Successful requests by the time they took; grows like `totals`.
    latency: Vec<LatencyClass>,
    gateway: GatewayStatus,
}

#[derive(Debug, Serialize, ToSchema)]
struct ModelStatus<'a> {
    name: &'a str,
    /// `embed`, `score` or `classify`.
    task: &'static str,
    architecture: &'a str,
    dtype: &'a str,
    device: &'a str,
    fingerprint: &'a str,
    max_sequence_tokens: u32,
    #[serde(skip_serializing_if = "is_zero")]
    max_items_per_request: u64,
    #[serde(skip_serializing_if = "is_zero")]
    max_batch_tokens: u64,
    #[serde(skip_serializing_if = "is_zero")]
    max_queued_tokens: u64,
    #[serde(skip_serializing_if = "is_zero")]
    vocab_size: u64,
    #[serde(skip_serializing_if = "str::is_empty")]
    pooling: &'a str,
    /// Whether vectors have unit length.
    #[serde(skip_serializing_if = "Option::is_none")]
    normalized: Option<bool>,
    #[serde(skip_serializing_if = "str::is_empty")]
    similarity: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    dimensions: u64,
    /// Lengths that vectors may be cut to.
    #[serde(skip_serializing_if = "<[u32]>::is_empty")]
    matryoshka_dimensions: &'a [u32],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    labels: &'a [String],
    #[serde(skip_serializing_if = "str::is_empty")]
    positive_label: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    score_activation: &'a str,
    /// Names of the model's prompts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    prompts: Vec<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    default_instruction: &'a str,
    /// What an embedding model can give: `dense`, `sparse`, `tokens`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    outputs: Vec<&'static str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    server_version: &'a str,
}

#[derive(Debug, Serialize, ToSchema)]
struct ReplicaStatus<'a> {
    address: &'a str,
    model: &'a str,
    /// `connecting`, `ready`, `ejected`, `draining` or `refused`.
    state: &'static str,
    outstanding_tokens: u64,
    queued_tokens: u64,
    running_tokens: u64,
    max_queued_tokens: u64,
    queued_sequences: u32,
    steps_in_flight: u32,
    tokens_per_second: u64,
    /// Absent on devices without CUDA graphs.
    #[serde(skip_serializing_if = "Option::is_none")]
    graphs: Option<GraphStatus>,
}

/// CUDA graphs of a replica, since its start.
#[derive(Debug, Serialize, ToSchema)]
struct GraphStatus {
    /// Captured; all are kept.
    graphs: u32,
    /// Step shapes whose capture failed.
    failed_captures: u32,
    eager_steps: u64,
    replayed_steps: u64,
    /// Device memory of the graphs.
    bytes: u64,
}

/// Requests are those that bring work; looks at the status are not among them.
#[derive(Debug, Serialize, ToSchema)]
struct Totals {
    /// Answered with 2xx.
    succeeded: u64,
    /// Answered with 4xx.
    refused: u64,
    /// Answered with 5xx.
    failed: u64,
    /// The client left before the answer.
    abandoned: u64,
    /// Documents or inputs of answered requests.
    items: u64,
    /// Tokens of answered requests, special tokens included.
    tokens: u64,
    /// Texts that were cut.
    truncations: u64,
    /// Items without a result in answered requests.
    item_errors: u64,
}

#[derive(Debug, Serialize, ToSchema)]
struct LatencyClass {
    /// Milliseconds at the most; the class before it ends 9 % below.
    up_to_ms: f64,
    requests: u64,
}

#[derive(Debug, Serialize, ToSchema)]
struct GatewayStatus {
    requests_in_flight: u64,
    max_requests_in_flight: usize,
    max_items_per_request: usize,
    max_body_bytes: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl<'a> From<&'a Model> for ModelStatus<'a> {
    fn from(model: &'a Model) -> Self {
        let (info, limits) = (&model.info, model.limits());
        let embeds = model.task() == Task::Embed;
        let template = info.template.as_ref();
        let mut prompts: Vec<&str> = template
            .map(|template| template.prompts.keys().map(String::as_str).collect())
            .unwrap_or_default();
        prompts.sort_unstable();
        Self {
            name: model.name(),
            task: task_name(model.task()),
            architecture: &info.architecture,
            dtype: &info.dtype,
            device: &info.device,
            fingerprint: &info.fingerprint,
            max_sequence_tokens: limits.max_sequence_tokens,
            max_items_per_request: limits.max_items_per_request.into(),
            max_batch_tokens: limits.max_batch_tokens,
            max_queued_tokens: limits.max_queued_tokens,
            vocab_size: info.vocab_size.into(),
            pooling: &info.pooling,
            normalized: embeds.then_some(info.normalized),
            similarity: &info.similarity,
            dimensions: if embeds { info.dimensions.into() } else { 0 },
            matryoshka_dimensions: &info.matryoshka_dimensions,
            labels: &info.labels,
            positive_label: &info.positive_label,
            score_activation: &info.score_activation,
            prompts,
            default_instruction: template.map_or("", |template| &template.default_instruction),
            outputs: info.outputs().map(form_name).collect(),
            server_version: &info.server_version,
        }
    }
}

fn task_name(task: Task) -> &'static str {
    match task {
        Task::Embed => "embed",
        Task::Score => "score",
        Task::Classify => "classify",
        Task::Unspecified => "unknown",
    }
}

impl<'a> From<&'a ReplicaLoad> for ReplicaStatus<'a> {
    fn from(load: &'a ReplicaLoad) -> Self {
        Self {
            address: &load.address,
            model: &load.model,
            state: load.state.as_str(),
            outstanding_tokens: load.outstanding_tokens,
            queued_tokens: load.report.queued_tokens,
            running_tokens: load.report.running_tokens,
            max_queued_tokens: load.report.max_queued_tokens,
            queued_sequences: load.report.queued_sequences,
            steps_in_flight: load.report.steps_in_flight,
            tokens_per_second: load.report.tokens_per_second,
            graphs: load.report.graphs.map(|report| GraphStatus {
                graphs: report.graphs,
                failed_captures: report.failed_captures,
                eager_steps: report.eager_steps,
                replayed_steps: report.replayed_steps,
                bytes: report.bytes,
            }),
        }
    }
}

impl From<Counts> for Totals {
    fn from(counts: Counts) -> Self {
        Self {
            succeeded: counts.succeeded,
            refused: counts.refused,
            failed: counts.failed,
            abandoned: counts.abandoned,
            items: counts.items,
            tokens: counts.tokens,
            truncations: counts.truncations,
            item_errors: counts.item_errors,
        }
    }
}

fn latency(activity: &Activity) -> Vec<LatencyClass> {
    let classes = activity.latency();
    classes
        .map(|(up_to_ms, requests)| LatencyClass { up_to_ms, requests })
        .collect()
}

impl GatewayStatus {
    fn of(gateway: &Gateway, counts: &Counts) -> Self {
        Self {
            requests_in_flight: counts.in_flight,
            max_requests_in_flight: gateway.config.max_requests_in_flight,
            max_items_per_request: gateway.config.max_items_per_request,
            max_body_bytes: gateway.config.max_body_bytes,
        }
    }
}

/// What is served, and where the work goes.
#[utoipa::path(
    get, path = "/status", tag = "Gateway",
    responses((status = 200, body = Status<'static>))
)]
pub(crate) async fn status(call: Call) -> Response {
    let models = call.gateway.backend.models();
    let replicas = call.gateway.backend.load();
    let counts = call.gateway.activity.counts();
    let status = Status {
        version: env!("CARGO_PKG_VERSION"),
        uptime_seconds: call.gateway.started.elapsed().as_secs_f64(),
        models: models.iter().map(|model| (&**model).into()).collect(),
        replicas: replicas.iter().map(Into::into).collect(),
        totals: counts.into(),
        latency: latency(&call.gateway.activity),
        gateway: GatewayStatus::of(&call.gateway, &counts),
    };
    call.respond(Family::Tei, Reply::plain(&status))
}
