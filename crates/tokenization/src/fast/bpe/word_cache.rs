//! Words seen before and their tokens: bounded, one for each thread, nothing allocated after the
//! first use.
//!
//! Most of a text are words that came before. A word of up to 15 bytes is one 128-bit key, one of
//! up to 30 bytes two; longer ones are rare and rarely come again. Two entries share a cache line
//! (64 bytes) and a place in the table; a new word pushes the older one out.

use std::iter;

/// Longest word of the table for short words, in bytes.
const SHORT_BYTES: usize = 15;
/// Longest word that is kept, in bytes.
pub(super) const LONGEST_WORD: usize = 30;
/// Places of two entries of 32 bytes: 512 KiB, a part of the second-level cache.
const SHORT_PLACES: usize = 1 << 13;
/// Places of two entries of 64 bytes: 256 KiB.
const LONG_PLACES: usize = 1 << 11;

/// Bits of a token id in an entry.
pub(super) const TOKEN_ID_BITS: u32 = 24;
/// Token ids in 128 bits, beside their count.
const TOKENS_PER_CELL: usize = 5;

/// Up to 15 bytes with their count, or up to five token ids with theirs; the count is the top byte.
type Cell = u128;

pub(super) struct WordCache {
    short: Box<[Place<1>]>,
    long: Box<[Place<2>]>,
}

#[repr(align(64))]
#[derive(Clone, Copy)]
struct Place<const CELLS: usize>([Entry<CELLS>; 2]);

#[derive(Clone, Copy)]
struct Entry<const CELLS: usize> {
    /// Zero when empty: no word has no bytes.
    word: [Cell; CELLS],
    token_ids: [Cell; CELLS],
}

impl Default for WordCache {
    fn default() -> Self {
        Self {
            short: vec![Place::EMPTY; SHORT_PLACES].into(),
            long: vec![Place::EMPTY; LONG_PLACES].into(),
        }
    }
}

/// The word's key and its place in the table.
#[derive(Clone, Copy)]
pub(super) enum Key {
    Short([Cell; 1], usize),
    Long([Cell; 2], usize),
}

impl Key {
    /// Of `text[start..end]`; `None` if it is empty or longer than [`LONGEST_WORD`].
    #[inline]
    pub(super) fn of(text: &[u8], start: usize, end: usize) -> Option<Self> {
        match end - start {
            1..=SHORT_BYTES => {
                let word = cell(text, start, end);
                Some(Self::Short([word], place(word, SHORT_PLACES)))
            }
            16..=LONGEST_WORD => {
                let word = [
                    cell(text, start, start + SHORT_BYTES),
                    // The last bytes, so that the key says all of the length.
                    cell(text, start + SHORT_BYTES, end),
                ];
                let mixed = word[0] ^ word[1].rotate_left(61);
                Some(Self::Long(word, place(mixed, LONG_PLACES)))
            }
            _ => None,
        }
    }
}

impl WordCache {
    /// Appends the tokens of a word that is known.
    #[inline]
    pub(super) fn get(&self, key: &Key, token_ids: &mut Vec<u32>) -> bool {
        match key {
            Key::Short(word, place) => self.short[*place].get(word, token_ids),
            Key::Long(word, place) => self.long[*place].get(word, token_ids),
        }
    }

    /// Keeps the tokens of a word, if they are few.
    pub(super) fn insert(&mut self, key: &Key, token_ids: &[u32]) {
        match key {
            Key::Short(word, place) => self.short[*place].insert(word, token_ids),
            Key::Long(word, place) => self.long[*place].insert(word, token_ids),
        }
    }
}

impl<const CELLS: usize> Place<CELLS> {
    const EMPTY: Self = Self(
        [Entry {
            word: [0; CELLS],
            token_ids: [0; CELLS],
        }; 2],
    );

    #[inline]
    fn get(&self, word: &[Cell; CELLS], token_ids: &mut Vec<u32>) -> bool {
        let Some(entry) = self.0.iter().find(|entry| entry.word == *word) else {
            return false;
        };
        for cell in entry.token_ids {
            if cell >> COUNT_SHIFT == 1 {
                token_ids.push(cell as u32 & TOKEN_ID_MASK);
            } else {
                token_ids.extend(unpacked(cell));
            }
        }
        true
    }

    fn insert(&mut self, word: &[Cell; CELLS], token_ids: &[u32]) {
        if token_ids.len() > CELLS * TOKENS_PER_CELL {
            return;
        }
        let mut cells = [0; CELLS];
        for (cell, token_ids) in iter::zip(&mut cells, token_ids.chunks(TOKENS_PER_CELL)) {
            *cell = packed(token_ids);
        }
        self.0[1] = self.0[0];
        self.0[0] = Entry {
            word: *word,
            token_ids: cells,
        };
    }
}

const COUNT_SHIFT: u32 = 120;
const TOKEN_ID_MASK: u32 = (1 << TOKEN_ID_BITS) - 1;

fn packed(token_ids: &[u32]) -> Cell {
    let ids = token_ids
        .iter()
        .rfold(0, |cell, &id| cell << TOKEN_ID_BITS | Cell::from(id));
    ids | (token_ids.len() as Cell) << COUNT_SHIFT
}

#[inline]
fn unpacked(mut cell: Cell) -> impl Iterator<Item = u32> {
    (0..cell >> COUNT_SHIFT).map(move |_| {
        let id = cell as u32 & TOKEN_ID_MASK;
        cell >>= TOKEN_ID_BITS;
        id
    })
}

/// `text[start..end]`, at most 15 bytes, and their count.
#[inline]
fn cell(text: &[u8], start: usize, end: usize) -> Cell {
    let length = end - start;
    let bytes = match text[start..].first_chunk::<16>() {
        Some(bytes) => u128::from_le_bytes(*bytes) & !(u128::MAX << (8 * length)),
        None => {
            let mut bytes = [0; 16];
            bytes[..length].copy_from_slice(&text[start..end]);
            u128::from_le_bytes(bytes)
        }
    };
    bytes | (length as Cell) << COUNT_SHIFT
}

/// Index below `places`, a power of two.
#[inline]
fn place(word: Cell, places: usize) -> usize {
    let low = word as u64 ^ 0x9e37_79b9_7f4a_7c15;
    let high = (word >> 64) as u64 ^ 0xe703_7ed1_a0b4_28db;
    let product = u128::from(low) * u128::from(high);
    ((product >> 64) as usize ^ product as usize) & (places - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(word: &[u8]) -> Key {
        Key::of(word, 0, word.len()).unwrap()
    }

    fn found(cache: &WordCache, word: &[u8]) -> Option<Vec<u32>> {
        let mut token_ids = vec![7];
        cache.get(&key(word), &mut token_ids).then(|| {
            assert_eq!(token_ids[0], 7);
            token_ids.split_off(1)
        })
    }

    #[test]
    fn words_of_all_lengths() {
        let mut cache = WordCache::default();
        let text: Vec<u8> = (1..=30).collect();
        for length in 1..=LONGEST_WORD {
            let tokens: Vec<u32> = (0..length as u32).map(|i| 0xff_ffff - i).collect();
            let word = &text[..length];
            assert_eq!(found(&cache, word), None);
            cache.insert(&key(word), &tokens);
            let most = if length <= SHORT_BYTES { 5 } else { 10 };
            let expected = (tokens.len() <= most).then_some(tokens);
            assert_eq!(found(&cache, word), expected, "{length}");
        }
        assert!(Key::of(&text, 3, 3).is_none());
        assert!(Key::of(&[0; 31], 0, 31).is_none());
    }

    #[test]
    fn every_byte_and_the_length_count() {
        for length in 1..=LONGEST_WORD {
            let word = vec![b'a'; length];
            let mut cache = WordCache::default();
            cache.insert(&key(&word), &[1]);
            for index in 0..length {
                let mut other = word.clone();
                other[index] = b'b';
                assert_eq!(found(&cache, &other), None);
            }
            if length < LONGEST_WORD {
                assert_eq!(found(&cache, &[&word[..], b"\0"].concat()), None);
                assert_eq!(found(&cache, &[&word[..], b"a"].concat()), None);
            }
            // The same word in the middle of a text.
            let text = [b"xyz", &word[..], &[b'w'; 40]].concat();
            let mut token_ids = Vec::new();
            let key = Key::of(&text, 3, 3 + length).unwrap();
            assert!(cache.get(&key, &mut token_ids));
            assert_eq!(token_ids, [1]);
        }
    }

    #[test]
    fn a_full_table_gives_no_wrong_tokens() {
        let mut cache = WordCache::default();
        let word = |i: u32| format!("w{i}{}", "x".repeat(i as usize % 20));
        for i in 0..100_000 {
            cache.insert(&key(word(i).as_bytes()), &[i, i + 1, 0]);
            assert_eq!(found(&cache, word(i).as_bytes()), Some(vec![i, i + 1, 0]));
        }
        let kept = (0..100_000).filter(|&i| match found(&cache, word(i).as_bytes()) {
            None => false,
            Some(token_ids) => {
                assert_eq!(token_ids, [i, i + 1, 0]);
                true
            }
        });
        assert!(kept.count() > 10_000);
    }
}
