//! TEI `POST /predict`: labels of texts and of pairs of texts.

use std::fmt;

use axum::response::Response;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use tulip_proto::v1::{Input, ScoreRequest, Task, TokenIdsForm, TokenizeRequest, input};
use utoipa::ToSchema;

use crate::api::call::{Call, Reply};
use crate::api::family::Family;
use crate::api::input::text;
use crate::api::options;
use crate::error::{Error, Result, at_field};
use crate::job::{Names, ScoreJob};
use crate::model::Model;

/// Texts or pairs to labels.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct PredictBody {
    /// A text, a pair `[a, b]`, or a batch `[[a], [a, b]]`.
    #[schema(value_type = Vec<Vec<String>>)]
    inputs: PredictInputs,
    #[serde(default)]
    truncate: Option<bool>,
    /// The side that is cut, `left` or `right`.
    #[serde(default)]
    truncation_direction: Option<String>,
    /// The model's own numbers instead of probabilities.
    #[serde(default)]
    raw_scores: bool,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Prediction {
    score: f32,
    label: String,
}

/// Labels of the only sequence, or of each of a batch.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
enum Predictions {
    One(Vec<Prediction>),
    Batch(Vec<Vec<Prediction>>),
}

/// One text, or two that are read together.
type Sequence = (String, Option<String>);

#[derive(Debug)]
struct PredictInputs {
    sequences: Vec<Sequence>,
    batch: bool,
}

enum Entry {
    Text(String),
    Sequence(Vec<String>),
}

struct EntryVisitor;

impl<'de> Visitor<'de> for EntryVisitor {
    type Value = Entry;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string or a list of one or two strings")
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Entry, E> {
        Ok(Entry::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Entry, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = sequence.next_element()? {
            texts.push(text);
        }
        Ok(Entry::Sequence(texts))
    }
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(EntryVisitor)
    }
}

struct InputsVisitor;

impl<'de> Visitor<'de> for InputsVisitor {
    type Value = PredictInputs;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string, a pair of strings, or a list of those in lists")
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<PredictInputs, E> {
        Ok(PredictInputs {
            sequences: vec![(value.to_owned(), None)],
            batch: false,
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<PredictInputs, A::Error> {
        let mut texts = Vec::new();
        let mut sequences = Vec::new();
        while let Some(entry) = sequence.next_element()? {
            match entry {
                Entry::Text(text) => texts.push(text),
                Entry::Sequence(texts) => sequences.push(one_or_two(texts)?),
            }
        }
        match (texts.is_empty(), sequences.is_empty()) {
            (false, false) => Err(de::Error::custom("must hold strings or lists, not both")),
            (false, true) => Ok(PredictInputs {
                sequences: vec![one_or_two(texts)?],
                batch: false,
            }),
            (true, _) => Ok(PredictInputs {
                sequences,
                batch: true,
            }),
        }
    }
}

fn one_or_two<E: de::Error>(texts: Vec<String>) -> Result<Sequence, E> {
    let count = texts.len();
    let mut texts = texts.into_iter();
    match (texts.next(), texts.next(), texts.next()) {
        (Some(one), second, None) => Ok((one, second)),
        _ => Err(E::invalid_length(count, &"one or two strings")),
    }
}

impl<'de> Deserialize<'de> for PredictInputs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(InputsVisitor)
    }
}

/// Labels of texts and pairs, best first (TEI).
#[utoipa::path(
    post, path = "/predict", tag = "TEI", request_body = PredictBody,
    responses((status = 200, body = Predictions))
)]
pub(crate) async fn predict(call: Call) -> Response {
    let outcome = answer(&call).await;
    call.respond(Family::Tei, outcome)
}

async fn answer(call: &Call) -> Result<Reply> {
    let body: PredictBody = call.json().await?;
    let PredictInputs { sequences, batch } = body.inputs;
    call.gateway.check_count("inputs", sequences.len())?;
    let model = call.gateway.model("")?;
    if model.task() == Task::Embed {
        let message = format!("{} gives vectors, not labels", model.name());
        return Err(Error::WrongTask(message));
    }
    let direction = body.truncation_direction.as_deref();
    let truncation = super::truncation(call, body.truncate, direction)?;
    let several = model.info.labels.len() > 1;
    let template = ScoreRequest {
        truncation: Some(truncation),
        raw_scores: body.raw_scores,
        priority: options::priority(&call.headers, None)?.into(),
        all_labels: several,
        strict: true,
        ..ScoreRequest::default()
    };
    let singles = read_alone(call, &model, &sequences, &template).await?;
    let jobs = jobs(&model, sequences, singles, &template);
    let scored = call.score_each(jobs).await?;
    let predictions: Vec<Vec<Prediction>> = if several {
        let rows = scored.label_scores.chunks(model.info.labels.len());
        rows.map(|row| labelled(&model, row)).collect()
    } else {
        let scores = scored.scores.chunks(1);
        scores.map(|row| labelled(&model, row)).collect()
    };
    let values = predictions.len() * model.info.labels.len().max(1) * 4;
    let answer = if batch {
        Predictions::Batch(predictions)
    } else {
        Predictions::One(predictions.into_iter().next().unwrap_or_default())
    };
    Reply::large(&call.gateway, answer, values, scored.report).await
}

/// Labels with their scores, best first, ties by the label's index.
fn labelled(model: &Model, row: &[f32]) -> Vec<Prediction> {
    let labels = &model.info.labels;
    let predictions = row.iter().enumerate().map(|(index, &score)| Prediction {
        score,
        label: labels
            .get(index)
            .cloned()
            .unwrap_or_else(|| format!("LABEL_{index}")),
    });
    let mut predictions: Vec<Prediction> = predictions.collect();
    predictions.sort_by(|a, b| b.score.total_cmp(&a.score));
    predictions
}

/// The sequences of the texts that stand alone: `Score` reads a text without a query only as the
/// model's own tokens.
async fn read_alone(
    call: &Call,
    model: &Model,
    sequences: &[Sequence],
    template: &ScoreRequest,
) -> Result<Vec<Input>> {
    let alone = sequences.iter().filter(|(_, second)| second.is_none());
    let inputs: Vec<Input> = alone.map(|(one, _)| text(one)).collect();
    if inputs.is_empty() {
        return Ok(Vec::new());
    }
    let request = TokenizeRequest {
        model: model.name().to_owned(),
        inputs,
        truncation: template.truncation,
        ..TokenizeRequest::default()
    };
    let answered = call
        .gateway
        .backend
        .tokenize(request, call.deadline()?)
        .await;
    let answer = answered.map_err(Error::from)?;
    if let Some(error) = answer.item_errors.first() {
        return Err(at_field(&error.message));
    }
    let inputs = answer.sequences.into_iter().map(|sequence| Input {
        content: Some(input::Content::TokenIds(sequence.token_ids)),
        form: TokenIdsForm::Sequence.into(),
        second_segment_start: sequence.second_segment_start,
    });
    Ok(inputs.collect())
}

/// Neighbours that can be asked for together are: texts alone, and pairs with the same first text.
fn jobs(
    model: &std::sync::Arc<Model>,
    sequences: Vec<Sequence>,
    singles: Vec<Input>,
    template: &ScoreRequest,
) -> Vec<ScoreJob> {
    let mut singles = singles.into_iter();
    let mut jobs: Vec<(Option<String>, Vec<Input>)> = Vec::new();
    for (first, second) in sequences {
        let (query, document) = match second {
            Some(second) => (Some(first), Some(text(second))),
            None => (None, singles.next()),
        };
        match jobs.last_mut() {
            Some((last, documents)) if *last == query => documents.extend(document),
            _ => jobs.push((query, document.into_iter().collect())),
        }
    }
    let requests = jobs.into_iter().map(|(query, documents)| ScoreRequest {
        query: query.map(text),
        documents,
        ..template.clone()
    });
    requests
        .map(|request| ScoreJob {
            model: std::sync::Arc::clone(model),
            request,
            names: Names {
                items: "inputs",
                others: &[("query", "inputs")],
            },
        })
        .collect()
}
