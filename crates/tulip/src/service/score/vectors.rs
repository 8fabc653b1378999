//! Embedding models: query and documents are read apart, their vectors compared.

use std::sync::Arc;

use tokenization::PoolError;
use tokio::time::Instant;
use tulip_proto::v1::Input;

use super::ranking::Value;
use super::{METHOD, Options, Scored, encode_documents, missing_query, set_aside};
use crate::deadline::Deadline;
use crate::engine::{ModelInfo, Output};
use crate::error::{Error, Result};
use crate::prompt::PromptChoice;
use crate::service::encode::Around;
use crate::service::item::{ItemFailure, Path};
use crate::service::parts::{Part, Parts};
use crate::service::serving::{Account, Serving};

/// The scores of the documents by their nearness to the query.
pub(super) async fn by_vectors(
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
    let mut values = Vec::with_capacity(encoded.items.len());
    let mut not_finite = Vec::new();
    let mut parts = Parts::new(serving, sequences, options.priority, deadline);
    let mut first: Option<Arc<Part>> = None;
    while let Some(part) = parts.next().await? {
        let query = first.get_or_insert_with(|| Arc::clone(&part));
        if !query.is_finite(0) {
            return Err(ItemFailure::not_finite(Path::Query).into_error());
        }
        // The query is the first sequence of all.
        let sequences = part.first..part.first + part.num_sequences();
        let failed = |sequence: &usize| !part.is_finite(*sequence - part.first);
        let failed = sequences
            .filter(failed)
            .filter_map(|sequence| sequence.checked_sub(1));
        not_finite.extend(failed);
        let nearness = compare(serving, Arc::clone(query), part).await?;
        values.extend(nearness.into_iter().map(Value::plain));
    }
    set_aside(&mut encoded, &not_finite);
    Ok(Scored {
        num_documents,
        encoded,
        spent: parts.spent,
        account,
        values,
        label_rows: Vec::new(),
    })
}

/// How near each document of `part` is to the query, the first sequence of `first`.
async fn compare(serving: &Serving, first: Arc<Part>, part: Arc<Part>) -> Result<Vec<f32>> {
    let nearness = |info: &ModelInfo, first: &Part, part: &Part| -> Vec<f32> {
        let query = first.rows(info, 0);
        let documents = usize::from(part.first == 0)..part.num_sequences();
        documents
            .map(|document| query.nearness(&part.rows(info, document)))
            .collect()
    };
    let info = Arc::clone(&serving.info);
    if info.outputs.kinds.first() == Some(&Output::Dense) {
        return Ok(nearness(&info, &first, &part));
    }
    // Each token with each token: too long for a thread that serves connections.
    let compared = serving
        .pool
        .run(move || nearness(&info, &first, &part))
        .await;
    compared.map_err(|error| match error {
        PoolError::Closed => Error::Unavailable(error.to_string()),
        PoolError::Panicked(_) => Error::Internal(error.to_string()),
    })
}
