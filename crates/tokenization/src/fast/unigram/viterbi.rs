//! The best way to write a piece of text in tokens of the vocabulary: Viterbi over bytes.
//!
//! Where no token reaches over a place in the text, the best way up to it is known, whatever
//! follows: the tokens are handed out there. So the memory in use stays small, and a text that
//! is far too long is not read to its end.

use crate::fast::NotCovered;
use crate::fast::trie::Trie;

/// What an unknown character costs below the worst token, by SentencePiece's rule.
const UNKNOWN_PENALTY: f64 = 10.0;

/// The tokens of a Unigram model.
#[derive(Debug)]
pub(super) struct Vocabulary {
    tokens: Trie<Token>,
    unknown: u32,
    unknown_score: f64,
    /// Ids of `<0x00>` to `<0xFF>`, where the model falls back to them.
    bytes: Option<Box<[Option<u32>; 256]>>,
}

/// Id and score, in parts of 4 bytes so that a unit of the trie is 16 bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Token {
    id: u32,
    score_bits: [u32; 2],
}

impl Token {
    fn new(id: u32, score: f64) -> Self {
        let bits = score.to_bits();
        Self {
            id,
            score_bits: [bits as u32, (bits >> 32) as u32],
        }
    }

    #[inline]
    fn score(self) -> f64 {
        let [low, high] = self.score_bits;
        f64::from_bits(u64::from(low) | u64::from(high) << 32)
    }
}

/// Buffers that stay between texts.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// By byte from the last place where tokens were handed out.
    best: Vec<Best>,
    /// Ends and ids of tokens from there to the next such place, last first.
    path: Vec<(usize, u32)>,
}

/// The best tokens that end at a place.
#[derive(Debug, Clone, Copy)]
struct Best {
    /// Sum of all scores since the piece began.
    score: f64,
    /// Where the last token begins.
    start: u32,
    /// Its id.
    id: u32,
}

const UNREACHED: Best = Best {
    score: 0.0,
    start: u32::MAX,
    id: 0,
};

impl Vocabulary {
    /// `tokens` in the order of their ids.
    pub(super) fn new(
        tokens: &[(&str, f64)],
        unknown: u32,
        min_score: f64,
        byte_fallback: bool,
    ) -> Result<Self, NotCovered> {
        let keys = tokens
            .iter()
            .zip(0_u32..)
            .map(|(&(token, score), id)| (token.as_bytes(), Token::new(id, score)));
        let tokens = Trie::new(keys.collect())?;
        let byte_id = |byte| tokens.get(format!("<0x{byte:02X}>").as_bytes());
        let bytes = byte_fallback.then(|| {
            Box::new(std::array::from_fn(|byte| {
                byte_id(byte).map(|token| token.id)
            }))
        });
        Ok(Self {
            tokens,
            unknown,
            unknown_score: min_score - UNKNOWN_PENALTY,
            bytes,
        })
    }

    /// Appends the ids of `piece`; stops once `ids` has `limit`.
    pub(super) fn encode(
        &self,
        piece: &str,
        limit: usize,
        scratch: &mut Scratch,
        ids: &mut Vec<u32>,
    ) {
        let Scratch { best, path } = scratch;
        let bytes = piece.as_bytes();
        let mut handed_out = Handed {
            vocabulary: self,
            piece: bytes,
            unknown_from: None,
            ids,
        };
        // Indices of `best` count from here; the first stands for all before.
        let mut from = 0;
        best.clear();
        best.push(UNREACHED);
        let mut at = 0;
        while at < bytes.len() {
            if at + 1 - from == best.len() && at > from {
                handed_out.path(from, best, path);
                if handed_out.ids.len() >= limit {
                    return;
                }
                let score = best[at - from].score;
                from = at;
                best.clear();
                best.push(Best { score, ..UNREACHED });
            }
            let score_here = best[at - from].score;
            let character_end = at + character_length(bytes[at]);
            let mut node = self.tokens.root();
            let mut character_has_token = false;
            for (end, &byte) in (at + 1..).zip(&bytes[at..]) {
                match self.tokens.child(node, byte) {
                    Some(child) => node = child,
                    None => break,
                }
                if let Some(token) = node.value {
                    reach(
                        best,
                        end - from,
                        Best {
                            score: token.score() + score_here,
                            start: (at - from) as u32,
                            id: token.id,
                        },
                    );
                    character_has_token |= end == character_end;
                }
            }
            if !character_has_token {
                reach(
                    best,
                    character_end - from,
                    Best {
                        score: self.unknown_score + score_here,
                        start: (at - from) as u32,
                        id: self.unknown,
                    },
                );
            }
            at = character_end;
        }
        handed_out.path(from, best, path);
        handed_out.finish_unknown(bytes.len());
    }
}

/// Keeps the better of two ways to `end`, of equally good ones the first.
#[inline]
fn reach(best: &mut Vec<Best>, end: usize, way: Best) {
    if end >= best.len() {
        best.resize(end, UNREACHED);
        best.push(way);
    } else if best[end].start == u32::MAX || way.score > best[end].score {
        best[end] = way;
    }
}

/// Length in bytes of the character that begins with `byte`.
#[inline]
fn character_length(byte: u8) -> usize {
    match byte {
        0..=0xbf => 1,
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        _ => 4,
    }
}

/// Ids that are certain. Unknown characters one after the other are one token.
struct Handed<'a> {
    vocabulary: &'a Vocabulary,
    piece: &'a [u8],
    /// Start of the unknown token under way.
    unknown_from: Option<usize>,
    ids: &'a mut Vec<u32>,
}

impl Handed<'_> {
    /// Hands out the tokens on the way to the end of `best`, which begins at byte `from`.
    #[inline]
    fn path(&mut self, from: usize, best: &[Best], path: &mut Vec<(usize, u32)>) {
        let mut end = best.len() - 1;
        path.clear();
        while end > 0 {
            let Best { start, id, .. } = best[end];
            path.push((start as usize, id));
            end = start as usize;
        }
        for &(start, id) in path.iter().rev() {
            if id == self.vocabulary.unknown {
                self.unknown_from.get_or_insert(from + start);
            } else {
                self.finish_unknown(from + start);
                self.ids.push(id);
            }
        }
    }

    #[inline]
    fn finish_unknown(&mut self, end: usize) {
        if let Some(start) = self.unknown_from.take() {
            self.unknown(start, end);
        }
    }

    /// Unknown characters may make up a token together; else they fall back to bytes.
    #[cold]
    fn unknown(&mut self, start: usize, end: usize) {
        let unknown = &self.piece[start..end];
        if let Some(token) = self.vocabulary.tokens.get(unknown) {
            self.ids.push(token.id);
            return;
        }
        if let Some(bytes) = &self.vocabulary.bytes {
            let before = self.ids.len();
            let known = unknown.iter().all(|&byte| match bytes[usize::from(byte)] {
                Some(id) => {
                    self.ids.push(id);
                    true
                }
                None => false,
            });
            if known {
                return;
            }
            self.ids.truncate(before);
        }
        self.ids.push(self.vocabulary.unknown);
    }
}
