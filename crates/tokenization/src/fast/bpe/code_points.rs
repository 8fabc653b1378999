//! Classes of code points, as the pre-tokenizer's regular expressions see them.
//!
//! The tables are asked from the very engine that the `tokenizers` crate is built with, once per
//! process: whatever Unicode version it has, the scanners have too.

use std::sync::LazyLock;

use tokenizers::utils::SysRegex;
use unicode_normalization_alignments::{IsNormalized, char as unicode, is_nfc_quick};

/// `\p{L}`
pub(super) const LETTER: u8 = 1;
/// `\p{N}`
pub(super) const NUMBER: u8 = 1 << 1;
/// `\s`
pub(super) const SPACE: u8 = 1 << 2;
/// `\p{M}`
pub(super) const MARK: u8 = 1 << 3;
/// Composition never reaches over the place before this character, and leaves it as it is unless
/// something that composes follows.
pub(super) const NFC_STABLE: u8 = 1 << 4;

const ENGINE_CLASSES: [(u8, &str); 4] = [
    (LETTER, r"\p{L}+"),
    (NUMBER, r"\p{N}+"),
    (SPACE, r"\s+"),
    (MARK, r"\p{M}+"),
];

const ANY_CLASS: &str = r"[\p{L}\p{N}\s\p{M}]+";

/// A class byte for each code point, in two stages: blocks of 256, equal blocks kept once.
pub(super) struct CodePoints {
    /// Which block, by the code point's upper bits.
    block_of: Box<[u16]>,
    blocks: Vec<[u8; 256]>,
    /// By the first byte of a character in UTF-8: all of them are [`NFC_STABLE`].
    stable_lead: [bool; 256],
}

static CODE_POINTS: LazyLock<Option<CodePoints>> = LazyLock::new(CodePoints::derive);

impl CodePoints {
    /// The tables; `None` if the regular-expression engine refuses its questions.
    pub(super) fn get() -> Option<&'static Self> {
        CODE_POINTS.as_ref()
    }

    fn derive() -> Option<Self> {
        let all: Vec<char> = ('\0'..=char::MAX).collect();
        // Beyond the planes with scripts hardly anything is in any class: it is looked through once.
        let (scripts, rest) = all.split_at(all.partition_point(|&c| c < '\u{40000}'));
        let rest: String = rest.iter().collect();
        let any = SysRegex::new(ANY_CLASS).ok()?;
        let classed = any.find_iter(&rest).map(|(start, end)| &rest[start..end]);
        let text: String = scripts
            .iter()
            .copied()
            .chain(classed.flat_map(str::chars))
            .collect();
        let mut classes = vec![0_u8; 0x11_0000];
        for (bit, pattern) in ENGINE_CLASSES {
            let regex = SysRegex::new(pattern).ok()?;
            for (start, end) in regex.find_iter(&text) {
                for c in text[start..end].chars() {
                    classes[c as usize] |= bit;
                }
            }
        }
        for &c in &all {
            if is_nfc_stable(c) {
                classes[c as usize] |= NFC_STABLE;
            }
        }

        let mut stable_lead = [true; 256];
        let mut utf8 = [0; 4];
        for &c in &all {
            let lead = c.encode_utf8(&mut utf8).as_bytes()[0];
            stable_lead[usize::from(lead)] &= classes[c as usize] & NFC_STABLE != 0;
        }

        let mut blocks: Vec<[u8; 256]> = Vec::new();
        let mut block_of = Vec::with_capacity(0x1100);
        for block in classes.as_chunks::<256>().0 {
            let known = blocks.iter().position(|known| known == block);
            let index = known.unwrap_or_else(|| {
                blocks.push(*block);
                blocks.len() - 1
            });
            block_of.push(u16::try_from(index).ok()?);
        }
        Some(Self {
            block_of: block_of.into(),
            blocks,
            stable_lead,
        })
    }

    #[inline]
    pub(super) fn class(&self, code_point: u32) -> u8 {
        let block = self.block_of[(code_point >> 8) as usize];
        self.blocks[usize::from(block)][(code_point & 0xff) as usize]
    }

    /// All characters that begin with this byte are [`NFC_STABLE`].
    #[inline]
    pub(super) fn is_stable_lead(&self, byte: u8) -> bool {
        self.stable_lead[usize::from(byte)]
    }
}

fn is_nfc_stable(c: char) -> bool {
    let mut first = c;
    let mut seen = false;
    unicode::decompose_canonical(c, |part| {
        if !seen {
            first = part;
            seen = true;
        }
    });
    [c, first].into_iter().all(|c| {
        unicode::canonical_combining_class(c) == 0
            && is_nfc_quick(std::iter::once(c)) == IsNormalized::Yes
    })
}

/// The code point of valid UTF-8 that begins at byte `at`, and its length in bytes.
#[inline]
pub(super) fn code_point_at(text: &[u8], at: usize) -> Option<(u32, usize)> {
    let next = |index: usize| {
        text.get(at + index)
            .map_or(0, |byte| u32::from(byte & 0x3f))
    };
    let first = u32::from(*text.get(at)?);
    Some(match first {
        0..0x80 => (first, 1),
        0x80..0xe0 => ((first & 0x1f) << 6 | next(1), 2),
        0xe0..0xf0 => ((first & 0x0f) << 12 | next(1) << 6 | next(2), 3),
        _ => (
            (first & 0x07) << 18 | next(1) << 12 | next(2) << 6 | next(3),
            4,
        ),
    })
}

/// Characters whose neighbours in the tables differ, all of the first planes' alphabets, and every
/// now and then one of the rest: for tests that look at many things of each.
#[cfg(test)]
pub(super) fn telling_characters() -> impl Iterator<Item = char> {
    let code_points = CodePoints::get().unwrap();
    let mut last = 0;
    ('\0'..=char::MAX).filter(move |&c| {
        let class = code_points.class(u32::from(c));
        let differs = class != std::mem::replace(&mut last, class);
        differs || c < '\u{3200}' || u32::from(c) % 61 == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_character_is_read_back() {
        for c in '\0'..=char::MAX {
            let text = format!("a{c}b");
            let expected = Some((u32::from(c), c.len_utf8()));
            assert_eq!(code_point_at(text.as_bytes(), 1), expected, "{c:?}");
        }
        assert_eq!(code_point_at(b"a", 1), None);
    }

    #[test]
    fn the_scanners_may_rely_on_ascii() {
        let code_points = CodePoints::get().unwrap();
        for c in '\0'..='\x7f' {
            let class = code_points.class(u32::from(c));
            assert_eq!(class & LETTER != 0, c.is_ascii_alphabetic(), "{c:?}");
            assert_eq!(class & NUMBER != 0, c.is_ascii_digit(), "{c:?}");
            let space = matches!(c, '\t'..='\r' | ' ');
            assert_eq!(class & SPACE != 0, space, "{c:?}");
            assert_ne!(class & NFC_STABLE, 0, "{c:?}");
        }
    }

    #[test]
    fn classes_are_the_engine_s() {
        let code_points = CodePoints::get().unwrap();
        for (bit, pattern) in ENGINE_CLASSES {
            let all: String = ('\0'..=char::MAX).collect();
            let regex = SysRegex::new(pattern).unwrap();
            let expected: String = regex
                .find_iter(&all)
                .map(|(start, end)| &all[start..end])
                .collect();
            let given: String = all
                .chars()
                .filter(|&c| code_points.class(u32::from(c)) & bit != 0)
                .collect();
            assert!(given == expected, "{pattern}");
        }
    }

    #[test]
    fn letters_numbers_and_spaces_do_not_overlap() {
        let code_points = CodePoints::get().unwrap();
        for c in '\0'..=char::MAX {
            let class = code_points.class(u32::from(c)) & (LETTER | NUMBER | SPACE | MARK);
            assert!(class.count_ones() <= 1, "{c:?} {class:b}");
        }
    }
}
