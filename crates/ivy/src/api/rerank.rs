//! `POST /v1/rerank`: Cohere's first version, Jina and Voyage share the path.
//!
//! The answer is the superset of Cohere's and Jina's. Voyage's differs in the names of its lists,
//! so its requests are told by the fields that only they have; its client always sends one.

use axum::response::Response;
use http::HeaderMap;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tulip_proto::v1::ScoreRequest;
use utoipa::ToSchema;

use super::call::{Call, Reply};
use super::cohere_rerank::DEFAULT_MAX_TOKENS_PER_DOC;
use super::family::Family;
use super::input::{Document, text};
use super::meta::{Meta, TokenUsage};
use super::options;
use crate::error::{Error, Result};
use crate::job::{Names, ScoreJob};

/// The union of the three requests.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct RerankRequest {
    /// Any name is accepted where one model is served.
    #[serde(default)]
    model: Option<String>,
    /// A text, or `{"text": …}`.
    #[schema(value_type = String)]
    query: Document,
    /// Texts, or objects with a `text` or with the fields of `rank_fields`.
    #[schema(value_type = Vec<String>)]
    documents: Vec<Document>,
    /// How many results; all if absent.
    #[serde(default)]
    top_n: Option<i64>,
    /// The same, as Voyage calls it.
    #[serde(default)]
    top_k: Option<i64>,
    /// Whether results carry their document: Jina's default is true, Cohere's and Voyage's false.
    #[serde(default)]
    return_documents: Option<bool>,
    /// Cohere: the fields of object documents that are read.
    #[serde(default)]
    rank_fields: Option<Vec<String>>,
    /// Cohere: accepted; documents are not split here.
    #[serde(default)]
    max_chunks_per_doc: Option<i64>,
    /// Longer documents are cut and reported in `meta.warnings`.
    #[serde(default)]
    max_tokens_per_doc: Option<i64>,
    /// Voyage: whether over-long inputs are cut; false makes them errors.
    #[serde(default)]
    truncation: Option<bool>,
    /// 0 goes first.
    #[serde(default)]
    priority: Option<i64>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RerankResponse<'a> {
    id: &'a str,
    model: &'a str,
    results: Vec<RerankResult>,
    meta: Meta,
    usage: TokenUsage,
}

#[derive(Debug, Serialize, ToSchema)]
struct VoyageResponse<'a> {
    object: &'static str,
    data: Vec<RerankResult>,
    model: &'a str,
    usage: TokenUsage,
}

/// By whose request it is.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
enum RerankAnswer<'a> {
    Jina(RerankResponse<'a>),
    Voyage(VoyageResponse<'a>),
}

#[derive(Debug, Serialize, ToSchema)]
struct RerankResult {
    index: u32,
    relevance_score: f32,
    /// The document, as Voyage returns it a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<Returned>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
enum Returned {
    #[schema(value_type = Object)]
    Object(Map<String, Value>),
    Text(String),
}

/// The keys that tell whose request it is.
#[derive(Debug, Deserialize)]
struct Keys {
    #[serde(default)]
    top_k: Option<IgnoredAny>,
    #[serde(default)]
    truncation: Option<IgnoredAny>,
    #[serde(default)]
    rank_fields: Option<IgnoredAny>,
    #[serde(default)]
    max_chunks_per_doc: Option<IgnoredAny>,
}

/// Documents in order of relevance (Cohere version 1, Jina, Voyage).
#[utoipa::path(
    post, path = "/v1/rerank", tag = "Jina", request_body = RerankRequest,
    responses((status = 200, body = RerankAnswer<'static>))
)]
pub(crate) async fn rerank_v1(call: Call) -> Response {
    match call.json::<RerankRequest>().await {
        Ok(body) => {
            let keys = Keys {
                top_k: body.top_k.map(|_| IgnoredAny),
                truncation: body.truncation.map(|_| IgnoredAny),
                rank_fields: body.rank_fields.as_ref().map(|_| IgnoredAny),
                max_chunks_per_doc: body.max_chunks_per_doc.map(|_| IgnoredAny),
            };
            let family = family(&call.headers, Some(&keys));
            let outcome = answer(&call, family, body).await;
            call.respond(family, outcome)
        }
        Err(error) => {
            let family = family(&call.headers, call.peek::<Keys>().as_ref());
            call.respond(family, Err(error))
        }
    }
}

fn family(headers: &HeaderMap, keys: Option<&Keys>) -> Family {
    let is = |name: &str| {
        let sdk = headers.get("x-fern-sdk-name");
        sdk.is_some_and(|sdk| sdk.as_bytes().eq_ignore_ascii_case(name.as_bytes()))
    };
    match keys {
        _ if is("cohere") || headers.contains_key("x-client-name") => Family::Cohere,
        Some(keys) if keys.rank_fields.is_some() || keys.max_chunks_per_doc.is_some() => {
            Family::Cohere
        }
        Some(keys) if keys.top_k.is_some() || keys.truncation.is_some() => Family::Voyage,
        _ => Family::Jina,
    }
}

async fn answer(call: &Call, family: Family, body: RerankRequest) -> Result<Reply> {
    let rank_fields = body.rank_fields.unwrap_or_default();
    let query = body.query.read(&[]);
    let query = query.map_err(|message| Error::invalid("query", message))?;
    if family == Family::Cohere && query.trim().is_empty() {
        return Err(Error::empty("query"));
    }
    let mut documents = Vec::with_capacity(body.documents.len());
    for (index, document) in body.documents.iter().enumerate() {
        let read = document.read(&rank_fields);
        let at = |message| Error::invalid(format!("documents[{index}]"), message);
        documents.push(text(read.map_err(at)?));
    }
    let mut truncation = options::cut_if(body.truncation.unwrap_or(true));
    let default_max_tokens = (family == Family::Cohere).then_some(DEFAULT_MAX_TOKENS_PER_DOC);
    let max_tokens = body.max_tokens_per_doc.or(default_max_tokens);
    truncation.max_document_tokens = options::count("max_tokens_per_doc", max_tokens, 1)?;
    let top_n = match body.top_k {
        Some(top_k) => options::count("top_k", Some(top_k), 1)?,
        None => options::count("top_n", body.top_n, 1)?,
    };
    let model = call.model(body.model.as_deref())?;
    let job = ScoreJob {
        model: model.clone(),
        request: ScoreRequest {
            query: Some(text(query)),
            documents,
            strict: options::refuses(&truncation),
            truncation: Some(truncation),
            top_n,
            priority: options::priority(&call.headers, body.priority)?.into(),
            ..ScoreRequest::default()
        },
        names: Names::list("documents"),
    };
    let scored = call.score(job).await?;
    let return_documents = body.return_documents.unwrap_or(family == Family::Jina);
    // Each index comes once at the most.
    let mut returned: Vec<Option<Document>> = if return_documents {
        body.documents.into_iter().map(Some).collect()
    } else {
        Vec::new()
    };
    let mut document = |index: u32| {
        let document = returned.get_mut(index as usize)?.take()?;
        Some(match document {
            Document::Text(text) if family == Family::Voyage => Returned::Text(text),
            other => Returned::Object(other.into_object()),
        })
    };
    let results = scored.ranked().map(|(index, score)| RerankResult {
        index,
        relevance_score: score,
        document: document(index),
    });
    let results = results.collect();
    let usage = TokenUsage::of(&scored.report);
    if family == Family::Voyage {
        let response = RerankAnswer::Voyage(VoyageResponse {
            object: "list",
            data: results,
            model: model.name(),
            usage,
        });
        return Reply::with_report(&response, scored.report);
    }
    let response = RerankAnswer::Jina(RerankResponse {
        id: &call.arrival.request_id,
        model: model.name(),
        results,
        meta: Meta::of_rerank("1", &scored.report),
        usage,
    });
    Reply::with_report(&response, scored.report)
}
