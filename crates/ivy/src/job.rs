//! The two jobs in which every dialect ends: score and embed.

use std::sync::Arc;

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use tokio::time::{Instant, timeout_at};
use tulip_proto::v1::{
    EmbedRequest, EmbedResponse, ErrorReason, Input, ItemError, OutputKind, ScoreRequest,
    SparseVectors, Tensor, TokenVectors, input,
};

use crate::api::report::Report;
use crate::encode::{encode_embed, encode_score};
use crate::error::{Error, Result, at_field};
use crate::gateway::Gateway;
use crate::model::Model;

/// Calls of one request that run at the same time, where it takes several.
const CALLS_AT_ONCE: usize = 32;

/// What the client calls the parts of its request, for error messages: the list of documents or
/// inputs, and pairs of our name and its name for other fields.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Names {
    pub(crate) items: &'static str,
    pub(crate) others: &'static [(&'static str, &'static str)],
}

impl Names {
    /// Only the list has a name of the client's own.
    pub(crate) const fn list(items: &'static str) -> Self {
        Self { items, others: &[] }
    }

    fn rename(&self, wire_items: &str, error: Error) -> Error {
        let renamed = error.renamed(wire_items, self.items);
        let others = self.others.iter();
        others.fold(renamed, |error, (wire, client)| error.renamed(wire, client))
    }
}

/// One query against documents.
#[derive(Debug, Clone)]
pub(crate) struct ScoreJob {
    pub(crate) model: Arc<Model>,
    pub(crate) request: ScoreRequest,
    pub(crate) names: Names,
}

/// What became of the documents, by request order.
#[derive(Debug, Default)]
pub(crate) struct Scored {
    /// One for each document; 0 where it failed.
    pub(crate) scores: Vec<f32>,
    /// Best first, ties by index, failed documents left out.
    pub(crate) ranking: Vec<u32>,
    /// `[documents, labels]`, when all labels were asked for.
    pub(crate) label_scores: Vec<f32>,
    pub(crate) report: Report,
}

impl Scored {
    /// Index and score of each document in the ranking, best first.
    pub(crate) fn ranked(&self) -> impl Iterator<Item = (u32, f32)> {
        let ranking = self.ranking.iter();
        ranking.map(|&index| (index, self.scores[index as usize]))
    }
}

/// Inputs to vectors.
#[derive(Debug, Clone)]
pub(crate) struct EmbedJob {
    pub(crate) model: Arc<Model>,
    pub(crate) request: EmbedRequest,
    pub(crate) names: Names,
}

/// Vectors in request order, in the kind that was asked for.
#[derive(Debug, Default)]
pub(crate) struct Embedded {
    pub(crate) dense: Tensor,
    pub(crate) sparse: SparseVectors,
    pub(crate) tokens: TokenVectors,
    pub(crate) report: Report,
}

impl Gateway {
    /// Answers a score job.
    pub(crate) async fn score(&self, job: ScoreJob, deadline: Instant) -> Result<Scored> {
        let ScoreJob {
            model,
            mut request,
            names,
        } = job;
        let items = request.documents.len();
        self.check_count(names.items, items)?;
        request.model = model.name().to_owned();
        let characters = characters(request.query.iter().chain(&request.documents));
        let rename = |error: Error| names.rename("documents", error);
        let begun = Instant::now();
        let encode = encode_score(&model, &self.pool, &mut request);
        let cuts = timeout_at(deadline, encode).await.map_err(|_| late())?;
        let gateway_tokenize = begun.elapsed();
        let answered = self.backend.score(request, deadline).await;
        let mut answer = answered.map_err(|status| rename(status.into()))?;
        if answer.scores.len() != items {
            let message = format!("{} scores for {items} documents", answer.scores.len());
            return Err(Error::Internal(message));
        }
        if let Some(index) = answer.ranking.iter().find(|&&at| at as usize >= items) {
            let message = format!("ranking names document {index} of {items}");
            return Err(Error::Internal(message));
        }
        for error in &mut answer.item_errors {
            error.message = rename(at_field(&error.message)).to_string();
        }
        if answer.item_errors.len() == items {
            return Err(first_failure(&answer.item_errors, rename));
        }
        let label_scores = answer.label_scores.map(|tensor| float32(&tensor));
        Ok(Scored {
            scores: answer.scores,
            ranking: answer.ranking,
            label_scores: label_scores.unwrap_or_default(),
            report: Report {
                usage: answer.usage.unwrap_or_default(),
                timings: answer.timings.unwrap_or_default(),
                gateway_tokenize,
                truncations: cuts.unwrap_or(answer.truncations),
                item_errors: answer.item_errors,
                fingerprint: answer.fingerprint,
                device: device(&model),
                items,
                characters,
            },
        })
    }

    /// Answers score jobs that belong to one request, side by side: their results one after the
    /// other, without a ranking.
    pub(crate) async fn score_each(
        &self,
        jobs: Vec<ScoreJob>,
        deadline: Instant,
    ) -> Result<Scored> {
        let calls = jobs.into_iter().map(|job| self.score(job, deadline));
        let answers: Vec<Scored> = stream::iter(calls)
            .buffered(CALLS_AT_ONCE)
            .try_collect()
            .await?;
        let mut all = Scored::default();
        for mut answer in answers {
            let before = u32::try_from(all.scores.len()).unwrap_or(u32::MAX);
            for cut in &mut answer.report.truncations {
                cut.index += before;
            }
            for error in &mut answer.report.item_errors {
                error.index += before;
            }
            all.scores.extend(answer.scores);
            all.label_scores.extend(answer.label_scores);
            all.report.add(answer.report);
        }
        Ok(all)
    }

    /// Answers an embed job. Clients match vectors to inputs by place, so one bad input fails it.
    pub(crate) async fn embed(&self, job: EmbedJob, deadline: Instant) -> Result<Embedded> {
        let EmbedJob {
            model,
            mut request,
            names,
        } = job;
        let items = request.inputs.len();
        self.check_count(names.items, items)?;
        check_forms(&model, &request.outputs)?;
        request.model = model.name().to_owned();
        request.strict = true;
        let characters = characters(&request.inputs);
        let rename = |error: Error| names.rename("inputs", error);
        let begun = Instant::now();
        let encode = encode_embed(&model, &self.pool, &mut request);
        let cuts = timeout_at(deadline, encode).await.map_err(|_| late())?;
        let gateway_tokenize = begun.elapsed();
        let answered = self.backend.embed(request, deadline).await;
        let answer: EmbedResponse = answered.map_err(|status| rename(status.into()))?;
        if !answer.item_errors.is_empty() {
            return Err(first_failure(&answer.item_errors, rename));
        }
        Ok(Embedded {
            dense: answer.embeddings.unwrap_or_default(),
            sparse: answer.sparse.unwrap_or_default(),
            tokens: answer.tokens.unwrap_or_default(),
            report: Report {
                usage: answer.usage.unwrap_or_default(),
                timings: answer.timings.unwrap_or_default(),
                gateway_tokenize,
                truncations: cuts.unwrap_or(answer.truncations),
                fingerprint: answer.fingerprint,
                device: device(&model),
                items,
                characters,
                ..Report::default()
            },
        })
    }
}

/// Whether the model gives its vectors in the forms that a dialect answers.
fn check_forms(model: &Model, wanted: &[i32]) -> Result<()> {
    let given = &model.info.outputs;
    let missing = wanted.iter().find(|form| !given.contains(form));
    // A replica that does not say what it gives answers for itself.
    let Some(&missing) = missing.filter(|_| !given.is_empty()) else {
        return Ok(());
    };
    let form = |value: i32| OutputKind::try_from(value).map_or("unknown", form_name);
    let given: Vec<_> = given.iter().map(|&value| form(value)).collect();
    let (name, given) = (model.name(), given.join(" and "));
    let message = format!(
        "model: {name:?} gives {given} vectors, not {}",
        form(missing)
    );
    Err(Error::WrongTask(message))
}

/// A form of vectors, as `--output` and `/info` name it.
pub(crate) fn form_name(form: OutputKind) -> &'static str {
    match form {
        OutputKind::Dense | OutputKind::Unspecified => "dense",
        OutputKind::Sparse => "sparse",
        OutputKind::Tokens => "tokens",
    }
}

fn late() -> Error {
    Error::DeadlineExceeded("deadline exceeded while texts were tokenized".into())
}

fn first_failure(errors: &[ItemError], rename: impl Fn(Error) -> Error) -> Error {
    match errors.first() {
        Some(error) if error.reason() == ErrorReason::NotFinite => {
            Error::Internal(rename(at_field(&error.message)).to_string())
        }
        Some(error) => rename(at_field(&error.message)),
        None => Error::Internal("no result and no reason".into()),
    }
}

/// Where the model runs, in the words of TEI's header.
fn device(model: &Model) -> &'static str {
    if model.info.device.starts_with("cpu") {
        "cpu"
    } else {
        "gpu"
    }
}

fn characters<'a>(inputs: impl IntoIterator<Item = &'a Input>) -> usize {
    let texts = inputs.into_iter().map(|input| match &input.content {
        Some(input::Content::Text(text)) => text.chars().count(),
        _ => 0,
    });
    texts.sum()
}

/// The values of a float32 tensor, row by row.
pub(crate) fn float32(tensor: &Tensor) -> Vec<f32> {
    let (values, _) = tensor.data.as_chunks::<4>();
    values
        .iter()
        .map(|&value| f32::from_le_bytes(value))
        .collect()
}
