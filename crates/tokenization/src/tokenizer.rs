//! The model's tokenizer: loading, texts to segments, checks of ids.

use std::borrow::Cow;

use tokenizers::normalizers::{Lowercase, NormalizerWrapper, Sequence};

use crate::error::{EncodeError, LoadError};
use crate::fast::FastTokenizer;
use crate::layout::Layout;
use crate::pool::caught;
use crate::prefix::PrefixRule;
use crate::strip::strip;
use crate::template::CompiledTemplate;
use crate::truncation::Side;

/// What the model says beside its `tokenizer.json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenizerOptions {
    /// Longest sequence, special tokens included.
    pub max_sequence_tokens: usize,
    /// White space around each text goes, as by Python's `str.strip()`, after the prompt was put
    /// before it.
    pub strip: bool,
    /// A lower-casing normalizer comes first unless the tokenizer has one: what
    /// sentence-transformers makes of `do_lower_case`.
    pub lower_case: bool,
    /// Token ids are below this.
    pub vocab_size: u32,
}

/// A query or a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A text; may be empty.
    Text(String),
    /// Its own tokens, without special tokens; may be empty.
    TokenIds(Vec<u32>),
}

impl Content {
    /// Bytes that have to be tokenized.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::TokenIds(_) => 0,
        }
    }
}

/// A loaded `tokenizer.json`. Truncation and padding set in it are ignored.
#[derive(Debug)]
pub struct Tokenizer {
    pub(crate) reference: tokenizers::Tokenizer,
    /// Gives the same ids; `None` where we have no encoder that does.
    fast: Option<FastTokenizer>,
    pub(crate) single: Layout,
    pub(crate) pair: Layout,
    prefix_rule: Option<PrefixRule>,
    pub(crate) template: Option<CompiledTemplate>,
    pub(crate) options: TokenizerOptions,
}

impl Tokenizer {
    /// Loads the contents of a `tokenizer.json` and learns where its special tokens go.
    ///
    /// # Errors
    /// It cannot be read, or does not fit the model's `options`.
    pub fn from_json(tokenizer_json: &[u8], options: TokenizerOptions) -> Result<Self, LoadError> {
        Self::load(tokenizer_json, options, false)
    }

    /// As [`Tokenizer::from_json`]; with `plain_text`, special tokens in texts are text.
    pub(crate) fn load(
        tokenizer_json: &[u8],
        options: TokenizerOptions,
        plain_text: bool,
    ) -> Result<Self, LoadError> {
        let reference = caught(|| {
            let mut reference = tokenizers::Tokenizer::from_bytes(tokenizer_json)?;
            reference.with_truncation(None)?.with_padding(None);
            reference.set_encode_special_tokens(plain_text);
            if options.lower_case {
                lower_case(&mut reference)?;
            }
            Ok(reference)
        })
        .map_err(LoadError::Json)?;
        let single = Layout::of_single(&reference)?;
        let pair = Layout::of_pair(&reference)?;
        if single.num_special() >= options.max_sequence_tokens {
            return Err(LoadError::SequenceTooShort {
                max_sequence_tokens: options.max_sequence_tokens,
                special_tokens: single.num_special(),
            });
        }
        let vocab_size = options.vocab_size;
        if let Some(id) = single.special_token_ids().find(|&id| id >= vocab_size) {
            let token = reference.id_to_token(id).unwrap_or_default();
            return Err(LoadError::SpecialTokenOutOfRange {
                token,
                id,
                vocab_size,
            });
        }
        let prefix_rule = PrefixRule::of(&reference);
        let fast = match FastTokenizer::of(&reference, tokenizer_json) {
            Ok(fast) => {
                tracing::info!(encoder = fast.name(), "fast tokenizer");
                Some(fast)
            }
            Err(reason) => {
                tracing::info!(%reason, "the tokenizers crate makes the token ids");
                None
            }
        };
        Ok(Self {
            reference,
            fast,
            single,
            pair,
            prefix_rule,
            template: None,
            options,
        })
    }

    /// What makes the token ids: the name of one of our own encoders, or `"tokenizers"` for the
    /// crate. The ids are the same.
    #[must_use]
    pub fn encoder_name(&self) -> &'static str {
        self.fast.as_ref().map_or("tokenizers", FastTokenizer::name)
    }

    /// Whether one of our own encoders makes the token ids.
    pub(crate) fn is_fast(&self) -> bool {
        self.fast.is_some()
    }

    /// Special tokens of a single text.
    #[must_use]
    pub fn num_special_single(&self) -> usize {
        self.single.num_special()
    }

    /// Special tokens of a pair; of a template only what follows the document.
    #[must_use]
    pub fn num_special_pair(&self) -> usize {
        match &self.template {
            Some(template) => template.suffix().len(),
            None => self.pair.num_special(),
        }
    }

    /// Whether a request may bring an instruction for its pairs.
    #[must_use]
    pub fn has_instruction(&self) -> bool {
        self.template
            .as_ref()
            .is_some_and(CompiledTemplate::has_instruction)
    }

    /// The text of each token, empty for ids that no token has.
    #[must_use]
    pub fn tokens_of(&self, token_ids: &[u32]) -> Vec<String> {
        token_ids
            .iter()
            .map(|&id| self.reference.id_to_token(id).unwrap_or_default())
            .collect()
    }

    /// The text's own tokens: no special tokens around them, no truncation.
    ///
    /// # Errors
    /// The `tokenizers` crate refuses the text, or the model has no embedding for a token.
    pub fn encode_segment(&self, text: &str) -> Result<Vec<u32>, EncodeError> {
        self.segment(text, usize::MAX, Side::Right)
    }

    /// As [`Tokenizer::encode_segment`], appended to `token_ids`: with one of our own encoders
    /// nothing is allocated once a thread has read texts like this one, of up to 256 KiB.
    ///
    /// # Errors
    /// As there; `token_ids` is as it was.
    pub fn encode_segment_into(
        &self,
        text: &str,
        token_ids: &mut Vec<u32>,
    ) -> Result<(), EncodeError> {
        let before = token_ids.len();
        self.segment_into(text, usize::MAX, Side::Right, token_ids)
            .inspect_err(|_| token_ids.truncate(before))
    }

    /// Checks a complete sequence that came as token ids.
    ///
    /// # Errors
    /// It is empty, longer than the model's limit, or has an id that the model does not know.
    pub fn check_sequence(&self, token_ids: &[u32]) -> Result<(), EncodeError> {
        let limit = self.options.max_sequence_tokens;
        if token_ids.is_empty() {
            return Err(EncodeError::Empty);
        }
        if token_ids.len() > limit {
            return Err(EncodeError::TooLong {
                tokens: token_ids.len(),
                limit,
            });
        }
        self.check_range(token_ids)
    }

    /// Own tokens of `prompt` and `content`, or of a beginning with more than `usable` tokens.
    pub(crate) fn content<'a>(
        &self,
        prompt: &str,
        content: &'a Content,
        usable: usize,
        side: Side,
    ) -> Result<Cow<'a, [u32]>, EncodeError> {
        match content {
            Content::Text(text) if prompt.is_empty() => {
                self.segment(text, usable, side).map(Cow::Owned)
            }
            Content::Text(text) => self
                .segment(&[prompt, text].concat(), usable, side)
                .map(Cow::Owned),
            Content::TokenIds(token_ids) => {
                self.check_range(token_ids)?;
                if prompt.is_empty() {
                    return Ok(Cow::Borrowed(token_ids));
                }
                let mut segment = self.encode_segment(prompt)?;
                segment.extend_from_slice(token_ids);
                Ok(Cow::Owned(segment))
            }
        }
    }

    /// The tokens of `text`, or of a beginning of it with more than `usable` tokens.
    pub(crate) fn segment(
        &self,
        text: &str,
        usable: usize,
        side: Side,
    ) -> Result<Vec<u32>, EncodeError> {
        // Enough for nearly all texts; never more than a byte has tokens.
        let mut token_ids = Vec::with_capacity(text.len().min(usable.saturating_add(1)) / 3 + 1);
        self.segment_into(text, usable, side, &mut token_ids)?;
        Ok(token_ids)
    }

    /// Appends them to `token_ids`, of which nothing is certain after an error.
    fn segment_into(
        &self,
        text: &str,
        usable: usize,
        side: Side,
        token_ids: &mut Vec<u32>,
    ) -> Result<(), EncodeError> {
        let before = token_ids.len();
        let text = if self.options.strip {
            strip(text)
        } else {
            text
        };
        // Longer texts are not read to their end where that changes nothing but the count.
        let mut min_bytes = usable
            .saturating_mul(PREFIX_BYTES_PER_TOKEN)
            .max(PREFIX_MIN_BYTES);
        if side == Side::Left || min_bytes > text.len() / 2 {
            return self.tokenize(text, usize::MAX, token_ids);
        }
        // One more than can be used shows that there is more.
        let limit = usable.saturating_add(1);
        if let Some(rule) = self.prefix_rule {
            // Longer and longer beginnings, until reading the rest costs no more than another try.
            while min_bytes <= text.len() / 2 {
                let Some(end) = rule.prefix_end(text, min_bytes) else {
                    break;
                };
                self.tokenize(&text[..end], limit, token_ids)?;
                if token_ids.len() - before > usable {
                    return Ok(());
                }
                token_ids.truncate(before);
                min_bytes = min_bytes.saturating_mul(4);
            }
        }
        self.tokenize(text, limit, token_ids)
    }

    /// Appends the tokens of `text`, or of a beginning of it with at least `limit` tokens.
    fn tokenize(
        &self,
        text: &str,
        limit: usize,
        token_ids: &mut Vec<u32>,
    ) -> Result<(), EncodeError> {
        let before = token_ids.len();
        match &self.fast {
            Some(fast) => fast.encode(text, limit.saturating_add(before), token_ids),
            None => {
                let encoding = caught(|| self.reference.encode_fast(text, false))
                    .map_err(EncodeError::Tokenizer)?;
                token_ids.extend_from_slice(encoding.get_ids());
            }
        }
        self.check_range(&token_ids[before..])
    }

    fn check_range(&self, token_ids: &[u32]) -> Result<(), EncodeError> {
        let vocab_size = self.options.vocab_size;
        match token_ids.iter().position(|&id| id >= vocab_size) {
            None => Ok(()),
            Some(position) => {
                let id = token_ids[position];
                Err(EncodeError::TokenIdOutOfRange {
                    position,
                    id,
                    vocab_size,
                })
            }
        }
    }
}

/// First try for a text far too long: enough for the tokens wanted of nearly all texts.
const PREFIX_BYTES_PER_TOKEN: usize = 6;
/// Shorter texts are read whole.
const PREFIX_MIN_BYTES: usize = 256;

/// Lower-cases before all else, unless that is in the tokenizer already.
fn lower_case(reference: &mut tokenizers::Tokenizer) -> tokenizers::Result<()> {
    let lower = NormalizerWrapper::Lowercase(Lowercase);
    let normalizers = match reference.get_normalizer() {
        None => vec![lower],
        Some(NormalizerWrapper::Lowercase(_)) => return Ok(()),
        Some(NormalizerWrapper::Sequence(sequence)) => {
            let sequence = sequence.as_ref();
            if sequence
                .iter()
                .any(|one| matches!(one, NormalizerWrapper::Lowercase(_)))
            {
                return Ok(());
            }
            [&[lower], sequence].concat()
        }
        Some(other) => vec![lower, other.clone()],
    };
    reference.with_normalizer(Some(Sequence::new(normalizers)))?;
    Ok(())
}

#[cfg(test)]
#[path = "tokenizer_tests.rs"]
mod tests;
