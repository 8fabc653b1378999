//! The inputs of a request become sequences; those that cannot are set aside.

use std::sync::Arc;

use tokenization::{
    Content, EncodeError, Encoded, PoolError, Query, Side, Truncated, TruncationOptions,
    encode_batch, encode_pairs,
};
use tulip_proto::v1::{Input, InputRole, TruncationReport, TruncationSide};

use super::item::{Item, ItemFailure, Path, read};
use super::serving::{Serving, wire_u32};
use crate::error::{Error, Result};
use crate::sequence::Sequence;

/// What is put around each segment. Complete sequences stay as they are.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Around<'a> {
    /// A prompt, and the special tokens of a single text.
    Prompt(&'a str),
    /// The special tokens of a pair, with this query as the first part.
    Query(&'a Arc<Query>),
}

/// Sequences of one request, in request order.
#[derive(Debug, Default)]
pub(crate) struct EncodedItems {
    pub(crate) sequences: Vec<Sequence>,
    /// For each sequence the index of its item, ascending.
    pub(crate) items: Vec<u32>,
    /// By index, ascending.
    pub(crate) failures: Vec<ItemFailure>,
    pub(crate) truncations: Vec<TruncationReport>,
}

impl EncodedItems {
    pub(crate) fn num_tokens(&self) -> u64 {
        self.sequences
            .iter()
            .map(|sequence| sequence.num_tokens() as u64)
            .sum()
    }

    /// In a strict request the first failure is the request's.
    pub(crate) fn check_strict(&mut self, strict: bool) -> Result<()> {
        if strict && !self.failures.is_empty() {
            return Err(self.failures.swap_remove(0).into_error());
        }
        Ok(())
    }
}

impl Serving {
    /// Encodes a list of inputs; `path` names an entry of it.
    ///
    /// # Errors
    /// What concerns the whole request. One bad input is a failure in the result.
    pub(crate) async fn encode_items(
        &self,
        inputs: Vec<Input>,
        path: fn(usize) -> Path,
        around: Around<'_>,
        truncation: &TruncationOptions,
    ) -> Result<EncodedItems> {
        let mut encoded = EncodedItems {
            sequences: Vec::with_capacity(inputs.len()),
            items: Vec::with_capacity(inputs.len()),
            ..EncodedItems::default()
        };
        let mut contents = Vec::new();
        let mut content_items = Vec::new();
        for (index, input) in inputs.into_iter().enumerate() {
            match read(path(index), input)? {
                Ok(Item::Segment(content)) => {
                    contents.push(content);
                    content_items.push(index);
                }
                Ok(Item::Sequence(sequence)) => {
                    match self.tokenizer.check_sequence(&sequence.token_ids) {
                        Ok(()) => encoded.push(index, sequence),
                        Err(error) => encoded
                            .failures
                            .push(ItemFailure::encode(path(index), &error)),
                    }
                }
                Err(failure) => encoded.failures.push(failure),
            }
        }
        if contents.is_empty() {
            return Ok(encoded);
        }
        let mixed = !encoded.items.is_empty();
        let results = match around {
            Around::Prompt(prompt) => {
                encode_batch(&self.tokenizer, &self.pool, prompt, contents, truncation).await
            }
            Around::Query(query) => {
                encode_pairs(&self.tokenizer, &self.pool, query, contents, truncation).await
            }
        };
        let mut query_cut: Option<Truncated> = None;
        for (result, index) in results.into_iter().zip(content_items) {
            match result {
                Ok(Encoded {
                    token_ids,
                    second_segment_start,
                    truncated,
                    query_truncated,
                    ..
                }) => {
                    encoded.push(
                        index,
                        Sequence {
                            token_ids,
                            second_segment_start,
                        },
                    );
                    if let Some(cut) = truncated {
                        encoded.truncations.push(report(
                            wire_u32(index),
                            InputRole::Document,
                            &cut,
                        ));
                    }
                    query_cut = heavier(query_cut, query_truncated);
                }
                Err(EncodeError::Pool(error @ PoolError::Closed)) => {
                    return Err(Error::Unavailable(error.to_string()));
                }
                Err(error) => encoded
                    .failures
                    .push(ItemFailure::encode(path(index), &error)),
            }
        }
        if let Around::Query(query) = around
            && let Some(cut) = heavier(query.truncated, query_cut)
        {
            encoded.truncations.push(report(0, InputRole::Query, &cut));
        }
        encoded
            .failures
            .sort_unstable_by_key(|failure| failure.index);
        if mixed {
            encoded.restore_order();
        }
        Ok(encoded)
    }

    /// The query that all pairs of a request share.
    pub(crate) async fn encode_pair_query(
        &self,
        query: Input,
        truncation: &TruncationOptions,
    ) -> Result<Arc<Query>> {
        let content = match read(Path::Query, query)?.map_err(ItemFailure::into_error)? {
            Item::Segment(content) => content,
            Item::Sequence(_) => {
                let message =
                    "is SEQUENCE, but a complete sequence cannot be the first part of a pair";
                return Err(Error::invalid("query.form", message));
            }
        };
        let query =
            tokenization::encode_query(&self.tokenizer, &self.pool, content, truncation).await;
        query.map(Arc::new).map_err(|error| query_error(&error))
    }

    /// The query of an embedding model: a sequence of its own.
    pub(crate) async fn encode_single_query(
        &self,
        query: Input,
        prompt: &str,
        truncation: &TruncationOptions,
    ) -> Result<(Sequence, Option<TruncationReport>)> {
        let content = match read(Path::Query, query)?.map_err(ItemFailure::into_error)? {
            Item::Segment(content) => content,
            Item::Sequence(sequence) => {
                let checked = self.tokenizer.check_sequence(&sequence.token_ids);
                return checked
                    .map(|()| (sequence, None))
                    .map_err(|error| query_error(&error));
            }
        };
        let truncation = TruncationOptions {
            max_document_tokens: truncation.max_query_tokens,
            ..truncation.clone()
        };
        let encoded = self.encode_one(prompt, content, &truncation).await;
        let encoded = encoded.map_err(|error| query_error(&error))?;
        let report = encoded
            .truncated
            .map(|cut| report(0, InputRole::Query, &cut));
        let Encoded {
            token_ids,
            second_segment_start,
            ..
        } = encoded;
        Ok((
            Sequence {
                token_ids,
                second_segment_start,
            },
            report,
        ))
    }

    async fn encode_one(
        &self,
        prompt: &str,
        content: Content,
        truncation: &TruncationOptions,
    ) -> Result<Encoded, EncodeError> {
        let results = encode_batch(
            &self.tokenizer,
            &self.pool,
            prompt,
            vec![content],
            truncation,
        )
        .await;
        results
            .into_iter()
            .next()
            .unwrap_or(Err(EncodeError::Pool(PoolError::Closed)))
    }
}

impl EncodedItems {
    fn push(&mut self, index: usize, sequence: Sequence) {
        self.sequences.push(sequence);
        self.items.push(wire_u32(index));
    }

    /// Complete sequences were put first; results go in request order.
    fn restore_order(&mut self) {
        let sequences = std::mem::take(&mut self.sequences);
        let mut pairs: Vec<_> = std::mem::take(&mut self.items)
            .into_iter()
            .zip(sequences)
            .collect();
        pairs.sort_unstable_by_key(|(item, _)| *item);
        (self.items, self.sequences) = pairs.into_iter().unzip();
    }
}

fn query_error(error: &EncodeError) -> Error {
    match error {
        EncodeError::Pool(PoolError::Closed) => Error::Unavailable(error.to_string()),
        _ => ItemFailure::encode(Path::Query, error).into_error(),
    }
}

/// One report stands for the query of all pairs: the one that lost most.
fn heavier(a: Option<Truncated>, b: Option<Truncated>) -> Option<Truncated> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b.tokens_used < a.tokens_used { b } else { a }),
        (one, other) => one.or(other),
    }
}

fn report(index: u32, role: InputRole, cut: &Truncated) -> TruncationReport {
    let side = match cut.side {
        Side::Right => TruncationSide::Right,
        Side::Left => TruncationSide::Left,
    };
    TruncationReport {
        index,
        role: role.into(),
        tokens_given: wire_u32(cut.tokens_given),
        tokens_used: wire_u32(cut.tokens_used),
        side: side.into(),
    }
}
