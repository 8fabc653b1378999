//! BPE on characters, as SentencePiece trains it: Gemma, Llama 2, Mistral.
//!
//! Spaces are written as U+2581, and a text is one word. It need not be merged as one: where no
//! product of a merge has two neighbouring characters in it, no merge reaches over the place
//! between them, so the text falls apart there into pieces that do not know of each other. That is
//! before nearly every space, and pieces come again as words do.

use std::collections::{HashMap, HashSet};
use std::fmt;

use super::Scratch;
use super::code_points::code_point_at;
use super::merger::Merger;
use super::merges::{MergeTable, NEVER};
use super::model::{Model, not_covered};
use crate::fast::{self, FastEncoder, NotCovered};

/// What the file's vocabulary has for a space.
const SPACE_SYMBOL: char = '\u{2581}';

pub(super) struct Metaspace {
    /// A text that is not empty gets a space before it.
    prepends_space: bool,
    /// The tokens of one character.
    character_tokens: HashMap<u32, u32>,
    /// The tokens of bytes, for all other characters.
    byte_tokens: Box<[u32; 256]>,
    merges: MergeTable,
    neighbours: Neighbours,
}

/// Two characters that are beside each other in some product.
struct Neighbours {
    /// Of ASCII: a bit of the second in the entry of the first.
    ascii: Box<[u128; 128]>,
    /// Of others, as if they were merges.
    others: MergeTable,
}

impl Neighbours {
    fn new<'a>(products: impl Iterator<Item = &'a str>) -> Self {
        let mut ascii = Box::new([0; 128]);
        let mut others = Vec::new();
        for product in products {
            for (first, second) in product.chars().zip(product.chars().skip(1)) {
                // The text still has its spaces.
                let [first, second] =
                    [first, second].map(|c| u32::from(if c == SPACE_SYMBOL { ' ' } else { c }));
                if first < 128 && second < 128 {
                    ascii[first as usize] |= 1 << second;
                } else {
                    others.push((first, second, 0));
                }
            }
        }
        others.sort_unstable();
        others.dedup();
        Self {
            ascii,
            others: MergeTable::new(&others),
        }
    }

    #[inline]
    fn contain(&self, first: u32, second: u32) -> bool {
        if first < 128 && second < 128 {
            self.ascii[first as usize] >> second & 1 != 0
        } else {
            self.others.get(first, second).rank != NEVER
        }
    }
}

impl Metaspace {
    /// # Errors
    /// The model may give a text something else than tokens of its characters and bytes.
    pub(super) fn new(model: &Model, prepends_space: bool) -> Result<Self, NotCovered> {
        if model.ignores_merges {
            return Err(not_covered("BPE on characters that ignores merges"));
        }
        if !model.has_byte_fallback {
            return Err(not_covered("BPE on characters without byte fallback"));
        }
        let mut byte_tokens = Box::new([0; 256]);
        for byte in 0..=u8::MAX {
            let id = model
                .vocabulary
                .get(&format!("<{byte:#04X}>"))
                .ok_or_else(|| not_covered(format!("byte {byte:#04x} has no token")))?;
            byte_tokens[usize::from(byte)] = *id;
        }
        // Bytes that merge would know of their neighbours.
        let bytes: HashSet<u32, foldhash::fast::RandomState> =
            byte_tokens.iter().copied().collect();
        let is_byte = |id: &u32| bytes.contains(id);
        if model
            .merges
            .iter()
            .any(|(left, right, product)| [left, right, product].into_iter().any(is_byte))
        {
            return Err(not_covered("BPE on characters that merges bytes"));
        }

        let tokens: HashMap<u32, &str> = model
            .vocabulary
            .iter()
            .map(|(token, &id)| (id, token.as_str()))
            .collect();
        let products = model.merges.iter();
        let neighbours =
            Neighbours::new(products.filter_map(|merge| tokens.get(&merge.2).copied()));
        let mut character_tokens: HashMap<u32, u32> = model
            .vocabulary
            .iter()
            .filter_map(|(token, &id)| {
                let mut characters = token.chars();
                let first = characters.next()?;
                characters.next().is_none().then_some((first.into(), id))
            })
            .collect();
        // A space is never there, what is written for it is.
        character_tokens.remove(&u32::from(' '));
        if let Some(&space) = character_tokens.get(&u32::from(SPACE_SYMBOL)) {
            character_tokens.insert(u32::from(' '), space);
        }
        Ok(Self {
            prepends_space,
            character_tokens,
            byte_tokens,
            merges: MergeTable::new(&model.merges),
            neighbours,
        })
    }

    /// Takes spaces and what is written for them for the same.
    fn push_pieces(&self, text: &str, limit: usize, scratch: &mut Scratch, ids: &mut Vec<u32>) {
        scratch.push_words(
            text,
            limit,
            ids,
            |text, start| self.piece_end(text, start),
            |piece, merger, ids| self.push_piece(piece, merger, ids),
        );
    }

    /// The first place after `start` that no merge reaches over.
    #[inline]
    fn piece_end(&self, text: &[u8], start: usize) -> usize {
        let mut at = start;
        let mut last = None;
        while let Some((code_point, length)) = code_point_at(text, at) {
            let code_point = if code_point == u32::from(SPACE_SYMBOL) {
                u32::from(' ')
            } else {
                code_point
            };
            if last.is_some_and(|last| !self.neighbours.contain(last, code_point)) {
                break;
            }
            last = Some(code_point);
            at += length;
        }
        at
    }

    fn push_piece(&self, piece: &[u8], merger: &mut Merger, ids: &mut Vec<u32>) {
        let first = ids.len();
        let mut at = 0;
        while let Some((code_point, length)) = code_point_at(piece, at) {
            match self.character_tokens.get(&code_point) {
                Some(&id) => ids.push(id),
                None => {
                    let bytes = piece[at..].iter().take(length);
                    ids.extend(bytes.map(|&byte| self.byte_tokens[usize::from(byte)]));
                }
            }
            at += length;
        }
        merger.merge(&self.merges, ids, first);
    }
}

impl fmt::Debug for Metaspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metaspace")
            .field("prepends_space", &self.prepends_space)
            .finish_non_exhaustive()
    }
}

impl FastEncoder for Metaspace {
    fn name(&self) -> &'static str {
        "metaspace BPE"
    }

    fn normalize(&self, text: &str, normalized: &mut String, _scratch: &mut fast::Scratch) {
        if self.prepends_space && !text.is_empty() {
            normalized.push(SPACE_SYMBOL);
        }
        for (index, part) in text.split(' ').enumerate() {
            if index > 0 {
                normalized.push(SPACE_SYMBOL);
            }
            normalized.push_str(part);
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
        self.push_pieces(normalized, limit, &mut scratch.bpe, ids);
    }

    fn encode(
        &self,
        text: &str,
        _starts_text: bool,
        limit: usize,
        scratch: &mut fast::Scratch,
        ids: &mut Vec<u32>,
    ) {
        if self.prepends_space && !text.is_empty() {
            let mut prefixed = std::mem::take(&mut scratch.normalized);
            prefixed.clear();
            prefixed.push(' ');
            prefixed.push_str(text);
            self.push_pieces(&prefixed, limit, &mut scratch.bpe, ids);
            scratch.normalized = prefixed;
        } else {
            self.push_pieces(text, limit, &mut scratch.bpe, ids);
        }
    }
}

#[cfg(test)]
#[path = "metaspace_tests.rs"]
mod tests;
