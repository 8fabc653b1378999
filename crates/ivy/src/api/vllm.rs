//! vLLM `POST /score` and `/v1/score`: pairs of texts, scores in request order.

use axum::response::Response;
use serde::{Deserialize, Serialize};
use tulip_proto::v1::{ScoreRequest, Truncation};
use utoipa::ToSchema;

use super::call::{Call, Reply};
use super::family::Family;
use super::input::{OneOrMany, text};
use super::meta::TokenUsage;
use super::openai::prompt_tokens;
use super::options;
use crate::error::{Error, Result};
use crate::job::{Names, ScoreJob};

/// One text against many, or pairs in two lists of the same length.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ScoreBody {
    /// Any name is accepted where one model is served.
    #[serde(default)]
    model: Option<String>,
    /// A string or a list of strings; with `text_2`.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    text_1: Option<OneOrMany>,
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    text_2: Option<OneOrMany>,
    /// Another name for `text_1`; with `data_2`.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    data_1: Option<OneOrMany>,
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    data_2: Option<OneOrMany>,
    /// Another name for `text_1`; with `documents` or `items`.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    queries: Option<OneOrMany>,
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    documents: Option<OneOrMany>,
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    items: Option<OneOrMany>,
    #[serde(default)]
    truncate_prompt_tokens: Option<i64>,
    /// `left` or `right`.
    #[serde(default)]
    truncation_side: Option<String>,
    #[serde(default)]
    max_tokens_per_query: Option<i64>,
    #[serde(default)]
    max_tokens_per_doc: Option<i64>,
    /// 0 goes first.
    #[serde(default)]
    priority: Option<i64>,
    /// False gives the model's own numbers.
    #[serde(default)]
    use_activation: Option<bool>,
    /// Fills the instruction of the model's template.
    #[serde(default)]
    instruction: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ScoreAnswer<'a> {
    id: String,
    object: &'static str,
    created: u64,
    model: &'a str,
    data: Vec<ScoreEntry>,
    usage: TokenUsage,
}

#[derive(Debug, Serialize, ToSchema)]
struct ScoreEntry {
    index: usize,
    object: &'static str,
    score: f32,
}

/// Scores of pairs of texts (vLLM).
#[utoipa::path(
    post, path = "/v1/score", tag = "vLLM", request_body = ScoreBody,
    responses((status = 200, body = ScoreAnswer<'static>))
)]
pub(crate) async fn score(call: Call) -> Response {
    let outcome = answer(&call).await;
    call.respond(Family::Vllm, outcome)
}

async fn answer(call: &Call) -> Result<Reply> {
    let mut body: ScoreBody = call.json().await?;
    let model = call.model(body.model.as_deref())?;
    let ((first, firsts), (second, seconds)) = sides(&mut body)?;
    call.gateway.check_count(second, seconds.len())?;
    let truncation = truncation(&Limits {
        truncate_prompt_tokens: body.truncate_prompt_tokens,
        truncation_side: body.truncation_side.as_deref(),
        max_tokens_per_query: body.max_tokens_per_query,
        max_tokens_per_doc: body.max_tokens_per_doc,
    })?;
    let template = ScoreRequest {
        instruction: body.instruction.unwrap_or_default(),
        truncation: Some(truncation),
        raw_scores: body.use_activation == Some(false),
        priority: options::priority(&call.headers, body.priority)?.into(),
        // Scores are matched to texts by place.
        strict: true,
        ..ScoreRequest::default()
    };
    let job = |query: String, documents: Vec<String>| ScoreJob {
        model: model.clone(),
        request: ScoreRequest {
            query: Some(text(query)),
            documents: documents.into_iter().map(text).collect(),
            ..template.clone()
        },
        names: Names {
            items: second,
            others: if first == "queries" {
                &QUERIES
            } else {
                &FIRST_TEXT
            },
        },
    };
    let jobs = match firsts {
        OneOrMany::One(query) => vec![job(query, seconds)],
        OneOrMany::Many(queries) if queries.len() == 1 => queries
            .into_iter()
            .map(|query| job(query, seconds.clone()))
            .collect(),
        OneOrMany::Many(queries) if queries.len() == seconds.len() => grouped(queries, seconds)
            .into_iter()
            .map(|(query, documents)| job(query, documents))
            .collect(),
        OneOrMany::Many(queries) => {
            let message = format!(
                "has {} entries and {second} has {}: must be 1:1, 1:N or N:N",
                queries.len(),
                seconds.len()
            );
            return Err(Error::invalid(first, message));
        }
    };
    let scored = call.score_each(jobs).await?;
    let entries = scored.scores.into_iter().enumerate();
    let response = ScoreAnswer {
        id: format!("score-{}", call.arrival.request_id),
        object: "list",
        created: now(),
        model: model.name(),
        data: entries
            .map(|(index, score)| ScoreEntry {
                index,
                object: "score",
                score,
            })
            .collect(),
        usage: TokenUsage::of(&scored.report),
    };
    Reply::with_report(&response, scored.report)
}

const QUERIES: [(&str, &str); 2] = [("query", "queries"), MAX_TOKENS];
const FIRST_TEXT: [(&str, &str); 2] = [("query", "text_1"), MAX_TOKENS];
/// Our name of a limit, and vLLM's.
pub(super) const MAX_TOKENS: (&str, &str) = ("truncation.max_tokens", "truncate_prompt_tokens");

/// Seconds since the epoch.
fn now() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

type Side<T> = (&'static str, T);

/// The two sides under whichever names they came.
fn sides(body: &mut ScoreBody) -> Result<(Side<OneOrMany>, Side<Vec<String>>)> {
    let second = match body.documents.take() {
        Some(documents) => ("documents", Some(documents)),
        None => ("items", body.items.take()),
    };
    let candidates = [
        (
            ("text_1", body.text_1.take()),
            ("text_2", body.text_2.take()),
        ),
        (
            ("data_1", body.data_1.take()),
            ("data_2", body.data_2.take()),
        ),
        (("queries", body.queries.take()), second),
    ];
    let mut found = None;
    for ((first, left), (second, right)) in candidates {
        match (left, right) {
            (None, None) => {}
            (Some(_), None) => return Err(Error::invalid(second, "is missing")),
            (None, Some(_)) => return Err(Error::invalid(first, "is missing")),
            (Some(_), Some(_)) if found.is_some() => {
                let message = "must not be given beside another pair of lists";
                return Err(Error::invalid(first, message));
            }
            (Some(left), Some(right)) => {
                found = Some(((first, left), (second, right.into_vec())));
            }
        }
    }
    found.ok_or_else(|| {
        let message = "is missing: give text_1 and text_2, or queries and documents";
        Error::invalid("text_1", message)
    })
}

/// Neighbouring pairs with the same first text are one request.
fn grouped(queries: Vec<String>, documents: Vec<String>) -> Vec<(String, Vec<String>)> {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for (query, document) in queries.into_iter().zip(documents) {
        match groups.last_mut() {
            Some((last, documents)) if *last == query => documents.push(document),
            _ => groups.push((query, vec![document])),
        }
    }
    groups
}

/// The fields of `/score` and `/rerank` that bound lengths.
pub(super) struct Limits<'a> {
    pub(super) truncate_prompt_tokens: Option<i64>,
    pub(super) truncation_side: Option<&'a str>,
    pub(super) max_tokens_per_query: Option<i64>,
    pub(super) max_tokens_per_doc: Option<i64>,
}

/// Over-long inputs are errors unless the request names any limit of its own.
pub(super) fn truncation(limits: &Limits<'_>) -> Result<Truncation> {
    let max_query_tokens = options::count("max_tokens_per_query", limits.max_tokens_per_query, 0)?;
    let max_document_tokens = options::count("max_tokens_per_doc", limits.max_tokens_per_doc, 0)?;
    let may_cut =
        limits.truncate_prompt_tokens.is_some() || max_query_tokens > 0 || max_document_tokens > 0;
    Ok(Truncation {
        side: options::side("truncation_side", limits.truncation_side)?.into(),
        max_tokens: prompt_tokens(limits.truncate_prompt_tokens)?,
        max_query_tokens,
        max_document_tokens,
        ..options::cut_if(may_cut)
    })
}
