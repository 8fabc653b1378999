//! OpenAI `POST /v1/embeddings`, with the fields that Jina, Voyage and vLLM add on the same path.

use axum::response::Response;
use http::HeaderMap;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use tulip_proto::v1::{DType, EmbedRequest, InputType, Normalization, OutputKind};
use utoipa::ToSchema;

use super::call::{Call, Reply};
use super::family::Family;
use super::input::Inputs;
use super::meta::TokenUsage;
use super::options;
use super::vectors::{Encoding, Row, rows};
use super::vllm::MAX_TOKENS;
use crate::error::{Error, Result};
use crate::job::{EmbedJob, Names};
use crate::model::Model;

/// The union of the requests of OpenAI, Jina, Voyage and vLLM.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct EmbeddingsRequest {
    /// A string, a list of strings, token ids, or lists of token ids.
    #[schema(value_type = Vec<String>)]
    input: Inputs,
    /// Any name is accepted where one model is served.
    #[serde(default)]
    model: Option<String>,
    /// `float` or `base64`.
    #[serde(default)]
    encoding_format: Option<String>,
    /// Only where the model's vectors may be cut.
    #[serde(default)]
    dimensions: Option<i64>,
    /// Voyage's name for `dimensions`.
    #[serde(default)]
    output_dimension: Option<i64>,
    /// Voyage: `float`, `int8`, `uint8`, `binary` or `ubinary`.
    #[serde(default)]
    output_dtype: Option<String>,
    /// Voyage: `query` or `document`.
    #[serde(default)]
    input_type: Option<String>,
    /// Voyage: whether over-long inputs are cut; false makes them errors.
    #[serde(default)]
    truncation: Option<bool>,
    /// Jina: `retrieval.query`, `retrieval.passage`, or the name of one of the model's prompts.
    #[serde(default)]
    task: Option<String>,
    /// Jina: `float`, `base64`, `binary` or `ubinary`.
    #[serde(default)]
    embedding_type: Option<String>,
    /// Jina: not supported, must be false.
    #[serde(default)]
    late_chunking: Option<bool>,
    /// Jina: unit length.
    #[serde(default)]
    normalized: Option<bool>,
    /// Jina: whether over-long inputs are cut; false makes them errors.
    #[serde(default)]
    truncate: Option<bool>,
    /// vLLM: cut to so many tokens; -1 = to what the model can read.
    #[serde(default)]
    truncate_prompt_tokens: Option<i64>,
    /// vLLM: `left` or `right`; the model's own if absent.
    #[serde(default)]
    truncation_side: Option<String>,
    /// vLLM: 0 goes first.
    #[serde(default)]
    priority: Option<i64>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EmbeddingsResponse {
    object: &'static str,
    data: Vec<Embedding>,
    model: String,
    usage: TokenUsage,
}

#[derive(Debug, Serialize, ToSchema)]
struct Embedding {
    object: &'static str,
    index: usize,
    /// Numbers, or base64 of little-endian bytes.
    #[schema(value_type = Vec<f32>)]
    embedding: Row,
}

/// The keys that tell whose request it is.
#[derive(Debug, Deserialize)]
struct Keys {
    #[serde(default)]
    truncation: Option<IgnoredAny>,
    #[serde(default)]
    output_dtype: Option<IgnoredAny>,
    #[serde(default)]
    output_dimension: Option<IgnoredAny>,
    #[serde(default)]
    task: Option<IgnoredAny>,
    #[serde(default)]
    embedding_type: Option<IgnoredAny>,
    #[serde(default)]
    late_chunking: Option<IgnoredAny>,
}

impl Keys {
    fn family(&self) -> Family {
        let voyage = [&self.truncation, &self.output_dtype, &self.output_dimension];
        let jina = [&self.task, &self.embedding_type, &self.late_chunking];
        if voyage.iter().any(|key| key.is_some()) {
            Family::Voyage
        } else if jina.iter().any(|key| key.is_some()) {
            Family::Jina
        } else {
            Family::OpenAi
        }
    }
}

/// Vectors of texts (OpenAI, Jina, Voyage).
#[utoipa::path(
    post, path = "/v1/embeddings", tag = "OpenAI", request_body = EmbeddingsRequest,
    responses((status = 200, body = EmbeddingsResponse))
)]
pub(crate) async fn embeddings(call: Call) -> Response {
    let outcome = match call.json::<EmbeddingsRequest>().await {
        Ok(body) => answer(&call, body).await,
        Err(error) => Err(error),
    };
    let family = match &outcome {
        Ok(_) => Family::OpenAi,
        // Whose error it is matters only now.
        Err(_) => call
            .peek::<Keys>()
            .map_or(Family::Embeddings, |keys| keys.family()),
    };
    call.respond(family, outcome)
}

async fn answer(call: &Call, body: EmbeddingsRequest) -> Result<Reply> {
    let model = call.model(body.model.as_deref())?;
    let names = Names {
        items: "input",
        others: if body.output_dimension.is_some() {
            &[NORMALIZED, MAX_TOKENS, ("dimensions", "output_dimension")]
        } else {
            &[NORMALIZED, MAX_TOKENS]
        },
    };
    let (request, encoding) = request(call, &model, body)?;
    let items = request.inputs.len();
    let job = EmbedJob {
        model: model.clone(),
        request,
        names,
    };
    let embedded = call.embed(job).await?;
    let values = match encoding {
        Encoding::Numbers => embedded.dense.data.len() / 4,
        // Base64 is a copy of bytes, cheap at any size.
        Encoding::Base64 => 0,
    };
    let vectors = rows(&embedded.dense, items, encoding)
        .into_iter()
        .enumerate();
    let data = vectors.map(|(index, embedding)| Embedding {
        object: "embedding",
        index,
        embedding,
    });
    let response = EmbeddingsResponse {
        object: "list",
        data: data.collect(),
        model: model.name().to_owned(),
        usage: TokenUsage::of(&embedded.report),
    };
    Reply::large(&call.gateway, response, values, embedded.report).await
}

const NORMALIZED: (&str, &str) = ("normalization", "normalized");

fn request(
    call: &Call,
    model: &Model,
    body: EmbeddingsRequest,
) -> Result<(EmbedRequest, Encoding)> {
    if body.late_chunking == Some(true) {
        return Err(Error::invalid(
            "late_chunking",
            "is not supported, must be false",
        ));
    }
    let (dtype, encoding) = format(&body)?;
    let (field, dimensions) = match body.output_dimension {
        Some(dimensions) => ("output_dimension", Some(dimensions)),
        None => ("dimensions", body.dimensions),
    };
    let (input_type, prompt_name) = prompt(model, &body)?;
    let cut = body.truncation.or(body.truncate);
    let mut truncation = options::cut_if(cut.unwrap_or(call.gateway.config.auto_truncate));
    truncation.side = options::side("truncation_side", body.truncation_side.as_deref())?.into();
    truncation.max_tokens = prompt_tokens(body.truncate_prompt_tokens)?;
    if body.truncate_prompt_tokens.is_some() {
        truncation.policy = options::cut().policy;
    }
    let normalization = match body.normalized {
        Some(true) => Normalization::L2,
        Some(false) => Normalization::None,
        None => Normalization::Unspecified,
    };
    let request = EmbedRequest {
        inputs: body.input.0,
        input_type: input_type.into(),
        prompt_name,
        truncation: Some(truncation),
        dimensions: options::dimensions(field, dimensions)?,
        dtype: dtype.into(),
        normalization: normalization.into(),
        priority: priority(&call.headers, body.priority)?,
        outputs: vec![OutputKind::Dense.into()],
        ..EmbedRequest::default()
    };
    Ok((request, encoding))
}

fn priority(headers: &HeaderMap, given: Option<i64>) -> Result<i32> {
    options::priority(headers, given).map(Into::into)
}

/// vLLM's `truncate_prompt_tokens`: a limit, or 0 for the model's own.
pub(super) fn prompt_tokens(given: Option<i64>) -> Result<u32> {
    match given {
        None | Some(-1) => Ok(0),
        Some(0 | i64::MIN..=-2) => {
            let message = format!("must be at least 1, or -1, is {}", given.unwrap_or(0));
            Err(Error::invalid("truncate_prompt_tokens", message))
        }
        Some(_) => options::count("truncate_prompt_tokens", given, 1),
    }
}

/// Type and encoding of the vectors, from the three fields that name them.
fn format(body: &EmbeddingsRequest) -> Result<(DType, Encoding)> {
    let mut format = (DType::DtypeFloat32, Encoding::Numbers);
    match body.encoding_format.as_deref() {
        None | Some("float") => {}
        Some("base64") => format.1 = Encoding::Base64,
        Some(other) => {
            let message = format!("must be float or base64, is {other:?}");
            return Err(Error::invalid("encoding_format", message));
        }
    }
    match body.embedding_type.as_deref() {
        None | Some("float") => {}
        Some("base64") => format.1 = Encoding::Base64,
        Some(other) => format.0 = dtype("embedding_type", other)?,
    }
    if let Some(name) = body.output_dtype.as_deref() {
        format.0 = dtype("output_dtype", name)?;
    }
    Ok(format)
}

/// Cohere, Jina and Voyage use the same names.
pub(super) fn dtype(field: &str, name: &str) -> Result<DType> {
    Ok(match name {
        "float" => DType::DtypeFloat32,
        "int8" => DType::DtypeInt8,
        "uint8" => DType::DtypeUint8,
        "binary" => DType::DtypeBinary,
        "ubinary" => DType::DtypeUbinary,
        other => {
            let message = format!("must be float, int8, uint8, binary or ubinary, is {other:?}");
            return Err(Error::invalid(field, message));
        }
    })
}

/// What the text is for: as a type, or as the name of one of the model's prompts.
fn prompt(model: &Model, body: &EmbeddingsRequest) -> Result<(InputType, String)> {
    if let Some(input_type) = body.input_type.as_deref() {
        return match input_type {
            "query" => Ok((InputType::Query, String::new())),
            "document" | "passage" => Ok((InputType::Document, String::new())),
            other => {
                let message = format!("must be query or document, is {other:?}");
                Err(Error::invalid("input_type", message))
            }
        };
    }
    let Some(task) = body.task.as_deref() else {
        return Ok((InputType::Unspecified, String::new()));
    };
    let template = model.info.template.as_ref();
    if template.is_some_and(|template| template.prompts.contains_key(task)) {
        return Ok((InputType::Unspecified, task.to_owned()));
    }
    Ok(match task {
        "retrieval.query" => (InputType::Query, String::new()),
        "retrieval.passage" => (InputType::Document, String::new()),
        // The other tasks choose adapters that only Jina's own models have.
        _ => (InputType::Unspecified, String::new()),
    })
}
