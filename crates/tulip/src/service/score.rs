//! `Score`: one query against many documents.

use std::cmp::Ordering;

use tokenization::TruncationOptions;
use tokio::time::Instant;
use tulip_proto::v1::{DType, Input, ScoreRequest, ScoreResponse};

use super::best_chunk::{BestChunks, best_chunks};
use super::encode::{Around, EncodedItems};
use super::forms::Rows;
use super::item::{ItemFailure, Path, is_sequence};
use super::options::{Chunking, check_count, priority, score_truncation};
use super::serving::{Account, Serving};
use crate::deadline::Deadline;
use crate::engine::Task;
use crate::error::{Error, Result};
use crate::job::{JobOutput, Priority};
use crate::prompt::PromptChoice;
use crate::vectors::VectorFormat;

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
    output: JobOutput,
    account: Account,
    /// One for each sequence of `encoded`.
    values: Vec<f32>,
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
        Task::Embed => by_similarity(serving, query, documents, &options, deadline).await?,
        Task::Score | Task::Classify => {
            by_pairs(serving, query, documents, &options, deadline).await?
        }
    };
    respond(serving, request_id, scored, &options, deadline)
}

fn options(serving: &Serving, request: &ScoreRequest) -> Result<Options> {
    let (truncation, chunking) = score_truncation(
        request.truncation.as_ref(),
        serving.info.max_sequence_tokens,
    )?;
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
                "{:?} is no label of this model, known are {labels:?}",
                request.label
            );
            Error::invalid("label", message)
        })
}

/// Cross-encoders: each document is read together with the query.
async fn by_pairs(
    serving: &Serving,
    query: Option<Input>,
    documents: Vec<Input>,
    options: &Options,
    deadline: &Deadline,
) -> Result<Scored> {
    let num_documents = documents.len();
    let tokenize = Instant::now();
    let mut encoded = match query {
        Some(query) => {
            if let Some(index) = documents.iter().position(is_sequence) {
                let message = "is SEQUENCE, a whole pair: query must then be absent";
                return Err(Error::invalid(format!("documents[{index}].form"), message));
            }
            let query = serving
                .encode_pair_query(query, &options.instruction, &options.truncation)
                .await?;
            let around = Around::Query(&query);
            encode_documents(serving, documents, around, options).await?
        }
        None => {
            if !documents.iter().all(is_sequence) {
                return Err(missing_query());
            }
            if !options.instruction.is_empty() {
                let message = "is given, but the documents are complete sequences";
                return Err(Error::invalid("instruction", message));
            }
            encode_documents(serving, documents, Around::Prompt(""), options).await?
        }
    };
    encoded.check_strict(options.strict)?;
    let account = Account {
        method: METHOD,
        items: num_documents,
        input_tokens: encoded.num_tokens(),
        sequences: encoded.sequences.len(),
        tokenize: tokenize.elapsed(),
    };
    let sequences = std::mem::take(&mut encoded.sequences);
    let mut output = serving
        .compute(sequences, options.priority, deadline)
        .await?;
    set_aside(&mut encoded, &output.not_finite);

    let mut rows = std::mem::take(&mut output.rows);
    let mut values = Vec::with_capacity(encoded.items.len());
    for row in rows.chunks_exact_mut(output.width) {
        if !options.raw {
            serving.info.activation.apply(row);
        }
        values.push(row[options.label]);
    }
    let label_rows = if options.all_labels { rows } else { Vec::new() };
    Ok(Scored {
        num_documents,
        encoded,
        output,
        account,
        values,
        label_rows,
    })
}

/// Embedding models: query and documents are read apart, their vectors compared.
async fn by_similarity(
    serving: &Serving,
    query: Option<Input>,
    documents: Vec<Input>,
    options: &Options,
    deadline: &Deadline,
) -> Result<Scored> {
    let num_documents = documents.len();
    let query = query.ok_or_else(missing_query)?;
    let tokenize = Instant::now();
    let prompt = PromptChoice::query(&options.instruction).resolve(&serving.info)?;
    let (query, query_cut) = serving
        .encode_single_query(query, &prompt, &options.truncation)
        .await?;
    let prompt = PromptChoice::DOCUMENT.resolve(&serving.info)?;
    let around = Around::Prompt(&prompt);
    let mut encoded = encode_documents(serving, documents, around, options).await?;
    encoded.check_strict(options.strict)?;
    encoded.truncations.extend(query_cut);

    // With no document left there is nothing to compare the query with.
    let mut sequences = std::mem::take(&mut encoded.sequences);
    if !sequences.is_empty() {
        sequences.insert(0, query);
    }
    let account = Account {
        method: METHOD,
        items: num_documents,
        input_tokens: sequences
            .iter()
            .map(|sequence| sequence.num_tokens() as u64)
            .sum(),
        sequences: sequences.len(),
        tokenize: tokenize.elapsed(),
    };
    let token_ids: Vec<Vec<u32>> = if serving.info.layout.token_rows {
        let ids = sequences.iter().map(|sequence| sequence.token_ids.clone());
        ids.collect()
    } else {
        Vec::new()
    };
    let output = serving
        .compute(sequences, options.priority, deadline)
        .await?;
    if output.not_finite.first() == Some(&0) {
        return Err(ItemFailure::not_finite(Path::Query).into_error());
    }
    let not_finite: Vec<usize> = output.not_finite.iter().map(|row| row - 1).collect();
    set_aside(&mut encoded, &not_finite);

    let rows = |sequence: usize| Rows {
        info: &serving.info,
        rows: output.of(sequence),
        token_ids: token_ids.get(sequence).map_or(&[], Vec::as_slice),
    };
    // The query's are the first ones, if there are any.
    let documents = 1..output.starts.len().saturating_sub(1);
    let values = documents
        .map(|document| rows(0).nearness(&rows(document)))
        .collect();
    Ok(Scored {
        num_documents,
        encoded,
        output,
        account,
        values,
        label_rows: Vec::new(),
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
        output,
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
        if !value.is_finite() {
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

    let mut scores = vec![0.0; num_documents];
    for (&item, value) in encoded.items.iter().zip(&values) {
        scores[item as usize] = *value;
    }
    let mut failed = vec![false; num_documents];
    for failure in &encoded.failures {
        failed[failure.index as usize] = true;
        scores[failure.index as usize] = 0.0;
    }
    let label_scores = options.all_labels.then(|| {
        let width = output.width;
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
    let reports = account.close(serving, deadline, &output, encoded.failures.len());
    Ok(ScoreResponse {
        request_id,
        model: serving.info.name.clone(),
        ranking: ranking(&scores, &failed, options.top_n),
        scores,
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
    })
}

/// Indices of the best documents, best first, ties by index; `top_n` 0 = all.
fn ranking(scores: &[f32], failed: &[bool], top_n: usize) -> Vec<u32> {
    let indices = (0..).zip(failed).filter(|(_, failed)| !**failed);
    let mut indices: Vec<u32> = indices.map(|(index, _)| index).collect();
    let best_first = |a: &u32, b: &u32| {
        let by_score = scores[*b as usize].partial_cmp(&scores[*a as usize]);
        by_score.unwrap_or(Ordering::Equal).then(a.cmp(b))
    };
    if top_n > 0 && top_n < indices.len() {
        indices.select_nth_unstable_by(top_n, best_first);
        indices.truncate(top_n);
    }
    indices.sort_unstable_by(best_first);
    indices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_go_by_index_and_failures_are_left_out() {
        let scores = [0.5, 0.0, 0.9, 0.5, -0.0, 0.9];
        let mut failed = [false; 6];
        assert_eq!(ranking(&scores, &failed, 0), [2, 5, 0, 3, 1, 4]);
        failed[5] = true;
        assert_eq!(ranking(&scores, &failed, 0), [2, 0, 3, 1, 4]);
    }

    #[test]
    fn top_n_is_the_beginning_of_the_whole_ranking() {
        let scores: Vec<f32> = (0_u16..100).map(|i| f32::from(i * 37 % 11)).collect();
        let failed = [false; 100];
        let all = ranking(&scores, &failed, 0);
        for top_n in [1, 2, 10, 50, 99, 100, 1000] {
            assert_eq!(
                ranking(&scores, &failed, top_n),
                all[..top_n.min(100)],
                "{top_n}"
            );
        }
    }
}
