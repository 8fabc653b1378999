//! OpenAI `GET /v1/models`.

use axum::extract::Path;
use axum::response::Response;
use serde::Serialize;
use tulip_proto::quoted;
use utoipa::ToSchema;

use super::call::{Call, Reply};
use super::family::Family;
use crate::error::Error;
use crate::model::Model;

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ModelList<'a> {
    object: &'static str,
    data: Vec<ModelEntry<'a>>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ModelEntry<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
}

impl<'a> From<&'a Model> for ModelEntry<'a> {
    fn from(model: &'a Model) -> Self {
        Self {
            id: model.name(),
            object: "model",
            created: model.created,
            owned_by: "rose",
        }
    }
}

/// What is served.
#[utoipa::path(
    get, path = "/v1/models", tag = "OpenAI",
    responses((status = 200, body = ModelList<'static>))
)]
pub(crate) async fn list(call: Call) -> Response {
    let models = call.gateway.backend.models();
    let list = ModelList {
        object: "list",
        data: models.iter().map(|model| (&**model).into()).collect(),
    };
    call.respond(Family::OpenAi, Reply::plain(&list))
}

/// One of the models served.
#[utoipa::path(
    get, path = "/v1/models/{model}", tag = "OpenAI",
    params(("model" = String, Path, description = "Its name")),
    responses((status = 200, body = ModelEntry<'static>))
)]
pub(crate) async fn one(Path(name): Path<String>, call: Call) -> Response {
    let models = call.gateway.backend.models();
    let model = models.iter().find(|model| model.name() == name);
    let reply = match model {
        Some(model) => Reply::plain(&ModelEntry::from(&**model)),
        None => Err(Error::UnknownModel(format!(
            "model: {} is not served here",
            quoted(&name)
        ))),
    };
    call.respond(Family::OpenAi, reply)
}
