//! TEI `POST /embed`, `/embed_all` and `/embed_sparse`.

use axum::response::Response;
use serde::{Deserialize, Serialize};
use tulip_proto::v1::{EmbedRequest, Normalization, OutputKind, Tensor};
use utoipa::ToSchema;

use crate::api::call::{Call, Reply};
use crate::api::family::Family;
use crate::api::input::Inputs;
use crate::api::options;
use crate::api::vectors::{Encoding, Row, rows};
use crate::error::{Error, Result};
use crate::job::{EmbedJob, Embedded, Names};

/// Texts to vectors.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct EmbedBody {
    /// A string, token ids, or a list of strings and lists of token ids.
    #[schema(value_type = Vec<String>)]
    inputs: Inputs,
    /// Whether over-long inputs are cut; false makes them errors.
    #[serde(default)]
    truncate: Option<bool>,
    /// The side that is cut, `left` or `right`.
    #[serde(default)]
    truncation_direction: Option<String>,
    /// One of the model's prompts.
    #[serde(default)]
    prompt_name: Option<String>,
    /// `/embed` only: unit length; true if absent.
    #[serde(default)]
    normalize: Option<bool>,
    /// `/embed` only: where the model's vectors may be cut.
    #[serde(default)]
    dimensions: Option<i64>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SparseValue {
    index: u32,
    value: f32,
}

/// One vector for each input (TEI).
#[utoipa::path(
    post, path = "/embed", tag = "TEI", request_body = EmbedBody,
    responses((status = 200, body = Vec<Vec<f32>>))
)]
pub(crate) async fn embed(call: Call) -> Response {
    let outcome = dense(&call).await;
    call.respond(Family::Tei, outcome)
}

/// One vector for each token of each input (TEI).
#[utoipa::path(
    post, path = "/embed_all", tag = "TEI", request_body = EmbedBody,
    responses((status = 200, body = Vec<Vec<Vec<f32>>>))
)]
pub(crate) async fn embed_all(call: Call) -> Response {
    let outcome = all(&call).await;
    call.respond(Family::Tei, outcome)
}

/// One sparse vector for each input (TEI).
#[utoipa::path(
    post, path = "/embed_sparse", tag = "TEI", request_body = EmbedBody,
    responses((status = 200, body = Vec<Vec<SparseValue>>))
)]
pub(crate) async fn embed_sparse(call: Call) -> Response {
    let outcome = sparse(&call).await;
    call.respond(Family::Tei, outcome)
}

async fn run(call: &Call, kind: OutputKind) -> Result<(Embedded, usize)> {
    let body: EmbedBody = call.json().await?;
    let direction = body.truncation_direction.as_deref();
    let truncation = super::truncation(call, body.truncate, direction)?;
    let normalization = match (kind, body.normalize) {
        (OutputKind::Dense, Some(false)) => Normalization::None,
        (OutputKind::Dense, _) => Normalization::L2,
        _ => Normalization::Unspecified,
    };
    let items = body.inputs.0.len();
    let job = EmbedJob {
        model: call.gateway.model("")?,
        request: EmbedRequest {
            inputs: body.inputs.0,
            prompt_name: body.prompt_name.unwrap_or_default(),
            truncation: Some(truncation),
            dimensions: options::dimensions("dimensions", body.dimensions)?,
            normalization: normalization.into(),
            priority: options::priority(&call.headers, None)?.into(),
            outputs: vec![kind.into()],
            ..EmbedRequest::default()
        },
        names: Names {
            items: "inputs",
            others: &[("normalization", "normalize")],
        },
    };
    Ok((call.embed(job).await?, items))
}

async fn dense(call: &Call) -> Result<Reply> {
    let (embedded, items) = run(call, OutputKind::Dense).await?;
    let values = embedded.dense.data.len() / 4;
    let vectors = rows(&embedded.dense, items, Encoding::Numbers);
    Reply::large(&call.gateway, vectors, values, embedded.report).await
}

async fn all(call: &Call) -> Result<Reply> {
    let (embedded, items) = run(call, OutputKind::Tokens).await?;
    let vectors = embedded.tokens.vectors.unwrap_or_default();
    let offsets = checked(&embedded.tokens.row_offsets, items)?;
    let total = offsets.last().copied().unwrap_or(0) as usize;
    let values = vectors.data.len() / 4;
    let mut left = rows(&vectors, total, Encoding::Numbers).into_iter();
    let lengths = offsets.windows(2).map(|pair| (pair[1] - pair[0]) as usize);
    let answer: Vec<Vec<Row>> = lengths
        .map(|length| left.by_ref().take(length).collect())
        .collect();
    Reply::large(&call.gateway, answer, values, embedded.report).await
}

async fn sparse(call: &Call) -> Result<Reply> {
    let (embedded, items) = run(call, OutputKind::Sparse).await?;
    let vectors = embedded.sparse;
    let offsets = checked(&vectors.row_offsets, items)?;
    let entries: Vec<SparseValue> = vectors
        .indices
        .iter()
        .zip(&vectors.values)
        .map(|(&index, &value)| SparseValue { index, value })
        .collect();
    let values = entries.len() * 2;
    let mut left = entries.into_iter();
    let lengths = offsets.windows(2).map(|pair| (pair[1] - pair[0]) as usize);
    let answer: Vec<Vec<SparseValue>> = lengths
        .map(|length| left.by_ref().take(length).collect())
        .collect();
    Reply::large(&call.gateway, answer, values, embedded.report).await
}

/// Offsets of as many rows as there are inputs, ascending.
fn checked(offsets: &[u32], items: usize) -> Result<&[u32]> {
    if offsets.len() == items + 1 && offsets.is_sorted() {
        return Ok(offsets);
    }
    let message = format!("{} row offsets for {items} inputs", offsets.len());
    Err(Error::Internal(message))
}

/// Dense float32 vectors as numbers, for computing with them.
pub(super) fn float_rows(tensor: &Tensor, count: usize) -> Vec<Vec<f32>> {
    let values = crate::job::float32(tensor);
    let width = values.len() / count.max(1);
    values.chunks(width.max(1)).map(<[f32]>::to_vec).collect()
}
