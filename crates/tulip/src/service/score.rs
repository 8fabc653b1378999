//! `Score`: one query against many documents.

mod pairs;
mod ranking;
mod vectors;

use tokenization::TruncationOptions;
use tulip_proto::quoted;
use tulip_proto::v1::{DType, Input, ScoreRequest, ScoreResponse};

use super::best_chunk::{BestChunks, best_chunks};
use super::encode::{Around, EncodedItems};
use super::item::{ItemFailure, Path};
use super::options::{Chunking, check_count, check_max_tokens, priority, score_truncation};
use super::parts::Spent;
use super::serving::{Account, Serving};
use crate::deadline::Deadline;
use crate::engine::Task;
use crate::error::{Error, Result};
use crate::job::Priority;
use crate::vectors::VectorFormat;
use pairs::by_pairs;
pub(crate) use ranking::Value;
use ranking::ranking;
use vectors::by_vectors;

/// Name of the method in metrics.
pub(crate) const METHOD: &str = "Score";

/// Everything of a request but its texts.
#[derive(Debug)]
struct Options {
    truncation: TruncationOptions,
    chunking: Option<Chunking>,
    instruction: String,
    priority: Priority,
    /// Column of the row whose value is the score.
    label: usize,
    all_labels: bool,
    raw: bool,
    strict: bool,
    top_n: usize,
}

/// What became of the documents.
#[derive(Debug)]
struct Scored {
    num_documents: usize,
    encoded: EncodedItems,
    spent: Spent,
    account: Account,
    /// One for each sequence of `encoded`.
    values: Vec<Value>,
    /// One row for each sequence of `encoded`, when all labels are wanted.
    label_rows: Vec<f32>,
}

/// Answers one request.
pub(crate) async fn score(
    serving: &Serving,
    request: ScoreRequest,
    deadline: &Deadline,
) -> Result<ScoreResponse> {
    serving.check_model(&request.model)?;
    let options = options(serving, &request)?;
    let ScoreRequest {
        request_id,
        query,
        documents,
        ..
    } = request;
    check_count(
        "documents",
        documents.len(),
        serving.config.max_items_per_request,
    )?;
    let scored = match serving.info.task {
        Task::Embed => by_vectors(serving, query, documents, &options, deadline).await?,
        Task::Score | Task::Classify => {
            by_pairs(serving, query, documents, &options, deadline).await?
        }
    };
    respond(serving, request_id, scored, &options, deadline)
}

fn options(serving: &Serving, request: &ScoreRequest) -> Result<Options> {
    let special_tokens = match serving.info.task {
        Task::Embed => serving.tokenizer.num_special_single(),
        Task::Score | Task::Classify => serving.tokenizer.num_special_pair(),
    };
    // Whole sequences are not cut.
    if request.query.is_some() {
        check_max_tokens(request.truncation.as_ref(), special_tokens)?;
    }
    let own = serving.info.truncation();
    let (truncation, chunking) = score_truncation(request.truncation.as_ref(), own)?;
    Ok(Options {
        truncation,
        chunking,
        instruction: request.instruction.clone(),
        priority: priority(request.priority)?,
        label: label(serving, request)?,
        all_labels: request.all_labels,
        raw: request.raw_scores,
        strict: request.strict,
        top_n: request.top_n as usize,
    })
}

fn label(serving: &Serving, request: &ScoreRequest) -> Result<usize> {
    let labels = &serving.info.labels;
    if request.label.is_empty() && !request.all_labels {
        return Ok(serving.info.positive_label);
    }
    if serving.info.task == Task::Embed || labels.is_empty() {
        let field = if request.all_labels {
            "all_labels"
        } else {
            "label"
        };
        return Err(Error::WrongTask(format!(
            "{field}: this model has no labels"
        )));
    }
    if request.label.is_empty() {
        return Ok(serving.info.positive_label);
    }
    labels
        .iter()
        .position(|label| *label == request.label)
        .ok_or_else(|| {
            let message = format!(
                "{} is no label of this model, known are {labels:?}",
                quoted(&request.label)
            );
            Error::invalid("label", message)
        })
}

async fn encode_documents(
    serving: &Serving,
    documents: Vec<Input>,
    around: Around<'_>,
    options: &Options,
) -> Result<EncodedItems> {
    let (path, truncation) = (Path::Document, &options.truncation);
    match options.chunking {
        None => {
            serving
                .encode_items(documents, path, around, truncation)
                .await
        }
        Some(chunking) => {
            serving
                .encode_item_chunks(documents, path, around, truncation, chunking)
                .await
        }
    }
}

fn missing_query() -> Error {
    Error::invalid("query", "is missing")
}

/// Notes the sequences whose row is not finite as failures. Their rows are zeros.
fn set_aside(encoded: &mut EncodedItems, not_finite: &[usize]) {
    for &sequence in not_finite {
        let item = encoded.items[sequence] as usize;
        encoded
            .failures
            .push(ItemFailure::not_finite(Path::Document(item)));
    }
}

fn respond(
    serving: &Serving,
    request_id: String,
    scored: Scored,
    options: &Options,
    deadline: &Deadline,
) -> Result<ScoreResponse> {
    let Scored {
        num_documents,
        mut encoded,
        spent,
        account,
        values,
        label_rows,
    } = scored;
    let BestChunks {
        starts,
        lengths,
        values,
        label_rows,
    } = best_chunks(&mut encoded, values, label_rows, num_documents);
    // Finite vectors can still have a product beyond float32.
    for (&item, value) in encoded.items.iter().zip(&values) {
        if !value.score.is_finite() {
            encoded
                .failures
                .push(ItemFailure::not_finite(Path::Document(item as usize)));
        }
    }
    encoded
        .failures
        .sort_unstable_by_key(|failure| failure.index);
    // Of a document in parts several may fail.
    encoded.failures.dedup_by_key(|failure| failure.index);
    encoded.check_strict(options.strict)?;

    let mut of_documents = vec![Value::default(); num_documents];
    for (&item, value) in encoded.items.iter().zip(&values) {
        of_documents[item as usize] = *value;
    }
    let mut failed = vec![false; num_documents];
    for failure in &encoded.failures {
        failed[failure.index as usize] = true;
        of_documents[failure.index as usize] = Value::default();
    }
    let label_scores = options.all_labels.then(|| {
        let width = serving.info.output_width;
        let format = VectorFormat {
            dimensions: width,
            normalize: false,
            dtype: DType::DtypeFloat32,
            tanh: false,
        };
        let answered = encoded.items.iter().zip(label_rows.chunks_exact(width));
        let mut rows = Vec::with_capacity(label_rows.len());
        let mut items = Vec::with_capacity(encoded.items.len());
        for (&item, row) in answered.filter(|(item, _)| !failed[**item as usize]) {
            rows.extend_from_slice(row);
            items.push(item);
        }
        format.tensor(num_documents, &rows, width, &items)
    });
    let score_logits = if serving.info.gives_probabilities() && !options.raw {
        of_documents.iter().map(|value| value.order).collect()
    } else {
        Vec::new()
    };
    let reports = account.close(serving, deadline, &spent, encoded.failures.len());
    Ok(ScoreResponse {
        request_id,
        model: serving.info.name.clone(),
        ranking: ranking(&of_documents, &failed, options.top_n),
        scores: of_documents.iter().map(|value| value.score).collect(),
        item_errors: encoded.failures.into_iter().map(Into::into).collect(),
        truncations: encoded.truncations,
        usage: Some(reports.usage),
        timings: Some(reports.timings),
        load: Some(reports.load),
        fingerprint: serving.info.fingerprint.clone(),
        label_scores,
        labels: if options.all_labels {
            serving.info.labels.clone()
        } else {
            Vec::new()
        },
        best_chunk_start: starts,
        best_chunk_tokens: lengths,
        score_logits,
    })
}
