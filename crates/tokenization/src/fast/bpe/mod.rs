//! Byte-pair encoding (BPE).
//!
//! What happens to a text:
//!
//! 1. it is brought into form C, if the file says so and it is not yet (`nfc`);
//! 2. a hand-written scanner finds where words end (`scanner`, with the classes of `code_points`);
//! 3. a word seen before has its tokens in the thread's cache (`word_cache`);
//! 4. else it becomes symbols, bytes (`byte_level`) or characters (`metaspace`), which are merged
//!    (`merger`) as the model's list says (`merges`).

mod byte_level;
mod code_points;
#[cfg(test)]
mod fixtures;
mod merger;
mod merges;
mod metaspace;
mod model;
mod nfc;
mod scanner;
mod word_cache;

use std::fmt;

use tokenizers::SplitDelimiterBehavior;
use tokenizers::normalizers::{NormalizerWrapper, Replace};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::split::SplitPattern;

use self::byte_level::{ByteLevel, Preparation};
use self::code_points::CodePoints;
use self::merger::Merger;
use self::metaspace::Metaspace;
use self::model::{Model, not_covered};
use self::scanner::{CL100K, GPT2, Gpt2, Llama3, QWEN2, QWEN35, Qwen2, Qwen35, Scanner};
use self::word_cache::{Key, WordCache};
use super::{FastEncoder, NotCovered, Source};

/// What a thread keeps between texts.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Made at the first text: threads of other tokenizers have none.
    words: Option<WordCache>,
    merger: Merger,
    /// A text with a space before it.
    prefixed: String,
}

impl Scratch {
    /// Appends the ids of the words of `text`, until `ids` has `limit`. `word_end` says where the
    /// word at a place ends; `push_word` appends the ids of one that is not in the cache.
    #[inline]
    fn push_words(
        &mut self,
        text: &str,
        limit: usize,
        ids: &mut Vec<u32>,
        word_end: impl Fn(&[u8], usize) -> usize,
        push_word: impl Fn(&[u8], &mut Merger, &mut Vec<u32>),
    ) {
        let words = self.words.get_or_insert_default();
        let text = text.as_bytes();
        let mut start = 0;
        while start < text.len() && ids.len() < limit {
            let end = word_end(text, start);
            match Key::of(text, start, end) {
                Some(key) => {
                    if !words.get(&key, ids) {
                        let first = ids.len();
                        push_word(&text[start..end], &mut self.merger, ids);
                        words.insert(&key, &ids[first..]);
                    }
                }
                None => push_word(&text[start..end], &mut self.merger, ids),
            }
            start = end;
        }
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scratch").finish_non_exhaustive()
    }
}

/// The encoder of a BPE tokenizer.
///
/// # Errors
/// Its normalizer, pre-tokenizer or model is not one of those that we know.
pub(crate) fn encoder_of(source: Source<'_>) -> Result<Box<dyn FastEncoder>, NotCovered> {
    let normalizer = Normalizer::of(source)?;
    let splitter = Splitter::of(source)?;
    let nfc = match (normalizer, &splitter) {
        (Normalizer::Metaspace { prepends_space }, Splitter::None) => {
            let encoder = Metaspace::new(&Model::of(source)?, prepends_space)?;
            return Ok(Box::new(encoder));
        }
        (Normalizer::Metaspace { .. }, _) | (_, Splitter::None) => {
            return Err(not_covered(
                "this normalizer and this pre-tokenizer of a BPE together",
            ));
        }
        (Normalizer::None, _) => false,
        (Normalizer::Nfc, _) => true,
    };
    let code_points = CodePoints::get()
        .ok_or_else(|| not_covered("the engine of regular expressions has no Unicode classes"))?;
    let model = Model::of(source)?;
    match splitter {
        Splitter::None => Err(not_covered("byte-level BPE without words")),
        Splitter::Gpt2 { prefix_space } => {
            let preparation = Preparation { nfc, prefix_space };
            byte_level(&model, Gpt2(code_points), preparation, code_points)
        }
        Splitter::Pattern(pattern) => {
            let preparation = Preparation {
                nfc,
                prefix_space: false,
            };
            match pattern {
                GPT2 => byte_level(&model, Gpt2(code_points), preparation, code_points),
                CL100K => byte_level(&model, Llama3::new(code_points), preparation, code_points),
                QWEN2 => byte_level(&model, Qwen2::new(code_points), preparation, code_points),
                QWEN35 => byte_level(&model, Qwen35::new(code_points), preparation, code_points),
                _ => Err(not_covered(format!(
                    "the pre-tokenizer's pattern {pattern}"
                ))),
            }
        }
    }
}

fn byte_level<S: Scanner + 'static>(
    model: &Model,
    scanner: S,
    preparation: Preparation,
    code_points: &'static CodePoints,
) -> Result<Box<dyn FastEncoder>, NotCovered> {
    let encoder = ByteLevel::new(model, scanner, preparation, code_points)?;
    Ok(Box::new(encoder))
}

/// The normalizers that we know.
#[derive(Clone, Copy)]
enum Normalizer {
    None,
    Nfc,
    Metaspace { prepends_space: bool },
}

impl Normalizer {
    fn of(source: Source<'_>) -> Result<Self, NotCovered> {
        let steps = match source.reference.get_normalizer() {
            None => &[],
            Some(NormalizerWrapper::Sequence(sequence)) => sequence.as_ref(),
            Some(one) => std::slice::from_ref(one),
        };
        match steps {
            [] => Ok(Self::None),
            [NormalizerWrapper::NFC(_)] => Ok(Self::Nfc),
            [NormalizerWrapper::Replace(replace)] if is_space_symbol(replace) => {
                Ok(Self::Metaspace {
                    prepends_space: false,
                })
            }
            [
                NormalizerWrapper::Prepend(prepend),
                NormalizerWrapper::Replace(replace),
            ] if prepend.prepend == "\u{2581}" && is_space_symbol(replace) => Ok(Self::Metaspace {
                prepends_space: true,
            }),
            _ => Err(not_covered("the normalizer of a BPE")),
        }
    }
}

/// Writes U+2581 for each space.
fn is_space_symbol(replace: &Replace) -> bool {
    Replace::new(" ", "\u{2581}").is_ok_and(|known| *replace == known)
}

/// The pre-tokenizers that we know.
enum Splitter<'a> {
    /// A text is one word.
    None,
    /// The `ByteLevel` pre-tokenizer with its own pattern.
    Gpt2 { prefix_space: bool },
    /// A pattern of the file, then `ByteLevel` for the bytes alone.
    Pattern(&'a str),
}

impl<'a> Splitter<'a> {
    fn of(source: Source<'a>) -> Result<Self, NotCovered> {
        use PreTokenizerWrapper::{ByteLevel, Sequence, Split};
        let steps = match source.reference.get_pre_tokenizer() {
            None => &[],
            Some(Sequence(sequence)) => sequence.as_ref(),
            Some(one) => std::slice::from_ref(one),
        };
        match steps {
            [] => Ok(Self::None),
            // Gemma's file splits at spaces, of which its normalizer leaves none.
            [Split(split)] if split.pattern == SplitPattern::from(" ") && !split.invert => {
                Ok(Self::None)
            }
            [ByteLevel(bytes)] if bytes.use_regex => Ok(Self::Gpt2 {
                prefix_space: bytes.add_prefix_space,
            }),
            [Split(split), ByteLevel(bytes)]
                if split.behavior == SplitDelimiterBehavior::Isolated
                    && !split.invert
                    && !bytes.use_regex
                    && !bytes.add_prefix_space =>
            {
                match &split.pattern {
                    SplitPattern::Regex(pattern) => Ok(Self::Pattern(pattern)),
                    SplitPattern::String(_) => Err(not_covered("a BPE split at a string")),
                }
            }
            _ => Err(not_covered("the pre-tokenizer of a BPE")),
        }
    }
}
