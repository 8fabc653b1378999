//! TEI `POST /rerank`; with `documents` in place of `texts` it is vLLM's.

use axum::response::Response;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use tulip_proto::v1::ScoreRequest;
use utoipa::ToSchema;

use crate::api::call::{Call, Reply};
use crate::api::family::Family;
use crate::api::input::text;
use crate::api::meta::TokenUsage;
use crate::api::options;
use crate::api::vllm::{Limits, MAX_TOKENS, truncation as vllm_truncation};
use crate::error::{Error, Result};
use crate::job::{Names, ScoreJob};

/// The union of TEI's request and vLLM's.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct RerankBody {
    query: String,
    /// TEI: what is ranked.
    #[serde(default)]
    texts: Option<Vec<String>>,
    /// TEI: whether over-long texts are cut; false makes them errors.
    #[serde(default)]
    truncate: Option<bool>,
    /// TEI: the side that is cut, `left` or `right`.
    #[serde(default)]
    truncation_direction: Option<String>,
    /// TEI: the model's own numbers instead of scores from 0 to 1.
    #[serde(default)]
    raw_scores: bool,
    /// TEI: results carry their text.
    #[serde(default)]
    return_text: bool,
    /// vLLM: what is ranked, in place of `texts`.
    #[serde(default)]
    documents: Option<Vec<String>>,
    /// vLLM: any name is accepted where one model is served.
    #[serde(default)]
    model: Option<String>,
    /// vLLM: how many results; 0 or absent = all.
    #[serde(default)]
    top_n: Option<i64>,
    #[serde(default)]
    truncate_prompt_tokens: Option<i64>,
    #[serde(default)]
    truncation_side: Option<String>,
    #[serde(default)]
    max_tokens_per_query: Option<i64>,
    #[serde(default)]
    max_tokens_per_doc: Option<i64>,
    #[serde(default)]
    priority: Option<i64>,
    #[serde(default)]
    use_activation: Option<bool>,
    #[serde(default)]
    instruction: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Rank {
    index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    score: f32,
}

#[derive(Debug, Serialize, ToSchema)]
struct VllmRerank<'a> {
    id: String,
    model: &'a str,
    usage: TokenUsage,
    results: Vec<VllmRank>,
}

#[derive(Debug, Serialize, ToSchema)]
struct VllmRank {
    index: u32,
    document: VllmDocument,
    relevance_score: f32,
}

#[derive(Debug, Serialize, ToSchema)]
struct VllmDocument {
    text: String,
}

/// To `texts`, or to `documents`.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
enum TextsAnswer<'a> {
    Tei(Vec<Rank>),
    Vllm(VllmRerank<'a>),
}

#[derive(Debug, Deserialize)]
struct Keys {
    #[serde(default)]
    texts: Option<IgnoredAny>,
    #[serde(default)]
    documents: Option<IgnoredAny>,
}

/// Texts in order of relevance (TEI, vLLM).
#[utoipa::path(
    post, path = "/rerank", tag = "TEI", request_body = RerankBody,
    responses((status = 200, body = TextsAnswer<'static>))
)]
pub(crate) async fn rerank(call: Call) -> Response {
    match call.json::<RerankBody>().await {
        Ok(mut body) => match (body.texts.take(), body.documents.take()) {
            (None, Some(documents)) => {
                let outcome = answer_vllm(&call, body, documents).await;
                call.respond(Family::Vllm, outcome)
            }
            (texts, _) => {
                let outcome = answer_tei(&call, body, texts).await;
                call.respond(Family::Tei, outcome)
            }
        },
        Err(error) => {
            let family = match call.peek::<Keys>() {
                Some(keys) if keys.texts.is_none() && keys.documents.is_some() => Family::Vllm,
                _ => Family::Tei,
            };
            call.respond(family, Err(error))
        }
    }
}

async fn answer_tei(call: &Call, body: RerankBody, texts: Option<Vec<String>>) -> Result<Reply> {
    let texts = texts.ok_or_else(|| Error::invalid("texts", "is missing"))?;
    if body.query.is_empty() {
        return Err(Error::empty("query"));
    }
    let direction = body.truncation_direction.as_deref();
    let truncation = super::truncation(call, body.truncate, direction)?;
    let mut returned = if body.return_text {
        texts.clone()
    } else {
        Vec::new()
    };
    let job = ScoreJob {
        model: call.model(body.model.as_deref())?,
        request: ScoreRequest {
            query: Some(text(body.query)),
            documents: texts.into_iter().map(text).collect(),
            strict: options::refuses(&truncation),
            truncation: Some(truncation),
            raw_scores: body.raw_scores,
            priority: options::priority(&call.headers, None)?.into(),
            ..ScoreRequest::default()
        },
        names: Names::list("texts"),
    };
    let scored = call.score(job).await?;
    let ranks = scored.ranked().map(|(index, score)| Rank {
        index,
        text: returned.get_mut(index as usize).map(std::mem::take),
        score,
    });
    Reply::with_report(&TextsAnswer::Tei(ranks.collect()), scored.report)
}

async fn answer_vllm(call: &Call, body: RerankBody, documents: Vec<String>) -> Result<Reply> {
    let model = call.model(body.model.as_deref())?;
    let truncation = vllm_truncation(&Limits {
        truncate_prompt_tokens: body.truncate_prompt_tokens,
        truncation_side: body.truncation_side.as_deref(),
        max_tokens_per_query: body.max_tokens_per_query,
        max_tokens_per_doc: body.max_tokens_per_doc,
    })?;
    let job = ScoreJob {
        model: model.clone(),
        request: ScoreRequest {
            query: Some(text(body.query)),
            documents: documents.iter().map(text).collect(),
            instruction: body.instruction.unwrap_or_default(),
            strict: options::refuses(&truncation),
            truncation: Some(truncation),
            raw_scores: body.use_activation == Some(false),
            top_n: options::count("top_n", body.top_n, 0)?,
            priority: options::priority(&call.headers, body.priority)?.into(),
            ..ScoreRequest::default()
        },
        names: Names {
            items: "documents",
            others: &[MAX_TOKENS],
        },
    };
    let scored = call.score(job).await?;
    let mut documents = documents;
    let results = scored.ranked().map(|(index, score)| VllmRank {
        index,
        document: VllmDocument {
            text: std::mem::take(&mut documents[index as usize]),
        },
        relevance_score: score,
    });
    let response = TextsAnswer::Vllm(VllmRerank {
        id: format!("rerank-{}", call.arrival.request_id),
        model: model.name(),
        usage: TokenUsage::of(&scored.report),
        results: results.collect(),
    });
    Reply::with_report(&response, scored.report)
}
