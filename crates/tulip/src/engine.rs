//! The contract between scheduler and engine: batch in, lazy tensor out.

use std::collections::BTreeMap;
use std::sync::Arc;

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
    /// Of a pair: `{query}`, then `{document}`, perhaps `{instruction}` before it.
    pub pair: String,
    /// Of a query by itself: ends with `{query}`, perhaps with `{instruction}` before it.
    pub query: String,
    /// Of a document by itself: ends with `{document}`.
    pub document: String,
    /// Fills `{instruction}` where the request says nothing.
    pub default_instruction: String,
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
    /// Dimensions to which a vector may be cut.
    pub matryoshka_dimensions: Vec<u32>,
    /// Named prompts.
    pub prompts: Prompts,
    /// Prompts with places in them.
    pub templates: Templates,
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
    /// `output_width` float32 for each sequence, in batch order.
    ///
    /// # Errors
    /// [`StepError::Batch`] fails this batch only, [`StepError::Fatal`] ends the server.
    fn step(&mut self, batch: &Batch) -> Result<LazyTensor, StepError>;

    /// Called by the dispatch loop around every blocking wait. An engine that holds a lock which
    /// others need (the interpreter's) releases it here.
    fn wait(&mut self, wait: &mut (dyn FnMut() + Send)) {
        wait();
    }
}
