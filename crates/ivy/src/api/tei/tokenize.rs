//! TEI `POST /tokenize` and `/decode`.

use std::fmt;

use axum::response::Response;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use tulip_proto::quoted;
use utoipa::ToSchema;

use crate::api::call::{Call, Reply};
use crate::api::family::Family;
use crate::api::input::OneOrMany;
use crate::error::{Error, Result};

/// Texts to tokens.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct TokenizeBody {
    /// A string or a list of strings.
    #[schema(value_type = Vec<String>)]
    inputs: OneOrMany,
    /// True if absent.
    #[serde(default)]
    add_special_tokens: Option<bool>,
    /// One of the model's prompts.
    #[serde(default)]
    prompt_name: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SimpleToken {
    id: u32,
    text: String,
    special: bool,
    /// In characters of the text with its prompt; absent for special tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop: Option<usize>,
}

/// Token ids to texts.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct DecodeBody {
    /// A list of token ids, or a list of such lists.
    #[schema(value_type = Vec<Vec<u32>>)]
    ids: IdLists,
    /// True if absent.
    #[serde(default)]
    skip_special_tokens: Option<bool>,
}

#[derive(Debug)]
struct IdLists(Vec<Vec<u32>>);

#[derive(Deserialize)]
#[serde(untagged)]
enum IdEntry {
    Id(u32),
    Ids(Vec<u32>),
}

struct IdListsVisitor;

impl<'de> Visitor<'de> for IdListsVisitor {
    type Value = IdLists;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of token ids or a list of such lists")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<IdLists, A::Error> {
        let (mut ids, mut lists) = (Vec::new(), Vec::new());
        while let Some(entry) = sequence.next_element()? {
            match entry {
                IdEntry::Id(id) => ids.push(id),
                IdEntry::Ids(list) => lists.push(list),
            }
        }
        if !ids.is_empty() && !lists.is_empty() {
            return Err(de::Error::custom("must hold token ids or lists, not both"));
        }
        if !ids.is_empty() {
            lists.push(ids);
        }
        Ok(IdLists(lists))
    }
}

impl<'de> Deserialize<'de> for IdLists {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IdListsVisitor)
    }
}

/// The tokens of texts (TEI).
#[utoipa::path(
    post, path = "/tokenize", tag = "TEI", request_body = TokenizeBody,
    responses((status = 200, body = Vec<Vec<SimpleToken>>))
)]
pub(crate) async fn tokenize(call: Call) -> Response {
    let outcome = tokens(&call).await;
    call.respond(Family::Tei, outcome)
}

async fn tokens(call: &Call) -> Result<Reply> {
    let body: TokenizeBody = call.json().await?;
    let texts = body.inputs.into_vec();
    call.gateway.check_count("inputs", texts.len())?;
    let model = call.gateway.model("")?;
    let prompt = match &body.prompt_name {
        None => String::new(),
        Some(name) => {
            let template = model.info.template.as_ref();
            let prompt = template.and_then(|template| template.prompts.get(name));
            prompt.cloned().ok_or_else(|| {
                let message = format!("{} is no prompt of this model", quoted(name));
                Error::invalid("prompt_name", message)
            })?
        }
    };
    let add_special_tokens = body.add_special_tokens.unwrap_or(true);
    let tokenized = on_pool(call, move || {
        let tokenizer = model.inspector()?;
        let texts = texts.iter().enumerate().map(|(index, text)| {
            let text = [&*prompt, text].concat();
            let tokens = tokenizer.inspect(&text, add_special_tokens);
            let tokens = tokens
                .map_err(|error| Error::invalid(format!("inputs[{index}]"), error.to_string()))?;
            let tokens = tokens.into_iter().map(|token| SimpleToken {
                id: token.id,
                text: token.text,
                special: token.special,
                start: token.characters.as_ref().map(|range| range.start),
                stop: token.characters.as_ref().map(|range| range.end),
            });
            Ok(tokens.collect::<Vec<_>>())
        });
        texts.collect::<Result<Vec<_>>>()
    })
    .await?;
    Reply::plain(&tokenized)
}

/// The texts of token ids (TEI).
#[utoipa::path(
    post, path = "/decode", tag = "TEI", request_body = DecodeBody,
    responses((status = 200, body = Vec<String>))
)]
pub(crate) async fn decode(call: Call) -> Response {
    let outcome = texts(&call).await;
    call.respond(Family::Tei, outcome)
}

async fn texts(call: &Call) -> Result<Reply> {
    let body: DecodeBody = call.json().await?;
    let lists = body.ids.0;
    call.gateway.check_count("ids", lists.len())?;
    let model = call.gateway.model("")?;
    let skip_special_tokens = body.skip_special_tokens.unwrap_or(true);
    let decoded = on_pool(call, move || {
        let tokenizer = model.inspector()?;
        let texts = lists.iter().enumerate().map(|(index, ids)| {
            let text = tokenizer.decode(ids, skip_special_tokens);
            text.map_err(|error| Error::invalid(format!("ids[{index}]"), error.to_string()))
        });
        texts.collect::<Result<Vec<_>>>()
    })
    .await?;
    Reply::plain(&decoded)
}

/// Loading the tokenizer for the first time takes a while, and texts may be long.
async fn on_pool<T: Send + 'static>(
    call: &Call,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::time::timeout_at(call.deadline()?, call.gateway.pool.run(work)).await;
    let done = done.map_err(|_| Error::DeadlineExceeded("deadline exceeded".into()))?;
    done.map_err(|error| Error::Unavailable(error.to_string()))?
}
