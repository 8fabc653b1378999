//! TEI `POST /similarity`: cosines between one sentence and others.

use axum::response::Response;
use serde::Deserialize;
use tulip_proto::v1::{EmbedRequest, OutputKind};
use utoipa::ToSchema;

use super::embed::float_rows;
use crate::api::call::{Call, Reply};
use crate::api::family::Family;
use crate::api::input::text;
use crate::api::options;
use crate::error::{Error, Result};
use crate::job::{EmbedJob, Names};

/// One sentence against others.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct SimilarityBody {
    inputs: SimilarityInputs,
    #[serde(default)]
    parameters: Option<SimilarityParameters>,
}

#[derive(Debug, Deserialize, ToSchema)]
struct SimilarityInputs {
    source_sentence: String,
    sentences: Vec<String>,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
struct SimilarityParameters {
    #[serde(default)]
    truncate: Option<bool>,
    /// The side that is cut, `left` or `right`.
    #[serde(default)]
    truncation_direction: Option<String>,
    /// One of the model's prompts.
    #[serde(default)]
    prompt_name: Option<String>,
}

/// Cosines between one sentence and others (TEI).
#[utoipa::path(
    post, path = "/similarity", tag = "TEI", request_body = SimilarityBody,
    responses((status = 200, body = Vec<f32>))
)]
pub(crate) async fn similarity(call: Call) -> Response {
    let outcome = answer(&call).await;
    call.respond(Family::Tei, outcome)
}

async fn answer(call: &Call) -> Result<Reply> {
    let body: SimilarityBody = call.json().await?;
    let SimilarityInputs {
        source_sentence,
        sentences,
    } = body.inputs;
    call.gateway.check_count("sentences", sentences.len())?;
    let parameters = body.parameters.unwrap_or_default();
    let direction = parameters.truncation_direction.as_deref();
    let mut inputs = vec![text(source_sentence)];
    inputs.extend(sentences.into_iter().map(text));
    let count = inputs.len();
    let job = EmbedJob {
        model: call.gateway.model("")?,
        request: EmbedRequest {
            inputs,
            prompt_name: parameters.prompt_name.unwrap_or_default(),
            truncation: Some(super::truncation(call, parameters.truncate, direction)?),
            priority: options::priority(&call.headers, None)?.into(),
            outputs: vec![OutputKind::Dense.into()],
            ..EmbedRequest::default()
        },
        names: Names::list("inputs"),
    };
    let embedded = call.embed(job).await?;
    let vectors = float_rows(&embedded.dense, count);
    let Some((source, others)) = vectors.split_first() else {
        return Err(Error::Internal("no vectors came back".into()));
    };
    let cosines: Vec<f32> = others.iter().map(|other| cosine(source, other)).collect();
    Reply::with_report(&cosines, embedded.report)
}

/// In float64: the products of a few thousand float32 values. A vector of zeros is like nothing.
#[expect(clippy::cast_possible_truncation, reason = "a cosine as float32")]
fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        let products = a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b));
        products.sum()
    };
    let lengths = (dot(a, a) * dot(b, b)).sqrt();
    if lengths > 0.0 {
        (dot(a, b) / lengths) as f32
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::cosine;

    #[test]
    fn cosines() {
        assert_eq!(cosine(&[1.0, 0.0], &[2.0, 0.0]), 1.0);
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, 3.0]), 0.0);
        assert_eq!(cosine(&[1.0, 1.0], &[-1.0, -1.0]), -1.0);
        assert_eq!(cosine(&[0.0, 0.0], &[1.0, 1.0]), 0.0);
    }
}
