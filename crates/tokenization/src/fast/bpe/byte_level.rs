//! Byte-level BPE: GPT-2, RoBERTa, ModernBERT, Llama 3, Qwen2, Qwen3.
//!
//! The symbols of a word are its bytes, so every text has tokens. In the file each byte is written
//! as a visible character; that alphabet is needed at load only.

use std::collections::HashMap;
use std::fmt;

use super::Scratch;
use super::code_points::CodePoints;
use super::merger::Merger;
use super::merges::MergeTable;
use super::model::{Model, not_covered};
use super::nfc::{is_nfc, push_nfc};
use super::scanner::Scanner;
use crate::fast::{self, FastEncoder, NotCovered};

/// What happens to a text before it is split into words.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Preparation {
    /// It is brought into normalization form C.
    pub(super) nfc: bool,
    /// A text that does not begin with a space gets one.
    pub(super) prefix_space: bool,
}

type WholeWords = HashMap<Box<[u8]>, u32, foldhash::fast::RandomState>;

pub(super) struct ByteLevel<S> {
    scanner: S,
    preparation: Preparation,
    code_points: &'static CodePoints,
    /// The token of each byte.
    byte_tokens: Box<[u32; 256]>,
    merges: MergeTable,
    /// Tokens by their bytes, where the model takes these before it merges.
    whole_words: Option<WholeWords>,
}

impl<S: Scanner> ByteLevel<S> {
    /// # Errors
    /// A byte has no token.
    pub(super) fn new(
        model: &Model,
        scanner: S,
        preparation: Preparation,
        code_points: &'static CodePoints,
    ) -> Result<Self, NotCovered> {
        let mut byte_tokens = Box::new([0; 256]);
        for (character, byte) in alphabet() {
            let token = character.to_string();
            let id = model
                .vocabulary
                .get(&token)
                .ok_or_else(|| not_covered(format!("byte {byte:#04x} has no token")))?;
            byte_tokens[usize::from(byte)] = *id;
        }
        let whole_words = model.ignores_merges.then(|| {
            let mut byte_of = [None; ALPHABET_END];
            for (character, byte) in alphabet() {
                byte_of[character as usize] = Some(byte);
            }
            let byte = |c: char| byte_of.get(c as usize).copied().flatten();
            let tokens = model.vocabulary.iter();
            tokens
                .filter_map(|(token, &id)| {
                    Some((token.chars().map(byte).collect::<Option<_>>()?, id))
                })
                .collect()
        });
        Ok(Self {
            scanner,
            preparation,
            code_points,
            byte_tokens,
            merges: MergeTable::new(&model.merges),
            whole_words,
        })
    }

    fn push_words(&self, text: &str, limit: usize, scratch: &mut Scratch, ids: &mut Vec<u32>) {
        if self.preparation.prefix_space && !text.is_empty() && !text.starts_with(' ') {
            let mut prefixed = std::mem::take(&mut scratch.prefixed);
            prefixed.clear();
            prefixed.push(' ');
            prefixed.push_str(text);
            self.push_words_as_they_are(&prefixed, limit, scratch, ids);
            scratch.prefixed = prefixed;
        } else {
            self.push_words_as_they_are(text, limit, scratch, ids);
        }
    }

    fn push_words_as_they_are(
        &self,
        text: &str,
        limit: usize,
        scratch: &mut Scratch,
        ids: &mut Vec<u32>,
    ) {
        scratch.push_words(
            text,
            limit,
            ids,
            |text, start| self.scanner.word_end(text, start),
            |word, merger, ids| self.push_word(word, merger, ids),
        );
    }

    /// A word that is not in the cache.
    fn push_word(&self, word: &[u8], merger: &mut Merger, ids: &mut Vec<u32>) {
        if let Some(&id) = self.whole_words.as_ref().and_then(|words| words.get(word)) {
            ids.push(id);
            return;
        }
        let first = ids.len();
        ids.extend(word.iter().map(|&byte| self.byte_tokens[usize::from(byte)]));
        merger.merge(&self.merges, ids, first);
    }
}

impl<S> fmt::Debug for ByteLevel<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByteLevel")
            .field("preparation", &self.preparation)
            .finish_non_exhaustive()
    }
}

impl<S: Scanner> FastEncoder for ByteLevel<S> {
    fn name(&self) -> &'static str {
        "byte-level BPE"
    }

    fn normalize(&self, text: &str, normalized: &mut String, _scratch: &mut fast::Scratch) {
        if self.preparation.nfc {
            push_nfc(self.code_points, text, normalized);
        } else {
            normalized.push_str(text);
        }
    }

    fn encode_normalized(
        &self,
        normalized: &str,
        _starts_text: bool,
        limit: usize,
        scratch: &mut fast::Scratch,
        ids: &mut Vec<u32>,
    ) {
        self.push_words(normalized, limit, &mut scratch.bpe, ids);
    }

    fn encode(
        &self,
        text: &str,
        _starts_text: bool,
        limit: usize,
        scratch: &mut fast::Scratch,
        ids: &mut Vec<u32>,
    ) {
        let fast::Scratch {
            normalized, bpe, ..
        } = scratch;
        if !self.preparation.nfc || is_nfc(self.code_points, text) {
            self.push_words(text, limit, bpe, ids);
        } else {
            normalized.clear();
            push_nfc(self.code_points, text, normalized);
            self.push_words(normalized, limit, bpe, ids);
        }
    }
}

/// Code points of the alphabet are below this.
const ALPHABET_END: usize = 0x144;

/// How the file writes bytes: those that are visible in Latin-1 as themselves, the others, in
/// order, as the characters from U+0100 on.
fn alphabet() -> impl Iterator<Item = (char, u8)> {
    let mut invisible = (0x100..).filter_map(char::from_u32);
    (0..=u8::MAX).filter_map(move |byte| {
        let visible = matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
        let character = if visible {
            char::from(byte)
        } else {
            invisible.next()?
        };
        Some((character, byte))
    })
}

#[cfg(test)]
#[path = "byte_level_tests.rs"]
mod tests;
