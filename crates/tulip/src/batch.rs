//! A step's work: sequences side by side without padding, and how they lie in the input buffer.

use std::sync::Arc;

use crate::job::Job;
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
    /// Tokens of the longest sequence.
    pub max_seqlen: usize,
    /// Token rows with padding.
    pub padded_tokens: usize,
    /// Sequence slots with padding.
    pub padded_sequences: usize,
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
    pub(crate) entries: Vec<BatchEntry>,
    pub(crate) num_tokens: usize,
    pub(crate) max_seqlen: usize,
    pub(crate) cost: u64,
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
        self.entries.iter().map(|entry| &entry.job.sequences[entry.index])
    }
}
