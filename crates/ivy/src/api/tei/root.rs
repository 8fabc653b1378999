//! TEI `POST /`: whatever the model is for. Clients that know an address and no path ask here.

use axum::response::Response;
use tulip_proto::v1::Task;

use super::{embed, predict, rerank};
use crate::api::call::Call;
use crate::api::family::Family;

/// `/embed`, `/rerank` or `/predict`, by the model's task.
pub(crate) async fn root(call: Call) -> Response {
    match call.gateway.model("").map(|model| model.task()) {
        Ok(Task::Score) => rerank::rerank(call).await,
        Ok(Task::Classify) => predict::predict(call).await,
        Ok(Task::Embed | Task::Unspecified) => embed::embed(call).await,
        Err(error) => call.respond(Family::Tei, Err(error)),
    }
}
