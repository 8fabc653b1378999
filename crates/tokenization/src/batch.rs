//! The texts of a request, split over the tokenizer threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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

/// What is read for each content.
#[derive(Debug, Clone, Copy)]
struct Reading {
    /// Text that is read together with each.
    shared_bytes: usize,
    /// Bytes that are read, about, however long a text is.
    max_bytes: usize,
}

impl Reading {
    /// Of texts that are cut at the right only the beginning.
    fn of_beginnings(
        shared_bytes: usize,
        tokenizer: &Tokenizer,
        truncation: &TruncationOptions,
    ) -> Self {
        let max_tokens = (tokenizer.options.max_sequence_tokens).min(truncation.max_tokens);
        Self {
            shared_bytes,
            max_bytes: match truncation.side {
                Side::Right => max_tokens.saturating_mul(MAX_BYTES_PER_TOKEN),
                Side::Left => usize::MAX,
            },
        }
    }

    fn of_all(shared_bytes: usize) -> Self {
        Self {
            shared_bytes,
            max_bytes: usize::MAX,
        }
    }

    /// Bytes of the content with what is read together with it.
    fn bytes(&self, content: &Content) -> usize {
        content.text_bytes() + self.shared_bytes
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
    let reading = Reading::of_beginnings(prompt.len(), &by, truncation);
    let budget = Budget::of(truncation);
    encode_all(tokenizer, pool, contents, reading, move |content| {
        let one = by.encode_single(&prompt, content, &cut)?;
        budget.spend(one.token_ids.len())?;
        Ok(one)
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
    let reading = Reading::of_beginnings(by.bytes_beside(&query), &by, truncation);
    let budget = Budget::of(truncation);
    encode_all(tokenizer, pool, documents, reading, move |document| {
        let one = by.encode_pair(&query, document, &cut)?;
        budget.spend(one.token_ids.len())?;
        Ok(one)
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
    let reading = Reading::of_all(prompt.len());
    let budget = Budget::of(truncation);
    encode_all(tokenizer, pool, contents, reading, move |content| {
        let chunks = by.encode_single_chunks(&prompt, content, &cut, overlap)?;
        budget.spend(chunks.iter().map(|chunk| chunk.token_ids.len()).sum())?;
        Ok(chunks)
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
    let reading = Reading::of_all(by.bytes_beside(&query));
    let budget = Budget::of(truncation);
    encode_all(tokenizer, pool, documents, reading, move |document| {
        let chunks = by.encode_pair_chunks(&query, document, &cut, overlap)?;
        budget.spend(chunks.iter().map(|chunk| chunk.token_ids.len()).sum())?;
        Ok(chunks)
    })
    .await
}

/// Tokens that the sequences of one request may still have together.
#[derive(Debug, Clone)]
struct Budget {
    limit: usize,
    spent: Arc<AtomicUsize>,
}

impl Budget {
    fn of(truncation: &TruncationOptions) -> Self {
        Self {
            limit: truncation.max_request_tokens.unwrap_or(usize::MAX),
            spent: Arc::default(),
        }
    }

    fn spend(&self, tokens: usize) -> Result<(), EncodeError> {
        let before = self.spent.fetch_add(tokens, Ordering::Relaxed);
        let (tokens, limit) = (before.saturating_add(tokens), self.limit);
        if tokens > limit {
            return Err(EncodeError::RequestTooLong { tokens, limit });
        }
        Ok(())
    }
}

async fn encode_all<T: Send + 'static>(
    tokenizer: &Tokenizer,
    pool: &Pool,
    contents: Vec<Content>,
    reading: Reading,
    encode: impl Fn(&Content) -> Result<T, EncodeError> + Clone + Send + 'static,
) -> Vec<Result<T, EncodeError>> {
    let count = contents.len();
    let size = JobSize::of(tokenizer);
    let bytes = |content: &Content| reading.bytes(content);
    if contents.iter().map(bytes).sum::<usize>() < size.inline_bytes {
        return contents.iter().map(encode).collect();
    }
    let bytes = |content: &Content| reading.bytes(content).min(reading.max_bytes);
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
