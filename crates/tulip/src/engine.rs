//! The contract between scheduler and engine: batch in, lazy tensor out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub use tokenization::Side;
use tokenization::TruncationOptions;

use crate::batch::{Batch, BatchLayout};
use crate::lazy_tensor::LazyTensor;

/// What a model is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// One vector for each sequence; scores are similarities of vectors.
    Embed,
    /// A cross-encoder with one logit.
    Score,
    /// A classifier of pairs or texts with several labels.
    Classify,
}

/// How two vectors become a score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Similarity {
    /// Cosine.
    Cosine,
    /// Inner product.
    Dot,
    /// Minus the Euclidean distance.
    Euclidean,
    /// Minus the Manhattan distance.
    Manhattan,
}

/// How logits become a calibrated score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// The logit itself.
    Identity,
    /// Logistic function of each logit.
    Sigmoid,
    /// Softmax over the labels.
    Softmax,
}

/// Texts put around the parts before tokenization.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prompts {
    /// Named prompts, such as `query` → `"query: "`.
    pub named: BTreeMap<String, String>,
    /// The prompt used where the request names none.
    pub default_name: Option<String>,
}

/// Prompts with places in them. Empty = the model has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Templates {
    /// Of a pair: `{query}`, then `{document}`, perhaps `{instruction}` before it; `{split}` where
    /// what is before and after it is tokenized apart; `{if instruction}` and `{end}` around a part
    /// that is there only with an instruction.
    pub pair: String,
    /// Of a query by itself: ends with `{query}`, perhaps with `{instruction}` before it.
    pub query: String,
    /// Of a document by itself: ends with `{document}`.
    pub document: String,
    /// Fills `{instruction}` where the request says nothing.
    pub default_instruction: String,
}

/// A form in which a model gives its vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// One vector for each sequence.
    Dense,
    /// Weights of tokens of the vocabulary.
    Sparse,
    /// One vector for each token, for late interaction.
    Tokens,
}

/// What the rows of an embedding model hold.
///
/// Without `token_rows` the row of a sequence is its dense vector, or, of a sparse model, a weight
/// for each entry of the vocabulary. With them (`BatchLayout::token_rows`) the first `dimensions`
/// values of a token's row are its vector; the sequence's dense vector stands in the row of the
/// first token, from `dense_start` on; the last value is the token's weight, if there are any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outputs {
    /// The first is what Embed gives unasked, and what Score compares.
    pub kinds: Vec<Output>,
    /// Values of a vector; 0 = the whole row.
    pub dimensions: usize,
    /// Of rows of tokens: where in the first one the dense vector begins.
    pub dense_start: usize,
    /// The first token of a sequence has no vector of its own.
    pub skip_first_token: bool,
    /// A late interaction is the mean over the query's tokens, not the sum.
    pub max_sim_mean: bool,
    /// Tokens without a weight: special ones.
    pub skip_token_ids: Vec<u32>,
    /// 8-bit values are of the hyperbolic tangent of each value, as the model was trained for;
    /// else vectors of length 1 are scaled.
    pub int8_of_tanh: bool,
}

impl Default for Outputs {
    fn default() -> Self {
        Self {
            kinds: vec![Output::Dense],
            dimensions: 0,
            dense_start: 0,
            skip_first_token: false,
            max_sim_mean: false,
            skip_token_ids: Vec::new(),
            int8_of_tanh: false,
        }
    }
}

/// What is served, fixed once loaded.
#[derive(Debug, Clone)]
pub struct ModelInfo {
    /// Name that clients see.
    pub name: String,
    /// Class name in the checkpoint's configuration.
    pub architecture: String,
    /// What the model is for.
    pub task: Task,
    /// Width of an output row: dimensions of the vector, or number of labels.
    pub output_width: usize,
    /// Longest sequence, special tokens included.
    pub max_sequence_tokens: usize,
    /// Token ids are below this.
    pub vocab_size: u32,
    /// `mean`, `cls`, `last_token`, …
    pub pooling: String,
    /// Rows have Euclidean length 1.
    pub normalized: bool,
    /// How two vectors become a score.
    pub similarity: Similarity,
    /// How logits become a score.
    pub activation: Activation,
    /// Label names by index; empty for embedding models.
    pub labels: Vec<String>,
    /// Index of the label whose score `Score` returns.
    pub positive_label: usize,
    /// Forms of an embedding model's vectors.
    pub outputs: Outputs,
    /// Dimensions to which a vector may be cut.
    pub matryoshka_dimensions: Vec<u32>,
    /// Named prompts.
    pub prompts: Prompts,
    /// Prompts with places in them.
    pub templates: Templates,
    /// Which end of a text that is too long is cut off, where the request does not say.
    pub truncation_side: Side,
    /// Outer white space is removed before tokenization.
    pub strip: bool,
    /// Text is lower-cased before tokenization.
    pub lower_case: bool,
    /// Weight and activation type, such as `float32`.
    pub dtype: String,
    /// Such as `cpu` or `cuda:0`.
    pub device: String,
    /// Hash of weights, tokenizer, template, dtype and version.
    pub fingerprint: String,
    /// Contents of `tokenizer.json`.
    pub tokenizer_json: Arc<[u8]>,
    /// How batches are laid out for this engine.
    pub layout: BatchLayout,
}

impl ModelInfo {
    /// Values of a dense vector, or of a token's.
    #[must_use]
    pub fn dimensions(&self) -> usize {
        match self.outputs.dimensions {
            0 => self.output_width,
            dimensions => dimensions,
        }
    }

    /// Whether calibrated scores are probabilities.
    #[must_use]
    pub fn gives_probabilities(&self) -> bool {
        self.task != Task::Embed && self.activation.gives_probabilities()
    }

    /// How a text that is too long is cut where the request does not say.
    #[must_use]
    pub fn truncation(&self) -> TruncationOptions {
        TruncationOptions {
            side: self.truncation_side,
            ..TruncationOptions::to(self.max_sequence_tokens)
        }
    }
}

/// What the engine's CUDA graphs did since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GraphCounters {
    /// Steps that ran kernel by kernel.
    pub eager_steps: u64,
    /// Steps that were one launch of a graph.
    pub replayed_steps: u64,
    /// Graphs captured; all are kept.
    pub captures: u64,
    /// Shapes whose capture failed; they stay eager.
    pub failed_captures: u64,
    /// Time that captures took.
    pub capture_time: Duration,
    /// Device memory of the graphs.
    pub bytes: u64,
}

/// Why a step failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// This batch failed; the engine goes on.
    #[error("{0}")]
    Batch(String),
    /// The engine is broken for good (a sticky CUDA error).
    #[error("{0}")]
    Fatal(String),
}

/// Runs batches. Owned by one thread.
pub trait Engine {
    /// What is served.
    fn info(&self) -> &ModelInfo;

    /// Starts the computation of `batch` and returns without waiting for it: one row of
    /// `output_width` float32 for each sequence, in batch order, or for each token of each
    /// sequence (`BatchLayout::token_rows`).
    ///
    /// # Errors
    /// [`StepError::Batch`] fails this batch only, [`StepError::Fatal`] ends the server.
    fn step(&mut self, batch: &Batch) -> Result<LazyTensor, StepError>;

    /// What its graphs did so far; `None` on devices without graphs. Called after each step.
    fn graphs(&self) -> Option<GraphCounters> {
        None
    }

    /// Called by the dispatch loop around every blocking wait. An engine that holds a lock which
    /// others need (the interpreter's) releases it here.
    fn wait(&mut self, wait: &mut (dyn FnMut() + Send)) {
        wait();
    }
}
