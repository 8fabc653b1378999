//! Words to ids: the longest piece that fits, again and again.

use std::collections::HashMap;

use crate::fast::NotCovered;
use crate::fast::trie::Trie;

/// The pieces of a WordPiece model.
#[derive(Debug)]
pub(super) struct Vocabulary {
    /// Pieces that begin a word: all of the vocabulary.
    first: Trie<u32>,
    /// Pieces that continue one, without the prefix that says so.
    continuing: Trie<u32>,
    unknown: u32,
    /// Longer words are unknown.
    max_word_characters: usize,
}

impl Vocabulary {
    pub(super) fn new(
        pieces: &HashMap<String, u32>,
        unknown: &str,
        continuing_prefix: &str,
        max_word_characters: usize,
    ) -> Result<Self, NotCovered> {
        let unknown = *pieces
            .get(unknown)
            .ok_or_else(|| NotCovered(format!("unk_token {unknown:?} is not in the vocabulary")))?;
        let keys = || pieces.iter().map(|(piece, &id)| (piece.as_str(), id));
        let continuing = keys().filter_map(|(piece, id)| {
            let rest = piece.strip_prefix(continuing_prefix)?;
            Some((rest.as_bytes(), id))
        });
        Ok(Self {
            first: Trie::new(keys().map(|(piece, id)| (piece.as_bytes(), id)).collect())?,
            continuing: Trie::new(continuing.collect())?,
            unknown,
            max_word_characters,
        })
    }

    /// Appends the ids of `word`, normalized UTF-8.
    #[inline]
    pub(super) fn encode(&self, word: &[u8], ids: &mut Vec<u32>) {
        if word.len() > self.max_word_characters && characters(word) > self.max_word_characters {
            ids.push(self.unknown);
            return;
        }
        let before = ids.len();
        let mut rest = word;
        let mut trie = &self.first;
        while !rest.is_empty() {
            let mut node = trie.root();
            let mut longest = None;
            for (index, &byte) in rest.iter().enumerate() {
                match trie.child(node, byte) {
                    Some(child) => node = child,
                    None => break,
                }
                if let Some(id) = node.value {
                    longest = Some((index + 1, id));
                }
            }
            let Some((length, id)) = longest else {
                ids.truncate(before);
                ids.push(self.unknown);
                return;
            };
            ids.push(id);
            rest = &rest[length..];
            trie = &self.continuing;
        }
    }
}

/// Number of characters of UTF-8.
fn characters(utf8: &[u8]) -> usize {
    utf8.iter().filter(|&&byte| byte & 0xc0 != 0x80).count()
}
