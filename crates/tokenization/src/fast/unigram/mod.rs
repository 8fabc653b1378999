//! Unigram of the SentencePiece family: XLM-RoBERTa and its kin.
//!
//! A text is normalized as a whole (`steps`), split where metaspaces begin words, and each word
//! is written in the tokens with the highest sum of scores (`viterbi`).

mod precompiled;
mod steps;
mod viterbi;

use serde::Deserialize;
use tokenizers::models::unigram::Unigram as Model;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};

use super::{FastEncoder, NotCovered, Source};
use steps::Steps;
use viterbi::Vocabulary;

/// Buffers that stay between texts.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Between normalizers.
    other: String,
    /// A word with its metaspace.
    word: String,
    viterbi: viterbi::Scratch,
}

/// What `tokenizer.json` says about its model, beside the vocabulary.
#[derive(Deserialize)]
struct File {
    model: UnknownToken,
}

#[derive(Deserialize)]
struct UnknownToken {
    unk_id: Option<u32>,
}

#[derive(Debug)]
struct Unigram {
    steps: Steps,
    /// White space of all kinds separates words, and is in none.
    splits_white_space: bool,
    /// Whether words get a metaspace that have none: all, or that which starts the text.
    prepend: PrependScheme,
    /// Each metaspace begins a word of its own.
    splits_metaspace: bool,
    vocabulary: Vocabulary,
}

const METASPACE: &str = "\u{2581}";
/// Its first byte.
const METASPACE_BYTE: u8 = 0xe2;

/// The encoder of a Unigram tokenizer.
pub(super) fn encoder_of(
    source: Source<'_>,
    model: &Model,
) -> Result<Box<dyn FastEncoder>, NotCovered> {
    let (splits_white_space, metaspace) = split_of(source.reference.get_pre_tokenizer())?;
    if metaspace.get_replacement().to_string() != METASPACE {
        let replacement = metaspace.get_replacement();
        return Err(NotCovered(format!(
            "Unigram with {replacement:?} for spaces"
        )));
    }
    if metaspace.prepend_scheme == PrependScheme::First
        && (splits_white_space || source.has_normalized_tokens)
    {
        // Which part is the first the crate decides by places in the original text.
        return Err(NotCovered("Unigram with prepend_scheme first".to_owned()));
    }
    if model.alpha.is_some_and(|alpha| alpha != 0.0) {
        return Err(NotCovered("Unigram that draws samples".to_owned()));
    }
    let File { model: file } = serde_json::from_slice(source.tokenizer_json)
        .map_err(|error| NotCovered(format!("model of tokenizer.json: {error}")))?;
    let tokens: Vec<(&str, f64)> = model
        .iter()
        .map(|(token, score)| (token.as_str(), *score))
        .collect();
    let unknown = file
        .unk_id
        .filter(|&id| (id as usize) < tokens.len())
        .ok_or_else(|| NotCovered("Unigram without unk_id".to_owned()))?;
    Ok(Box::new(Unigram {
        steps: Steps::of(source.reference.get_normalizer())?,
        splits_white_space,
        prepend: metaspace.prepend_scheme,
        splits_metaspace: metaspace.split,
        vocabulary: Vocabulary::new(&tokens, unknown, model.min_score, model.byte_fallback())?,
    }))
}

/// Whether white space is split off first, and the metaspaces.
fn split_of(pre_tokenizer: Option<&PreTokenizerWrapper>) -> Result<(bool, &Metaspace), NotCovered> {
    match pre_tokenizer {
        Some(PreTokenizerWrapper::Metaspace(metaspace)) => Ok((false, metaspace)),
        Some(PreTokenizerWrapper::Sequence(sequence)) => match sequence.as_ref() {
            [
                PreTokenizerWrapper::WhitespaceSplit(_),
                PreTokenizerWrapper::Metaspace(metaspace),
            ] => Ok((true, metaspace)),
            [PreTokenizerWrapper::Metaspace(metaspace)] => Ok((false, metaspace)),
            _ => Err(NotCovered("Unigram with another Sequence".to_owned())),
        },
        other => Err(NotCovered(format!(
            "Unigram with the pre-tokenizer {other:?}"
        ))),
    }
}

impl Unigram {
    /// Appends the ids of one part between white space, or of a whole text; not empty.
    fn encode_part(
        &self,
        part: &str,
        starts_text: bool,
        limit: usize,
        scratch: &mut Scratch,
        ids: &mut Vec<u32>,
    ) {
        let prepends = match self.prepend {
            PrependScheme::Always => true,
            PrependScheme::First => starts_text,
            PrependScheme::Never => false,
        };
        let Scratch { word, viterbi, .. } = scratch;
        word.clear();
        if prepends && !part.starts_with([' ', '\u{2581}']) {
            word.push_str(METASPACE);
        }
        let mut rest = part;
        // Spaces are metaspaces; where they split, what came before them is a word.
        while let Some((before, after)) = next_space(rest) {
            word.push_str(before);
            if self.splits_metaspace && !word.is_empty() {
                self.vocabulary.encode(word, limit, viterbi, ids);
                if ids.len() >= limit {
                    return;
                }
                word.clear();
            }
            word.push_str(METASPACE);
            rest = after;
        }
        word.push_str(rest);
        self.vocabulary.encode(word, limit, viterbi, ids);
    }
}

/// What is before and after the first space or metaspace.
#[inline]
fn next_space(text: &str) -> Option<(&str, &str)> {
    let bytes = text.as_bytes();
    for at in memchr::memchr2_iter(b' ', METASPACE_BYTE, bytes) {
        if bytes[at] == b' ' {
            return Some((&text[..at], &text[at + 1..]));
        }
        if bytes[at..].starts_with(METASPACE.as_bytes()) {
            return Some((&text[..at], &text[at + METASPACE.len()..]));
        }
    }
    None
}

impl FastEncoder for Unigram {
    fn name(&self) -> &'static str {
        "unigram"
    }

    fn normalize(&self, text: &str, normalized: &mut String, scratch: &mut super::Scratch) {
        self.steps
            .normalize(text, normalized, &mut scratch.unigram.other);
    }

    fn encode_normalized(
        &self,
        normalized: &str,
        starts_text: bool,
        limit: usize,
        scratch: &mut super::Scratch,
        ids: &mut Vec<u32>,
    ) {
        let scratch = &mut scratch.unigram;
        if !self.splits_white_space {
            if !normalized.is_empty() {
                self.encode_part(normalized, starts_text, limit, scratch, ids);
            }
            return;
        }
        for part in normalized.split_whitespace() {
            self.encode_part(part, starts_text, limit, scratch, ids);
            if ids.len() >= limit {
                return;
            }
        }
    }
}

#[cfg(test)]
#[path = "unigram_tests.rs"]
mod tests;
