//! The texts of a request, split over the tokenizer threads.

use std::sync::Arc;

use futures_util::stream::{self, StreamExt};

use crate::chunk::Chunk;
use crate::encode::{Encoded, Query};
use crate::error::EncodeError;
use crate::pool::Pool;
use crate::tokenizer::{Content, Tokenizer};
use crate::truncation::TruncationOptions;

/// Below this much text, in bytes, two thread hops cost more than the work (about 1 ms).
const INLINE_BYTES: usize = 2 * 1024;

/// Text of one job, in bytes: some milliseconds of work, so that all threads end together and
/// other requests get their turn.
const CHUNK_BYTES: usize = 16 * 1024;

/// Token ids of each of `contents`, in order, each with `prompt` before it.
///
/// Small requests are done on the caller's thread. A dropped future leaves the rest undone.
pub async fn encode_batch(
    tokenizer: &Arc<Tokenizer>,
    pool: &Pool,
    prompt: &str,
    contents: Vec<Content>,
    truncation: &TruncationOptions,
) -> Vec<Result<Encoded, EncodeError>> {
    let prompt: Arc<str> = prompt.into();
    let tokenizer = Arc::clone(tokenizer);
    let truncation = truncation.clone();
    encode_all(pool, contents, move |content| {
        tokenizer.encode_single(&prompt, content, &truncation)
    })
    .await
}

/// Token ids of the pairs of `query` and each of `documents`, in order.
///
/// Small requests are done on the caller's thread. A dropped future leaves the rest undone.
pub async fn encode_pairs(
    tokenizer: &Arc<Tokenizer>,
    pool: &Pool,
    query: &Arc<Query>,
    documents: Vec<Content>,
    truncation: &TruncationOptions,
) -> Vec<Result<Encoded, EncodeError>> {
    let query = Arc::clone(query);
    let tokenizer = Arc::clone(tokenizer);
    let truncation = truncation.clone();
    encode_all(pool, documents, move |document| {
        tokenizer.encode_pair(&query, document, &truncation)
    })
    .await
}

/// The query of a request, on a tokenizer thread if it is long.
///
/// # Errors
/// As [`Tokenizer::encode_query`], or the pool is closed.
pub async fn encode_query(
    tokenizer: &Arc<Tokenizer>,
    pool: &Pool,
    content: Content,
    truncation: &TruncationOptions,
) -> Result<Query, EncodeError> {
    encode_query_with(tokenizer, pool, content, "", truncation).await
}

/// As [`encode_query`], with an instruction for the model's template.
///
/// # Errors
/// As [`Tokenizer::encode_query_with`], or the pool is closed.
pub async fn encode_query_with(
    tokenizer: &Arc<Tokenizer>,
    pool: &Pool,
    content: Content,
    instruction: &str,
    truncation: &TruncationOptions,
) -> Result<Query, EncodeError> {
    if content.text_bytes() + instruction.len() < INLINE_BYTES {
        return tokenizer.encode_query_with(&content, instruction, truncation);
    }
    let tokenizer = Arc::clone(tokenizer);
    let truncation = truncation.clone();
    let instruction = instruction.to_owned();
    pool.run(move || tokenizer.encode_query_with(&content, &instruction, &truncation))
        .await?
}

/// As [`encode_batch`], each text as its parts ([`Tokenizer::encode_single_chunks`]).
pub async fn encode_batch_chunks(
    tokenizer: &Arc<Tokenizer>,
    pool: &Pool,
    prompt: &str,
    contents: Vec<Content>,
    truncation: &TruncationOptions,
    overlap: Option<usize>,
) -> Vec<Result<Vec<Chunk>, EncodeError>> {
    let prompt: Arc<str> = prompt.into();
    let tokenizer = Arc::clone(tokenizer);
    let truncation = truncation.clone();
    encode_all(pool, contents, move |content| {
        tokenizer.encode_single_chunks(&prompt, content, &truncation, overlap)
    })
    .await
}

/// As [`encode_pairs`], each document as its parts ([`Tokenizer::encode_pair_chunks`]).
pub async fn encode_pair_chunks(
    tokenizer: &Arc<Tokenizer>,
    pool: &Pool,
    query: &Arc<Query>,
    documents: Vec<Content>,
    truncation: &TruncationOptions,
    overlap: Option<usize>,
) -> Vec<Result<Vec<Chunk>, EncodeError>> {
    let query = Arc::clone(query);
    let tokenizer = Arc::clone(tokenizer);
    let truncation = truncation.clone();
    encode_all(pool, documents, move |document| {
        tokenizer.encode_pair_chunks(&query, document, &truncation, overlap)
    })
    .await
}

async fn encode_all<T: Send + 'static>(
    pool: &Pool,
    contents: Vec<Content>,
    encode: impl Fn(&Content) -> Result<T, EncodeError> + Clone + Send + 'static,
) -> Vec<Result<T, EncodeError>> {
    let count = contents.len();
    let text_bytes: usize = contents.iter().map(Content::text_bytes).sum();
    if text_bytes < INLINE_BYTES {
        return contents.iter().map(encode).collect();
    }
    let jobs = chunks(
        contents,
        text_bytes.div_ceil(pool.threads()).min(CHUNK_BYTES),
    )
    .map(|chunk| {
        let encode = encode.clone();
        async move {
            let length = chunk.len();
            pool.run(move || chunk.iter().map(encode).collect::<Vec<_>>())
                .await
                .unwrap_or_else(|error| {
                    let failed = || Err(EncodeError::Pool(error.clone()));
                    std::iter::repeat_with(failed).take(length).collect()
                })
        }
    });
    // No more of one request in the queue than keeps all threads busy, so that requests take turns.
    let mut jobs = stream::iter(jobs).buffered(2 * pool.threads());
    let mut encoded = Vec::with_capacity(count);
    while let Some(chunk) = jobs.next().await {
        encoded.extend(chunk);
    }
    encoded
}

/// Neighbouring contents, together about `chunk_bytes` of text; a larger one stands alone.
fn chunks(contents: Vec<Content>, chunk_bytes: usize) -> impl Iterator<Item = Vec<Content>> {
    let mut contents = contents.into_iter().peekable();
    std::iter::from_fn(move || {
        let first = contents.next()?;
        let mut bytes = first.text_bytes();
        let mut chunk = vec![first];
        while let Some(next) = contents.next_if(|next| bytes + next.text_bytes() <= chunk_bytes) {
            bytes += next.text_bytes();
            chunk.push(next);
        }
        Some(chunk)
    })
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
