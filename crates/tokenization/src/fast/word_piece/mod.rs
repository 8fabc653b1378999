//! WordPiece of the BERT family: normalizer, pre-tokenizer and model in one pass over the text.

mod bert;
mod vocabulary;

use serde::Deserialize;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;

use super::{FastEncoder, NotCovered, Source};
use bert::{BertWords, Wants, WordSink};
use vocabulary::Vocabulary;

/// Buffers that stay between texts.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Bytes of the word under way, normalized.
    word: Vec<u8>,
    /// Marks that wait for their order, with their combining class.
    marks: Vec<(u8, char)>,
}

/// What `tokenizer.json` says about its model, beside the vocabulary.
#[derive(Deserialize)]
struct File {
    model: Model,
}

#[derive(Deserialize)]
struct Model {
    unk_token: String,
    continuing_subword_prefix: String,
    max_input_chars_per_word: usize,
}

#[derive(Debug)]
struct WordPiece {
    words: BertWords,
    vocabulary: Vocabulary,
}

/// The encoder of a WordPiece tokenizer.
pub(super) fn encoder_of(source: Source<'_>) -> Result<Box<dyn FastEncoder>, NotCovered> {
    let (lower_case_first, normalizer) = match source.reference.get_normalizer() {
        Some(NormalizerWrapper::BertNormalizer(bert)) => (false, bert),
        Some(NormalizerWrapper::Sequence(sequence)) => match sequence.as_ref() {
            [
                NormalizerWrapper::Lowercase(_),
                NormalizerWrapper::BertNormalizer(bert),
            ] => (true, bert),
            _ => return Err(refused("normalizer", "Sequence")),
        },
        other => return Err(refused("normalizer", &format!("{other:?}"))),
    };
    match source.reference.get_pre_tokenizer() {
        Some(PreTokenizerWrapper::BertPreTokenizer(_)) => {}
        other => return Err(refused("pre-tokenizer", &format!("{other:?}"))),
    }
    let File { model } = serde_json::from_slice(source.tokenizer_json)
        .map_err(|error| NotCovered(format!("model of tokenizer.json: {error}")))?;
    let pieces = source.reference.get_vocab(false);
    Ok(Box::new(WordPiece {
        words: BertWords::new(Wants {
            lower_case_first,
            clean_text: normalizer.clean_text,
            handle_chinese_chars: normalizer.handle_chinese_chars,
            strip_accents: normalizer.strip_accents.unwrap_or(normalizer.lowercase),
            lower_case: normalizer.lowercase,
        }),
        vocabulary: Vocabulary::new(
            &pieces,
            &model.unk_token,
            &model.continuing_subword_prefix,
            model.max_input_chars_per_word,
        )?,
    }))
}

fn refused(stage: &str, what: &str) -> NotCovered {
    let what: String = what.chars().take(100).collect();
    NotCovered(format!("WordPiece with the {stage} {what}"))
}

/// Looks words up as they come.
struct Encode<'a> {
    vocabulary: &'a Vocabulary,
    limit: usize,
    ids: &'a mut Vec<u32>,
}

impl WordSink for Encode<'_> {
    fn word(&mut self, word: &[u8]) {
        self.vocabulary.encode(word, self.ids);
    }

    fn is_full(&self) -> bool {
        self.ids.len() >= self.limit
    }
}

impl FastEncoder for WordPiece {
    fn name(&self) -> &'static str {
        "wordpiece"
    }

    fn normalize(&self, text: &str, normalized: &mut String, scratch: &mut super::Scratch) {
        self.words
            .normalize(text, normalized, &mut scratch.word_piece.marks);
    }

    fn encode_normalized(
        &self,
        normalized: &str,
        _starts_text: bool,
        limit: usize,
        _scratch: &mut super::Scratch,
        ids: &mut Vec<u32>,
    ) {
        let mut sink = Encode {
            vocabulary: &self.vocabulary,
            limit,
            ids,
        };
        bert::split(normalized, &mut sink);
    }

    fn encode(
        &self,
        text: &str,
        _starts_text: bool,
        limit: usize,
        scratch: &mut super::Scratch,
        ids: &mut Vec<u32>,
    ) {
        let mut sink = Encode {
            vocabulary: &self.vocabulary,
            limit,
            ids,
        };
        let Scratch { word, marks } = &mut scratch.word_piece;
        self.words.read(text, word, marks, &mut sink);
    }
}

#[cfg(test)]
#[path = "word_piece_tests.rs"]
mod tests;
