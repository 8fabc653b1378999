//! The texts of a request, split over the tokenizer threads.

use std::sync::Arc;

use futures_util::stream::{self, StreamExt};

use crate::chunk::Chunk;
use crate::encode::{Encoded, Query};
use crate::error::EncodeError;
use crate::pool::Pool;
use crate::tokenizer::{Content, Tokenizer};
use crate::truncation::{Side, TruncationOptions};

/// How much text makes a job, in bytes that are really read.
#[derive(Debug, Clone, Copy)]
struct JobSize {
    /// Below this, two thread hops cost more than the work.
    inline_bytes: usize,
    /// One to three milliseconds of work, so that all threads end together and other requests
    /// get their turn.
    chunk_bytes: usize,
}

impl JobSize {
    fn of(tokenizer: &Tokenizer) -> Self {
        if tokenizer.is_fast() {
            Self {
                inline_bytes: 8 * 1024,
                chunk_bytes: 32 * 1024,
            }
        } else {
            Self {
                inline_bytes: 2 * 1024,
                chunk_bytes: 16 * 1024,
            }
        }
    }
}

/// Bytes of a text that are read, about, however long it is: of one that is cut at the right only
/// the beginning.
fn max_bytes_read(tokenizer: &Tokenizer, truncation: &TruncationOptions) -> usize {
    let max_tokens = (tokenizer.options.max_sequence_tokens).min(truncation.max_tokens);
    match truncation.side {
        Side::Right => max_tokens.saturating_mul(MAX_BYTES_PER_TOKEN),
        Side::Left => usize::MAX,
    }
}

/// Nearly no text has tokens that are longer on average.
const MAX_BYTES_PER_TOKEN: usize = 8;

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
    let (by, cut) = (Arc::clone(tokenizer), truncation.clone());
    let max_bytes = max_bytes_read(&by, truncation);
    encode_all(tokenizer, pool, contents, max_bytes, move |content| {
        by.encode_single(&prompt, content, &cut)
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
    let (by, cut) = (Arc::clone(tokenizer), truncation.clone());
    let max_bytes = max_bytes_read(&by, truncation);
    encode_all(tokenizer, pool, documents, max_bytes, move |document| {
        by.encode_pair(&query, document, &cut)
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
    if content.text_bytes() + instruction.len() < JobSize::of(tokenizer).inline_bytes {
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
    let (by, cut) = (Arc::clone(tokenizer), truncation.clone());
    encode_all(tokenizer, pool, contents, usize::MAX, move |content| {
        by.encode_single_chunks(&prompt, content, &cut, overlap)
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
    let (by, cut) = (Arc::clone(tokenizer), truncation.clone());
    encode_all(tokenizer, pool, documents, usize::MAX, move |document| {
        by.encode_pair_chunks(&query, document, &cut, overlap)
    })
    .await
}

async fn encode_all<T: Send + 'static>(
    tokenizer: &Tokenizer,
    pool: &Pool,
    contents: Vec<Content>,
    max_bytes: usize,
    encode: impl Fn(&Content) -> Result<T, EncodeError> + Clone + Send + 'static,
) -> Vec<Result<T, EncodeError>> {
    let count = contents.len();
    let size = JobSize::of(tokenizer);
    if contents.iter().map(Content::text_bytes).sum::<usize>() < size.inline_bytes {
        return contents.iter().map(encode).collect();
    }
    let bytes = |content: &Content| content.text_bytes().min(max_bytes);
    let total: usize = contents.iter().map(bytes).sum();
    let chunk_bytes = total.div_ceil(pool.threads()).min(size.chunk_bytes);
    let jobs = chunks(contents, chunk_bytes, bytes).map(|chunk| {
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
fn chunks(
    contents: Vec<Content>,
    chunk_bytes: usize,
    bytes: impl Fn(&Content) -> usize,
) -> impl Iterator<Item = Vec<Content>> {
    let mut contents = contents.into_iter().peekable();
    std::iter::from_fn(move || {
        let first = contents.next()?;
        let mut total = bytes(&first);
        let mut chunk = vec![first];
        while let Some(next) = contents.next_if(|next| total + bytes(next) <= chunk_bytes) {
            total += bytes(&next);
            chunk.push(next);
        }
        Some(chunk)
    })
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
