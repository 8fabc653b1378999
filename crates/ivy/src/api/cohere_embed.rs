//! Cohere `POST /v2/embed` and `/v1/embed`: one request, two shapes of the answer.

use axum::response::Response;
use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};
use tulip_proto::quoted;
use tulip_proto::v1::{DType, EmbedRequest, InputType, OutputKind, TruncationSide};
use utoipa::ToSchema;

use super::call::{Call, Reply};
use super::family::Family;
use super::input::text;
use super::meta::Meta;
use super::openai::dtype;
use super::options;
use super::report::Report;
use super::vectors::{Encoding, Row, rows};
use crate::error::{Error, Result};
use crate::job::{EmbedJob, Embedded, Names};
use crate::model::Model;

/// Vectors of texts.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct CohereEmbedRequest {
    /// Any name is accepted where one model is served.
    #[serde(default)]
    model: Option<String>,
    /// `search_document`, `search_query`, `classification` or `clustering`.
    #[serde(default)]
    input_type: Option<String>,
    #[serde(default)]
    texts: Option<Vec<String>>,
    /// Images are not supported.
    #[serde(default)]
    images: Option<Vec<String>>,
    /// Instead of `texts`; contents of type `text` only.
    #[serde(default)]
    inputs: Option<Vec<EmbedInput>>,
    /// Longer texts are cut.
    #[serde(default)]
    max_tokens: Option<i64>,
    #[serde(default)]
    output_dimension: Option<i64>,
    /// Any of `float`, `int8`, `uint8`, `binary`, `ubinary`, `base64`; `float` if absent.
    #[serde(default)]
    embedding_types: Option<Vec<String>>,
    /// `NONE` makes over-long texts errors, `START` or `END` cuts there; `END` if absent.
    #[serde(default)]
    truncate: Option<String>,
    /// 0 goes first.
    #[serde(default)]
    priority: Option<i64>,
}

#[derive(Debug, Deserialize, ToSchema)]
struct EmbedInput {
    content: Vec<EmbedContent>,
}

#[derive(Debug, Deserialize, ToSchema)]
struct EmbedContent {
    r#type: String,
    #[serde(default)]
    text: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EmbedV2Response {
    id: String,
    embeddings: EmbeddingsByType,
    texts: Vec<String>,
    meta: Meta,
}

#[derive(Debug, Default, Serialize, ToSchema)]
struct EmbeddingsByType {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<Vec<f32>>)]
    float: Option<Vec<Row>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<Vec<i8>>)]
    int8: Option<Vec<Row>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<Vec<u8>>)]
    uint8: Option<Vec<Row>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<Vec<i8>>)]
    binary: Option<Vec<Row>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<Vec<u8>>)]
    ubinary: Option<Vec<Row>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<String>)]
    base64: Option<Vec<Row>>,
}

/// Version 1 answers plain vectors unless types are asked for.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EmbedV1Response {
    /// `embeddings_floats` or `embeddings_by_type`.
    response_type: &'static str,
    id: String,
    embeddings: EmbeddingsV1,
    texts: Vec<String>,
    meta: Meta,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
enum EmbeddingsV1 {
    #[schema(value_type = Vec<Vec<f32>>)]
    Floats(Vec<Row>),
    ByType(EmbeddingsByType),
}

/// Vectors of texts (Cohere, version 2).
#[utoipa::path(
    post, path = "/v2/embed", tag = "Cohere", request_body = CohereEmbedRequest,
    responses((status = 200, body = EmbedV2Response))
)]
pub(crate) async fn embed_v2(call: Call) -> Response {
    let outcome = answer_v2(&call).await;
    call.respond(Family::Cohere, outcome)
}

/// Vectors of texts (Cohere, version 1).
#[utoipa::path(
    post, path = "/v1/embed", tag = "Cohere", request_body = CohereEmbedRequest,
    responses((status = 200, body = EmbedV1Response))
)]
pub(crate) async fn embed_v1(call: Call) -> Response {
    let outcome = answer_v1(&call).await;
    call.respond(Family::Cohere, outcome)
}

async fn answer_v2(call: &Call) -> Result<Reply> {
    let vectors = vectors(call, call.json().await?).await?;
    let response = EmbedV2Response {
        id: call.arrival.request_id.to_string(),
        embeddings: vectors.by_type,
        texts: vectors.texts,
        meta: Meta::of_embed("2", &vectors.report, vectors.field),
    };
    Reply::large(&call.gateway, response, vectors.values, vectors.report).await
}

async fn answer_v1(call: &Call) -> Result<Reply> {
    let body: CohereEmbedRequest = call.json().await?;
    let by_type = body.embedding_types.is_some();
    let vectors = vectors(call, body).await?;
    let (response_type, embeddings) = match vectors.by_type {
        embeddings if by_type => ("embeddings_by_type", EmbeddingsV1::ByType(embeddings)),
        EmbeddingsByType { float, .. } => {
            let floats = EmbeddingsV1::Floats(float.unwrap_or_default());
            ("embeddings_floats", floats)
        }
    };
    let response = EmbedV1Response {
        response_type,
        id: call.arrival.request_id.to_string(),
        embeddings,
        texts: vectors.texts,
        meta: Meta::of_embed("1", &vectors.report, vectors.field),
    };
    Reply::large(&call.gateway, response, vectors.values, vectors.report).await
}

/// What both versions answer.
struct Vectors {
    by_type: EmbeddingsByType,
    texts: Vec<String>,
    /// The field that the texts came from.
    field: &'static str,
    /// How many numbers there are.
    values: usize,
    report: Report,
}

async fn vectors(call: &Call, body: CohereEmbedRequest) -> Result<Vectors> {
    let model = call.model(body.model.as_deref())?;
    let (field, texts) = texts(&body)?;
    let (input_type, prompt_name) = prompt(&model, body.input_type.as_deref())?;
    let mut truncation = match body.truncate.as_deref() {
        // Cohere says which end, so the model's own side does not matter.
        None | Some("END") => options::cut_at(TruncationSide::Right),
        Some("START") => options::cut_at(TruncationSide::Left),
        Some("NONE") => options::refuse(),
        Some(other) => {
            let message = format!("must be NONE, START or END, is {other:?}");
            return Err(Error::invalid("truncate", message));
        }
    };
    truncation.max_tokens = options::count("max_tokens", body.max_tokens, 1)?;
    let request = EmbedRequest {
        inputs: texts.iter().map(text).collect(),
        input_type: input_type.into(),
        prompt_name,
        truncation: Some(truncation),
        dimensions: options::dimensions("output_dimension", body.output_dimension)?,
        priority: options::priority(&call.headers, body.priority)?.into(),
        outputs: vec![OutputKind::Dense.into()],
        ..EmbedRequest::default()
    };

    let names = body.embedding_types.unwrap_or_else(|| vec!["float".into()]);
    let types = types(&names)?;
    let mut dtypes: Vec<DType> = Vec::new();
    for &(_, dtype, _) in &types {
        if !dtypes.contains(&dtype) {
            dtypes.push(dtype);
        }
    }
    let embed = |dtype: DType| {
        let job = EmbedJob {
            model: model.clone(),
            request: EmbedRequest {
                dtype: dtype.into(),
                ..request.clone()
            },
            names: Names {
                items: field,
                others: &[
                    ("dimensions", "output_dimension"),
                    ("truncation.max_tokens", "max_tokens"),
                ],
            },
        };
        call.embed(job)
    };
    let embedded: Vec<Embedded> = try_join_all(dtypes.iter().copied().map(embed)).await?;

    let mut embeddings = EmbeddingsByType::default();
    for (name, dtype, encoding) in types {
        let of_type = dtypes.iter().zip(&embedded).find(|(one, _)| **one == dtype);
        let vectors = of_type.map(|(_, found)| rows(&found.dense, texts.len(), encoding));
        let place = match name {
            "int8" => &mut embeddings.int8,
            "uint8" => &mut embeddings.uint8,
            "binary" => &mut embeddings.binary,
            "ubinary" => &mut embeddings.ubinary,
            "base64" => &mut embeddings.base64,
            _ => &mut embeddings.float,
        };
        *place = vectors;
    }
    let values = embedded.iter().map(|one| one.dense.data.len()).sum();
    // The types are of the same tokens: billed once.
    let report = embedded
        .into_iter()
        .next()
        .map(|one| one.report)
        .unwrap_or_default();
    Ok(Vectors {
        by_type: embeddings,
        texts,
        field,
        values,
        report,
    })
}

/// The texts, and the field that they came from.
fn texts(body: &CohereEmbedRequest) -> Result<(&'static str, Vec<String>)> {
    if body.images.is_some() {
        return Err(Error::invalid("images", "are not supported"));
    }
    match (&body.texts, &body.inputs) {
        (Some(_), Some(_)) => Err(Error::invalid("inputs", "must not be given beside texts")),
        (Some(texts), None) => Ok(("texts", texts.clone())),
        (None, None) => Err(Error::invalid("texts", "is missing")),
        (None, Some(inputs)) => {
            let joined = inputs.iter().enumerate().map(|(index, input)| {
                let parts = input
                    .content
                    .iter()
                    .map(|part| match (&*part.r#type, &part.text) {
                        ("text", Some(text)) => Ok(text.as_str()),
                        (other, _) => {
                            let field = format!("inputs[{index}].content");
                            let other = quoted(other);
                            let message = format!("type {other} is not supported, only text is");
                            Err(Error::invalid(field, message))
                        }
                    });
                Ok(parts.collect::<Result<Vec<_>>>()?.join("\n"))
            });
            Ok(("inputs", joined.collect::<Result<_>>()?))
        }
    }
}

/// What the text is for: as a type, or as the name of one of the model's prompts.
fn prompt(model: &Model, input_type: Option<&str>) -> Result<(InputType, String)> {
    match input_type {
        None => Ok((InputType::Unspecified, String::new())),
        Some("search_query") => Ok((InputType::Query, String::new())),
        Some("search_document") => Ok((InputType::Document, String::new())),
        Some(name @ ("classification" | "clustering")) => {
            let template = model.info.template.as_ref();
            let known = template.is_some_and(|template| template.prompts.contains_key(name));
            let name = if known { name } else { "" };
            Ok((InputType::Unspecified, name.to_owned()))
        }
        Some(other) => {
            let message = format!(
                "must be search_document, search_query, classification or clustering, is {other:?}"
            );
            Err(Error::invalid("input_type", message))
        }
    }
}

fn types(names: &[String]) -> Result<Vec<(&str, DType, Encoding)>> {
    if names.is_empty() {
        return Err(Error::empty("embedding_types"));
    }
    let types = names.iter().map(|name| match &**name {
        "base64" => Ok((&**name, DType::DtypeFloat32, Encoding::Base64)),
        name => Ok((name, dtype("embedding_types", name)?, Encoding::Numbers)),
    });
    types.collect()
}
