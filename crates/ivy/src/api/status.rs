//! `GET /status`: what is served and where the work goes, for people and for the page.

use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use super::call::{Call, Reply};
use super::family::Family;
use crate::backend::ReplicaLoad;
use crate::model::Model;

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Status<'a> {
    version: &'static str,
    uptime_seconds: u64,
    models: Vec<ModelStatus<'a>>,
    replicas: Vec<ReplicaStatus<'a>>,
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
    tokens_per_second: u64,
}

impl<'a> From<&'a Model> for ModelStatus<'a> {
    fn from(model: &'a Model) -> Self {
        use tulip_proto::v1::Task;

        Self {
            name: model.name(),
            task: match model.task() {
                Task::Embed => "embed",
                Task::Score => "score",
                Task::Classify => "classify",
                Task::Unspecified => "unknown",
            },
            architecture: &model.info.architecture,
            dtype: &model.info.dtype,
            device: &model.info.device,
            fingerprint: &model.info.fingerprint,
            max_sequence_tokens: model.limits().max_sequence_tokens,
        }
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
            tokens_per_second: load.report.tokens_per_second,
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
    let status = Status {
        version: env!("CARGO_PKG_VERSION"),
        uptime_seconds: call.gateway.started.elapsed().as_secs(),
        models: models.iter().map(|model| (&**model).into()).collect(),
        replicas: replicas.iter().map(Into::into).collect(),
    };
    call.respond(Family::Tei, Reply::plain(&status))
}
