//! The inputs of a request become sequences; those that cannot are set aside.

use std::sync::Arc;

use tokenization::{
    Content, EncodeError, Encoded, PoolError, Query, Side, Truncated, TruncationOptions,
    encode_batch, encode_batch_chunks, encode_pair_chunks, encode_pairs, encode_query_with,
};
use tulip_proto::v1::{Input, InputRole, TruncationReport, TruncationSide};

use super::item::{Item, ItemFailure, Path, read};
use super::options::Chunking;
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
    /// For each sequence the part of the document that it holds; empty where none is in parts.
    pub(crate) parts: Vec<Part>,
}

/// Own tokens of a document that one sequence holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) start: u32,
    pub(crate) tokens: u32,
}

/// Inputs that have been read; those with text or their own ids are still to be encoded.
struct ReadItems {
    encoded: EncodedItems,
    contents: Vec<Content>,
    /// For each content the index of its item.
    content_items: Vec<usize>,
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
    fn read_items(&self, inputs: Vec<Input>, path: fn(usize) -> Path) -> Result<ReadItems> {
        let mut items = ReadItems {
            encoded: EncodedItems {
                sequences: Vec::with_capacity(inputs.len()),
                items: Vec::with_capacity(inputs.len()),
                ..EncodedItems::default()
            },
            contents: Vec::new(),
            content_items: Vec::new(),
        };
        let encoded = &mut items.encoded;
        for (index, input) in inputs.into_iter().enumerate() {
            match read(path(index), input)? {
                Ok(Item::Segment(content)) => {
                    items.contents.push(content);
                    items.content_items.push(index);
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
        Ok(items)
    }

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
        let ReadItems {
            mut encoded,
            contents,
            content_items,
        } = self.read_items(inputs, path)?;
        if contents.is_empty() {
            return Ok(encoded);
        }
        let truncation = &self.within_queue(truncation);
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
            let Some(one) = encoded.take(result, index, path)? else {
                continue;
            };
            encoded.push(
                index,
                Sequence {
                    token_ids: one.token_ids,
                    second_segment_start: one.second_segment_start,
                },
            );
            if let Some(cut) = one.truncated {
                let report = report(wire_u32(index), InputRole::Document, &cut);
                encoded.truncations.push(report);
            }
            query_cut = heavier(query_cut, one.query_truncated);
        }
        encoded.finish(around, query_cut);
        Ok(encoded)
    }

    /// As [`Serving::encode_items`], but a long document becomes several sequences.
    ///
    /// # Errors
    /// As [`Serving::encode_items`].
    pub(crate) async fn encode_item_chunks(
        &self,
        inputs: Vec<Input>,
        path: fn(usize) -> Path,
        around: Around<'_>,
        truncation: &TruncationOptions,
        chunking: Chunking,
    ) -> Result<EncodedItems> {
        let ReadItems {
            mut encoded,
            contents,
            content_items,
        } = self.read_items(inputs, path)?;
        let whole = encoded.sequences.iter().map(|sequence| Part {
            start: 0,
            tokens: wire_u32(sequence.num_tokens()),
        });
        encoded.parts = whole.collect();
        let truncation = &self.within_queue(truncation);
        let overlap = chunking.overlap;
        let (tokenizer, pool) = (&self.tokenizer, &self.pool);
        let results = match around {
            Around::Prompt(prompt) => {
                encode_batch_chunks(tokenizer, pool, prompt, contents, truncation, overlap).await
            }
            Around::Query(query) => {
                encode_pair_chunks(tokenizer, pool, query, contents, truncation, overlap).await
            }
        };
        for (result, index) in results.into_iter().zip(content_items) {
            for chunk in encoded.take(result, index, path)?.unwrap_or_default() {
                encoded.push(
                    index,
                    Sequence {
                        token_ids: chunk.token_ids,
                        second_segment_start: chunk.second_segment_start,
                    },
                );
                encoded.parts.push(Part {
                    start: wire_u32(chunk.start),
                    tokens: wire_u32(chunk.tokens),
                });
            }
        }
        encoded.finish(around, None);
        Ok(encoded)
    }

    /// What can never be queued is not made first: short texts with one long query, or the parts
    /// of a document, can be a thousand times the bytes of the request.
    fn within_queue(&self, truncation: &TruncationOptions) -> TruncationOptions {
        let limit = self.config.scheduler.max_queued_tokens;
        TruncationOptions {
            max_request_tokens: Some(usize::try_from(limit).unwrap_or(usize::MAX)),
            ..truncation.clone()
        }
    }

    /// The query that all pairs of a request share.
    pub(crate) async fn encode_pair_query(
        &self,
        query: Input,
        instruction: &str,
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
        let query = encode_query_with(
            &self.tokenizer,
            &self.pool,
            content,
            instruction,
            truncation,
        )
        .await;
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

    /// What came of one content: nothing and a failure, if it could not be encoded.
    fn take<T>(
        &mut self,
        result: Result<T, EncodeError>,
        index: usize,
        path: fn(usize) -> Path,
    ) -> Result<Option<T>> {
        match result {
            Ok(one) => Ok(Some(one)),
            Err(EncodeError::Pool(error @ PoolError::Closed)) => {
                Err(Error::Unavailable(error.to_string()))
            }
            Err(EncodeError::RequestTooLong { tokens, limit }) => {
                let given = format!("has at least {tokens} tokens");
                let message = format!("{given}, limit max_queued_tokens={limit}");
                Err(Error::invalid("request", message))
            }
            Err(error) => {
                self.failures.push(ItemFailure::encode(path(index), &error));
                Ok(None)
            }
        }
    }

    /// Puts all in request order, complete sequences came first, and reports the query's cut.
    fn finish(&mut self, around: Around<'_>, query_cut: Option<Truncated>) {
        if let Around::Query(query) = around
            && let Some(cut) = heavier(query.truncated, query_cut)
        {
            self.truncations.push(report(0, InputRole::Query, &cut));
        }
        self.failures.sort_unstable_by_key(|failure| failure.index);
        if self.items.is_sorted() {
            return;
        }
        let mut order: Vec<usize> = (0..self.items.len()).collect();
        order.sort_by_key(|&at| self.items[at]);
        let in_order = |at: &usize| std::mem::take(&mut self.sequences[*at].token_ids);
        let token_ids: Vec<Vec<u32>> = order.iter().map(in_order).collect();
        let sequences = order
            .iter()
            .zip(token_ids)
            .map(|(&at, token_ids)| Sequence {
                token_ids,
                second_segment_start: self.sequences[at].second_segment_start,
            });
        self.sequences = sequences.collect();
        self.items = order.iter().map(|&at| self.items[at]).collect();
        self.parts = order
            .iter()
            .filter_map(|&at| self.parts.get(at).copied())
            .collect();
    }
}

fn query_error(error: &EncodeError) -> Error {
    match error {
        EncodeError::Instruction => Error::invalid("instruction", error.to_string()),
        EncodeError::InstructionTooLong {
            instruction_tokens,
            limit,
        } => {
            let message = format!("has {instruction_tokens} tokens, limit {limit}");
            Error::invalid("instruction", message)
        }
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
    TruncationReport {
        index,
        role: role.into(),
        tokens_given: wire_u32(cut.tokens_given),
        tokens_used: wire_u32(cut.tokens_used),
        side: wire_side(cut.side).into(),
    }
}

pub(crate) fn wire_side(side: Side) -> TruncationSide {
    match side {
        Side::Right => TruncationSide::Right,
        Side::Left => TruncationSide::Left,
    }
}
