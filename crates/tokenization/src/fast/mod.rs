//! Encoders of our own that give exactly the ids of the `tokenizers` crate, several times faster.
//!
//! A text runs through the same stages as in the crate:
//!
//! 1. added tokens that match the raw text split it (`added_tokens`);
//! 2. the [`FastEncoder`] normalizes each part between them; where the file has added tokens that
//!    match normalized text, these split it once more;
//! 3. it splits each part into words and looks up their tokens.
//!
//! Which encoder, if any, is decided when a `tokenizer.json` is loaded: each looks at the
//! normalizer, pre-tokenizer and model, and refuses with [`NotCovered`] whatever it does not know.
//! Then `self_check` compares it with the crate. What is refused or differs is left to the crate.

mod added_tokens;
mod bpe;
mod code_points;
#[cfg(test)]
mod comparison;
#[cfg(test)]
mod random_text;
mod self_check;
mod trie;
mod unigram;
mod word_piece;

use std::cell::RefCell;
use std::fmt;

use thread_local::ThreadLocal;

use added_tokens::{AddedTokens, Part};

/// Why a tokenizer is left to the `tokenizers` crate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NotCovered(pub(crate) String);

/// What an encoder is built from.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    /// The loaded tokenizer, with the normalizer that it really has.
    pub(crate) reference: &'a tokenizers::Tokenizer,
    /// The file, for what `reference` does not show of its model.
    pub(crate) tokenizer_json: &'a [u8],
    /// Whether added tokens are looked for in normalized text.
    pub(crate) has_normalized_tokens: bool,
}

/// Normalizer, pre-tokenizer and model in one.
pub(crate) trait FastEncoder: fmt::Debug + Send + Sync {
    /// Name for logs, such as `"unigram"`.
    fn name(&self) -> &'static str;

    /// Appends the normalized `text` to `normalized`.
    fn normalize(&self, text: &str, normalized: &mut String, scratch: &mut Scratch);

    /// Appends the ids of normalized text. Where `starts_text`, nothing of the text came before.
    ///
    /// May stop as soon as `ids` has `limit` ids that no later text can change; all that it has
    /// appended when it returns must be certain.
    fn encode_normalized(
        &self,
        normalized: &str,
        starts_text: bool,
        limit: usize,
        scratch: &mut Scratch,
        ids: &mut Vec<u32>,
    );

    /// Both in one: appends the ids of `text`, which has no added token in it.
    fn encode(
        &self,
        text: &str,
        starts_text: bool,
        limit: usize,
        scratch: &mut Scratch,
        ids: &mut Vec<u32>,
    ) {
        let mut normalized = std::mem::take(&mut scratch.normalized);
        normalized.clear();
        self.normalize(text, &mut normalized, scratch);
        self.encode_normalized(&normalized, starts_text, limit, scratch, ids);
        scratch.normalized = normalized;
    }
}

/// Buffers of one thread for one tokenizer. They grow to what texts need and stay, but for those of
/// texts beyond [`LONGEST_KEPT_BYTES`].
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// One part of a text, normalized.
    normalized: String,
    /// What byte-level BPE keeps: words seen before, merges under way.
    pub(crate) bpe: bpe::Scratch,
    unigram: unigram::Scratch,
    word_piece: word_piece::Scratch,
}

/// A longer text is rare, and may need a hundred times its length: its buffers go with it.
const LONGEST_KEPT_BYTES: usize = 256 * 1024;

/// A tokenizer whose ids come from our own encoder.
#[derive(Debug)]
pub(crate) struct FastTokenizer {
    added_tokens: AddedTokens,
    encoder: Box<dyn FastEncoder>,
    scratch: ThreadLocal<RefCell<Scratch>>,
}

impl FastTokenizer {
    /// The fast path of `reference`, loaded from `tokenizer_json`.
    ///
    /// # Errors
    /// No encoder covers it, or the one that should does not give the same ids.
    pub(crate) fn of(
        reference: &tokenizers::Tokenizer,
        tokenizer_json: &[u8],
    ) -> Result<Self, NotCovered> {
        let added_tokens = AddedTokens::of(reference)?;
        let encoder = encoder_of(Source {
            reference,
            tokenizer_json,
            has_normalized_tokens: added_tokens.has_normalized(),
        })?;
        let fast = Self::new(added_tokens, encoder);
        match self_check::first_difference(&fast, reference) {
            None => Ok(fast),
            Some(difference) => {
                // It should cover this file: somebody has to look at it.
                tracing::warn!(
                    encoder = fast.encoder.name(),
                    %difference,
                    "the fast tokenizer differs from the tokenizers crate, which is used instead"
                );
                Err(NotCovered(difference.to_string()))
            }
        }
    }

    /// Without the check.
    fn new(added_tokens: AddedTokens, encoder: Box<dyn FastEncoder>) -> Self {
        Self {
            added_tokens,
            encoder,
            scratch: ThreadLocal::new(),
        }
    }

    /// Name of the encoder.
    pub(crate) fn name(&self) -> &'static str {
        self.encoder.name()
    }

    /// Appends the ids of `text`, no special tokens around them.
    ///
    /// May stop as soon as `ids` has `limit` ids that the rest of the text cannot change.
    pub(crate) fn encode(&self, text: &str, limit: usize, ids: &mut Vec<u32>) {
        let mut scratch = self.scratch.get_or_default().borrow_mut();
        self.encode_with(&mut scratch, text, limit, ids);
        if text.len() > LONGEST_KEPT_BYTES {
            *scratch = Scratch::default();
        }
    }

    fn encode_with(&self, scratch: &mut Scratch, text: &str, limit: usize, ids: &mut Vec<u32>) {
        for part in self.added_tokens.raw.split(text) {
            match part {
                Part::Token(id) => ids.push(id),
                Part::Text { text, start } if self.added_tokens.has_normalized() => {
                    self.encode_with_normalized_tokens(text, start == 0, limit, scratch, ids);
                }
                Part::Text { text, start } => {
                    self.encoder.encode(text, start == 0, limit, scratch, ids);
                }
            }
            if ids.len() >= limit {
                return;
            }
        }
    }

    fn encode_with_normalized_tokens(
        &self,
        text: &str,
        starts_text: bool,
        limit: usize,
        scratch: &mut Scratch,
        ids: &mut Vec<u32>,
    ) {
        let mut normalized = std::mem::take(&mut scratch.normalized);
        normalized.clear();
        self.encoder.normalize(text, &mut normalized, scratch);
        for part in self.added_tokens.normalized.split(&normalized) {
            match part {
                Part::Token(id) => ids.push(id),
                Part::Text { text, start } => {
                    let starts_text = starts_text && start == 0;
                    self.encoder
                        .encode_normalized(text, starts_text, limit, scratch, ids);
                }
            }
            if ids.len() >= limit {
                break;
            }
        }
        scratch.normalized = normalized;
    }
}

/// The encoder that covers the tokenizer.
fn encoder_of(source: Source<'_>) -> Result<Box<dyn FastEncoder>, NotCovered> {
    use tokenizers::ModelWrapper;
    match source.reference.get_model() {
        ModelWrapper::BPE(_) => bpe::encoder_of(source),
        ModelWrapper::WordPiece(_) => word_piece::encoder_of(source),
        ModelWrapper::Unigram(model) => unigram::encoder_of(source, model),
        ModelWrapper::WordLevel(_) => Err(NotCovered("the model is a WordLevel".to_owned())),
    }
}
