//! A step's work: sequences side by side without padding, and how they lie in the input buffer.

use std::sync::Arc;

use tokio::time::Instant;

use crate::engine::StepError;
use crate::error::Error;
use crate::job::Job;
use crate::lazy_tensor::LazyTensor;
use crate::sequence::Sequence;

/// How an engine wants its input laid out. Section after section, all int32:
///
/// ```text
/// cu_seqlens      [slots + 1]   first token of each sequence; padding slots repeat the last value
/// token_ids       [tokens]      padding rows hold token 0
/// positions       [tokens]      0, 1, … inside each sequence, plus `position_offset`
/// token_type_ids  [tokens]      only when `token_types`
/// ```
///
/// `tokens` and `slots` are the smallest bucket and tier that hold the batch; without buckets they
/// are exact. Where padding rows exist they form one sequence of their own (the slot after the last
/// real one), so a tier must hold the real sequences and one more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BatchLayout {
    /// Token counts to which a batch is padded, ascending; a larger batch is exact. Empty = exact.
    pub token_buckets: Vec<usize>,
    /// Sequence slots to which a batch is padded, ascending; a larger batch is exact.
    pub sequence_tiers: Vec<usize>,
    /// The model reads token types.
    pub token_types: bool,
    /// The step returns a row for each token, in the order of the input, not for each sequence.
    pub token_rows: bool,
    /// Added to each position (RoBERTa's positions begin at `pad_token_id + 1`).
    pub position_offset: u32,
}

/// Sizes of one batch in the input buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedShape {
    /// Tokens without padding.
    pub num_tokens: usize,
    /// Sequences without padding.
    pub num_sequences: usize,
    /// Tokens of the longest sequence; the one made of padding rows counts too.
    pub max_seqlen: usize,
    /// Token rows with padding.
    pub padded_tokens: usize,
    /// Sequence slots with padding.
    pub padded_sequences: usize,
}

impl BatchLayout {
    /// Sizes of a batch with padding.
    #[must_use]
    pub fn shape(&self, num_tokens: usize, num_sequences: usize, max_seqlen: usize) -> PackedShape {
        let padded_tokens = smallest_at_least(&self.token_buckets, num_tokens);
        let padding = padded_tokens - num_tokens;
        let slots = num_sequences + usize::from(padding > 0);
        PackedShape {
            num_tokens,
            num_sequences,
            max_seqlen: max_seqlen.max(padding),
            padded_tokens,
            padded_sequences: smallest_at_least(&self.sequence_tiers, slots),
        }
    }

    /// Length of the input buffer for a batch, in int32 values.
    #[must_use]
    pub fn buffer_len(&self, shape: &PackedShape) -> usize {
        shape.padded_sequences + 1 + shape.padded_tokens * (2 + usize::from(self.token_types))
    }
}

/// The first of `steps` (ascending) that is at least `value`, else `value`.
fn smallest_at_least(steps: &[usize], value: usize) -> usize {
    let at = steps.partition_point(|&step| step < value);
    steps.get(at).copied().unwrap_or(value)
}

/// The input buffer of an engine is too small for a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the batch needs {needed} int32 values of input buffer, there are {capacity}")]
pub struct BufferTooSmall {
    /// Values needed.
    pub needed: usize,
    /// Values there.
    pub capacity: usize,
}

/// One sequence of a job.
#[derive(Debug)]
pub(crate) struct BatchEntry {
    pub(crate) job: Arc<Job>,
    pub(crate) index: usize,
}

/// Sequences that run in one step, in order of arrival.
#[derive(Debug, Default)]
pub struct Batch {
    entries: Vec<BatchEntry>,
    num_tokens: usize,
    max_seqlen: usize,
    cost: u64,
}

impl Batch {
    /// Number of sequences.
    #[must_use]
    pub fn num_sequences(&self) -> usize {
        self.entries.len()
    }

    /// Tokens of all sequences together.
    #[must_use]
    pub fn num_tokens(&self) -> usize {
        self.num_tokens
    }

    /// Tokens of the longest sequence.
    #[must_use]
    pub fn max_seqlen(&self) -> usize {
        self.max_seqlen
    }

    /// Cost in token equivalents.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// The sequences, in batch order.
    pub fn sequences(&self) -> impl ExactSizeIterator<Item = &Sequence> {
        self.entries
            .iter()
            .map(|entry| &entry.job.sequences[entry.index])
    }

    /// Writes the batch into an engine's input buffer, see [`BatchLayout`].
    ///
    /// # Errors
    /// `out` is too short; nothing is written then.
    pub fn write_packed(
        &self,
        layout: &BatchLayout,
        out: &mut [i32],
    ) -> Result<PackedShape, BufferTooSmall> {
        let shape = layout.shape(self.num_tokens, self.num_sequences(), self.max_seqlen);
        let needed = layout.buffer_len(&shape);
        let capacity = out.len();
        let Some(out) = out.get_mut(..needed) else {
            return Err(BufferTooSmall { needed, capacity });
        };
        let (cu_seqlens, out) = out.split_at_mut(shape.padded_sequences + 1);
        let (token_ids, out) = out.split_at_mut(shape.padded_tokens);
        let (positions, token_types) = out.split_at_mut(shape.padded_tokens);

        let mut start = 0;
        let offset = layout.position_offset;
        cu_seqlens[0] = 0;
        for (slot, sequence) in self.sequences().enumerate() {
            let end = start + sequence.num_tokens();
            for (to, &id) in token_ids[start..end].iter_mut().zip(&sequence.token_ids) {
                *to = id.cast_signed();
            }
            for (to, position) in positions[start..end].iter_mut().zip(offset..) {
                *to = position.cast_signed();
            }
            if layout.token_types {
                for (position, to) in token_types[start..end].iter_mut().enumerate() {
                    *to = sequence.token_type(position);
                }
            }
            start = end;
            cu_seqlens[slot + 1] = index(end);
        }
        token_ids[start..].fill(0);
        positions[start..].fill(offset.cast_signed());
        if layout.token_types {
            token_types[start..].fill(0);
        }
        cu_seqlens[shape.num_sequences + 1..].fill(index(shape.padded_tokens));
        Ok(shape)
    }

    pub(crate) fn push(&mut self, job: &Arc<Job>, index: usize, cost: u64) {
        let num_tokens = job.sequences[index].num_tokens();
        self.entries.push(BatchEntry {
            job: Arc::clone(job),
            index,
        });
        self.num_tokens += num_tokens;
        self.max_seqlen = self.max_seqlen.max(num_tokens);
        self.cost = self.cost.saturating_add(cost);
    }

    /// Hands each row to its job.
    pub(crate) fn complete(
        &self,
        output: &LazyTensor,
        layout: &BatchLayout,
        started: Instant,
    ) -> Result<(), StepError> {
        let width = output.width();
        let needed = if layout.token_rows {
            self.num_tokens
        } else {
            self.entries.len()
        };
        if output.num_rows() < needed || width == 0 {
            return Err(StepError::Batch(format!(
                "the step returned {} rows of {width} values for {} sequences of {} tokens",
                output.num_rows(),
                self.entries.len(),
                self.num_tokens
            )));
        }
        let shape = layout.shape(self.num_tokens, self.num_sequences(), self.max_seqlen);
        let padding = (shape.padded_tokens - shape.num_tokens) as u64;
        let mut rest = output.rows();
        for run in self.runs() {
            let tokens_of = |entry: &BatchEntry| entry.job.sequences[entry.index].num_tokens();
            let run_tokens: usize = run.iter().map(tokens_of).sum();
            let padding_tokens = padding * run_tokens as u64 / (self.num_tokens as u64).max(1);
            let rows = run.iter().map(|entry| {
                let rows_of_one = if layout.token_rows {
                    tokens_of(entry)
                } else {
                    1
                };
                let (rows, after) = rest.split_at(rows_of_one * width);
                rest = after;
                (entry.index, rows)
            });
            run[0]
                .job
                .deliver(width, layout.token_rows, rows, started, padding_tokens);
        }
        Ok(())
    }

    /// Ends every job of the batch with an error.
    pub(crate) fn fail(&self, error: &Error) {
        for run in self.runs() {
            run[0].job.fail(error.clone());
        }
    }

    /// Neighbouring entries of one job.
    fn runs(&self) -> impl Iterator<Item = &[BatchEntry]> {
        self.entries.chunk_by(|a, b| Arc::ptr_eq(&a.job, &b.job))
    }
}

/// Token offsets are far below 2³¹: admission bounds a batch.
fn index(value: usize) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
