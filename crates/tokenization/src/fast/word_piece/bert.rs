//! BERT's normalizer and pre-tokenizer: words out of text.
//!
//! What happens to a character depends on nothing around it, so that a table says it: cleaned,
//! spaced, decomposed, stripped of accents, lower-cased, and then in a word or between words. The
//! one exception are marks that survive all this; decomposition puts them into their canonical
//! order. Characters that have such marks, or become more than one word, go a slow way that does
//! what the `tokenizers` crate does, character by character, and that the table is made of.

use unicode_categories::UnicodeCategories;
use unicode_normalization_alignments::char::{canonical_combining_class, decompose_canonical};

use crate::fast::code_points::CodePointTable;

/// The options of the normalizer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wants {
    /// A lower-casing normalizer comes before all else.
    pub(super) lower_case_first: bool,
    pub(super) clean_text: bool,
    pub(super) handle_chinese_chars: bool,
    pub(super) strip_accents: bool,
    pub(super) lower_case: bool,
}

/// Takes words.
pub(super) trait WordSink {
    /// The next word, normalized; not empty.
    fn word(&mut self, word: &[u8]);
    /// Whether more words are of no use.
    fn is_full(&self) -> bool;
}

/// Normalizer and pre-tokenizer.
#[derive(Debug)]
pub(super) struct BertWords {
    wants: Wants,
    /// An entry: its kind in the low bits; of `MAPPED` also length and start in `mapped`.
    table: CodePointTable,
    /// For ASCII, the kind, and the byte that a mapped one becomes.
    ascii: [(u8, u8); 128],
    mapped: Vec<u8>,
}

/// Within a word, as it is.
const KEPT: u32 = 0;
/// Within a word, as something else.
const MAPPED: u32 = 1;
/// Nothing is left, nor does it end a word.
const DROPPED: u32 = 2;
/// Between words.
const SPACE: u32 = 3;
/// A word of its own, as it is.
const ALONE: u32 = 4;
/// Goes the slow way.
const OTHER: u32 = 5;
const KIND_BITS: u32 = 3;
const LENGTH_BITS: u32 = 6;

impl BertWords {
    pub(super) fn new(wants: Wants) -> Self {
        let mut mapped = Vec::new();
        let table = CodePointTable::new(OTHER, |c| entry(wants, c, &mut mapped));
        let ascii = std::array::from_fn(|code| {
            let byte = code as u8;
            let entry = table.get(char::from(byte));
            match entry & ((1 << KIND_BITS) - 1) {
                MAPPED => match mapped_bytes(&mapped, entry) {
                    &[one] => (MAPPED as u8, one),
                    _ => (OTHER as u8, byte),
                },
                kind => (kind as u8, byte),
            }
        });
        Self {
            wants,
            table,
            ascii,
            mapped,
        }
    }

    /// Hands the words of `text` to `sink` until it is full. `word` and `marks` are buffers.
    pub(super) fn read(
        &self,
        text: &str,
        word: &mut Vec<u8>,
        marks: &mut Vec<(u8, char)>,
        sink: &mut impl WordSink,
    ) {
        word.clear();
        marks.clear();
        let bytes = text.as_bytes();
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            let (kind, length, character) = if byte < 128 {
                let (kind, becomes) = self.ascii[usize::from(byte)];
                if u32::from(kind) <= MAPPED {
                    word.push(becomes);
                    at += 1;
                    continue;
                }
                (u32::from(kind), 1, char::from(byte))
            } else {
                let Some(character) = text[at..].chars().next() else {
                    break;
                };
                let entry = self.table.get(character);
                let length = character.len_utf8();
                let kind = entry & ((1 << KIND_BITS) - 1);
                match kind {
                    KEPT => word.extend_from_slice(&bytes[at..at + length]),
                    MAPPED => word.extend_from_slice(mapped_bytes(&self.mapped, entry)),
                    _ => {}
                }
                (kind, length, character)
            };
            at += length;
            match kind {
                SPACE => finish(word, sink),
                ALONE => {
                    finish(word, sink);
                    sink.word(&bytes[at - length..at]);
                }
                OTHER => {
                    let mut out = Words { word, sink };
                    normalize_char(self.wants, character, marks, &mut |c| out.push(c));
                    // Until the marks have found their places all that follows goes this way.
                    while !marks.is_empty() {
                        let Some(next) = text[at..].chars().next() else {
                            break;
                        };
                        at += next.len_utf8();
                        normalize_char(self.wants, next, marks, &mut |c| out.push(c));
                    }
                    flush(self.wants, marks, &mut |c| out.push(c));
                }
                _ => continue,
            }
            if sink.is_full() {
                return;
            }
        }
        finish(word, sink);
    }

    /// Appends the normalized `text`. `marks` is a buffer.
    pub(super) fn normalize(
        &self,
        text: &str,
        normalized: &mut String,
        marks: &mut Vec<(u8, char)>,
    ) {
        marks.clear();
        for c in text.chars() {
            normalize_char(self.wants, c, marks, &mut |c| normalized.push(c));
        }
        flush(self.wants, marks, &mut |c| normalized.push(c));
    }
}

/// Hands the words of normalized text to `sink` until it is full.
pub(super) fn split(normalized: &str, sink: &mut impl WordSink) {
    for word in normalized.split(char::is_whitespace) {
        let mut start = 0;
        for (index, c) in word.char_indices().filter(|&(_, c)| is_punctuation(c)) {
            if start < index {
                sink.word(&word.as_bytes()[start..index]);
            }
            start = index + c.len_utf8();
            sink.word(&word.as_bytes()[index..start]);
        }
        if start < word.len() {
            sink.word(&word.as_bytes()[start..]);
        }
        if sink.is_full() {
            return;
        }
    }
}

fn finish(word: &mut Vec<u8>, sink: &mut impl WordSink) {
    if !word.is_empty() {
        sink.word(word);
        word.clear();
    }
}

/// Takes normalized characters one by one.
struct Words<'a, S> {
    word: &'a mut Vec<u8>,
    sink: &'a mut S,
}

impl<S: WordSink> Words<'_, S> {
    fn push(&mut self, c: char) {
        let mut utf8 = [0; 4];
        let utf8 = c.encode_utf8(&mut utf8).as_bytes();
        if c.is_whitespace() {
            finish(self.word, self.sink);
        } else if is_punctuation(c) {
            finish(self.word, self.sink);
            self.sink.word(utf8);
        } else {
            self.word.extend_from_slice(utf8);
        }
    }
}

fn mapped_bytes(mapped: &[u8], entry: u32) -> &[u8] {
    let length = (entry >> KIND_BITS) as usize & ((1 << LENGTH_BITS) - 1);
    let start = (entry >> (KIND_BITS + LENGTH_BITS)) as usize;
    mapped.get(start..start + length).unwrap_or(&[])
}

/// The table's entry of `c`; what it is mapped to is appended to `mapped`.
fn entry(wants: Wants, c: char, mapped: &mut Vec<u8>) -> u32 {
    let mut marks = Vec::new();
    let mut becomes = String::new();
    normalize_char(wants, c, &mut marks, &mut |c| becomes.push(c));
    if !marks.is_empty() {
        return OTHER;
    }
    let mut alone = [0; 4];
    let alone = c.encode_utf8(&mut alone);
    match becomes.as_str() {
        // The table is asked only while no marks wait, so that there is no order to end.
        "" => DROPPED,
        one if one.chars().all(char::is_whitespace) => SPACE,
        one if one.chars().any(|c| c.is_whitespace() || is_punctuation(c)) => {
            if one.trim_matches(char::is_whitespace) == alone {
                ALONE
            } else {
                OTHER
            }
        }
        one if one == alone => KEPT,
        one if one.len() < 1 << LENGTH_BITS => {
            let start = mapped.len() as u32;
            mapped.extend_from_slice(one.as_bytes());
            MAPPED | (one.len() as u32) << KIND_BITS | start << (KIND_BITS + LENGTH_BITS)
        }
        _ => OTHER,
    }
}

/// What the normalizer makes of one character, as far as it is certain; marks that may still
/// change places wait in `marks`.
fn normalize_char(wants: Wants, c: char, marks: &mut Vec<(u8, char)>, push: &mut impl FnMut(char)) {
    let mut decompose = |c: char| {
        if !wants.strip_accents {
            push_lower(wants, c, push);
            return;
        }
        decompose_canonical(c, |part| {
            let class = canonical_combining_class(part);
            if class == 0 {
                // A starter ends a run of marks even if it is then removed.
                flush(wants, marks, push);
            }
            match (part.is_mark_nonspacing(), class) {
                (true, _) => {}
                (false, 0) => push_lower(wants, part, push),
                (false, _) => marks.push((class, part)),
            }
        });
    };
    let mut clean = |c: char| {
        if wants.clean_text {
            if c == '\0' || c == '\u{fffd}' || is_control(c) {
                return;
            }
            if c.is_whitespace() {
                return decompose(' ');
            }
        }
        if wants.handle_chinese_chars && is_ideograph(c) {
            decompose(' ');
            decompose(c);
            decompose(' ');
        } else {
            decompose(c);
        }
    };
    if wants.lower_case_first {
        c.to_lowercase().for_each(clean);
    } else {
        clean(c);
    }
}

/// Marks that waited, in their order.
fn flush(wants: Wants, marks: &mut Vec<(u8, char)>, push: &mut impl FnMut(char)) {
    // Stable, as equal classes keep their order. Short runs are sorted in place.
    marks.sort_by_key(|&(class, _)| class);
    for (_, mark) in marks.drain(..) {
        push_lower(wants, mark, push);
    }
}

fn push_lower(wants: Wants, c: char, push: &mut impl FnMut(char)) {
    if wants.lower_case {
        c.to_lowercase().for_each(push);
    } else {
        push(c);
    }
}

/// Characters that cleaning removes: control, format, unassigned, private use.
fn is_control(c: char) -> bool {
    !matches!(c, '\t' | '\n' | '\r') && c.is_other()
}

fn is_punctuation(c: char) -> bool {
    c.is_ascii_punctuation() || c.is_punctuation()
}

/// The blocks that BERT takes for Chinese.
fn is_ideograph(c: char) -> bool {
    matches!(c,
        '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{2a6df}' | '\u{2a700}'..='\u{2b73f}' | '\u{2b740}'..='\u{2b81f}'
        | '\u{2b920}'..='\u{2ceaf}' | '\u{2f800}'..='\u{2fa1f}')
}
