//! The texts of a request, split over the tokenizer threads.

use std::sync::Arc;

use futures_util::stream::{self, StreamExt};

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

/// Bytes of `content` that are read, about: of a text that is cut at the right only the beginning.
fn bytes_read(content: &Content, truncation: &TruncationOptions) -> usize {
    match truncation.side {
        Side::Right => content
            .text_bytes()
            .min(truncation.max_tokens.saturating_mul(MAX_BYTES_PER_TOKEN)),
        Side::Left => content.text_bytes(),
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
    let tokenizer = Arc::clone(tokenizer);
    let size = JobSize::of(&tokenizer);
    let read = truncation.clone();
    let truncation = truncation.clone();
    encode_all(
        pool,
        contents,
        size,
        |content| bytes_read(content, &read),
        move |content| tokenizer.encode_single(&prompt, content, &truncation),
    )
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
    let size = JobSize::of(&tokenizer);
    let read = truncation.clone();
    let truncation = truncation.clone();
    encode_all(
        pool,
        documents,
        size,
        |document| bytes_read(document, &read),
        move |document| tokenizer.encode_pair(&query, document, &truncation),
    )
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
    if bytes_read(&content, truncation) < JobSize::of(tokenizer).inline_bytes {
        return tokenizer.encode_query(&content, truncation);
    }
    let tokenizer = Arc::clone(tokenizer);
    let truncation = truncation.clone();
    pool.run(move || tokenizer.encode_query(&content, &truncation))
        .await?
}

async fn encode_all(
    pool: &Pool,
    contents: Vec<Content>,
    size: JobSize,
    bytes: impl Fn(&Content) -> usize,
    encode: impl Fn(&Content) -> Result<Encoded, EncodeError> + Clone + Send + 'static,
) -> Vec<Result<Encoded, EncodeError>> {
    let count = contents.len();
    let total: usize = contents.iter().map(&bytes).sum();
    if total < size.inline_bytes {
        return contents.iter().map(encode).collect();
    }
    let chunk_bytes = total.div_ceil(pool.threads()).min(size.chunk_bytes);
    let jobs = chunks(contents, chunk_bytes, bytes).map(|chunk| {
        let encode = encode.clone();
        async move {
            let length = chunk.len();
            pool.run(move || chunk.iter().map(encode).collect::<Vec<_>>())
                .await
                .unwrap_or_else(|error| vec![Err(EncodeError::Pool(error)); length])
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
