//! Pre-tokenizers: where a text is split into words, without a regular-expression engine.
//!
//! Each scanner is one regular expression of a `tokenizer.json`, written out by hand. A word is
//! what the expression matches at its start; together the words are the whole text, because each
//! expression matches any one character. White space, letters and numbers do not overlap.

use super::code_points::{CodePoints, LETTER, MARK, NUMBER, SPACE, code_point_at};

/// Where words end.
pub(super) trait Scanner: Send + Sync {
    /// End of the word that begins at `start`, which is a character boundary before the end of
    /// `text`. `text` is valid UTF-8.
    fn word_end(&self, text: &[u8], start: usize) -> usize;
}

/// The pattern of the `ByteLevel` pre-tokenizer: GPT-2, RoBERTa, ModernBERT.
pub(super) const GPT2: &str =
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// Llama 3 and cl100k: numbers in groups of three.
pub(super) const CL100K: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Qwen2 and Qwen3: each digit alone.
pub(super) const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Qwen3.5: combining marks are parts of words.
pub(super) const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// [`GPT2`]
pub(super) struct Gpt2(pub(super) &'static CodePoints);

impl Scanner for Gpt2 {
    #[inline]
    fn word_end(&self, text: &[u8], start: usize) -> usize {
        let run = Run {
            code_points: self.0,
            text,
        };
        if text[start] == b'\'' {
            match text[start + 1..] {
                [b's' | b't' | b'm' | b'd', ..] => return start + 2,
                [b'r' | b'v', b'e', ..] | [b'l', b'l', ..] => return start + 3,
                _ => {}
            }
        }
        let first = start + usize::from(text[start] == b' ');
        match run.kind(first) {
            LETTER => run.letters(first, LETTER),
            NUMBER => run.numbers(first, usize::MAX),
            // The space itself, or the end of the text after it.
            SPACE | END => run.white_space(start, false),
            _ => run.others(first, LETTER),
        }
    }
}

/// [`CL100K`] and its relatives: `DIGITS` at most make a number, `WORD` is the classes of a word's
/// characters.
pub(super) struct Cl100k<const DIGITS: usize, const WORD: u8>(&'static CodePoints);

impl<const DIGITS: usize, const WORD: u8> Cl100k<DIGITS, WORD> {
    pub(super) fn new(code_points: &'static CodePoints) -> Self {
        Self(code_points)
    }
}

pub(super) type Llama3 = Cl100k<3, LETTER>;
pub(super) type Qwen2 = Cl100k<1, LETTER>;
pub(super) type Qwen35 = Cl100k<1, { LETTER | MARK }>;

impl<const DIGITS: usize, const WORD: u8> Scanner for Cl100k<DIGITS, WORD> {
    #[inline]
    fn word_end(&self, text: &[u8], start: usize) -> usize {
        let run = Run {
            code_points: self.0,
            text,
        };
        let first = text[start];
        // What nearly all words of many languages are: letters, after a space or not.
        if first.is_ascii_alphabetic() {
            return run.letters(start + 1, WORD);
        }
        if first == b' ' && text.get(start + 1).is_some_and(u8::is_ascii_alphabetic) {
            return run.letters(start + 2, WORD);
        }

        if first == b'\'' {
            match text[start + 1..] {
                [b's' | b't' | b'm' | b'd' | b'S' | b'T' | b'M' | b'D', ..] => return start + 2,
                // U+017F, the long s, is an s to the engine when case does not matter.
                [0xc5, 0xbf, ..] | [b'l' | b'L', b'l' | b'L', ..] => return start + 3,
                [b'r' | b'v' | b'R' | b'V', b'e' | b'E', ..] => return start + 3,
                _ => {}
            }
        }
        let (class, length) = run.class_at(start);
        let second = start + length;
        if class & WORD != 0 {
            return run.letters(second, WORD);
        }
        if class & NUMBER != 0 {
            return run.numbers(second, DIGITS - 1);
        }
        if first != b'\r' && first != b'\n' {
            let (class, length) = run.class_at(second);
            if class & WORD != 0 {
                return run.letters(second + length, WORD);
            }
        }
        if class & SPACE == 0 {
            return run.newlines(run.others(second, WORD));
        }
        if first == b' ' && second < text.len() {
            let (class, length) = run.class_at(second);
            if class & (SPACE | WORD | NUMBER) == 0 {
                return run.newlines(run.others(second + length, WORD));
            }
        }
        run.white_space(start, true)
    }
}

/// What [`Run::kind`] says at the end of the text.
const END: u8 = u8::MAX;

/// Runs of one class in a text.
struct Run<'a> {
    code_points: &'a CodePoints,
    text: &'a [u8],
}

impl Run<'_> {
    /// Class of the character at `at`, and its length in bytes; none and 0 at the end.
    #[inline]
    fn class_at(&self, at: usize) -> (u8, usize) {
        code_point_at(self.text, at).map_or((0, 0), |(code_point, length)| {
            (self.code_points.class(code_point), length)
        })
    }

    /// Which of letters, numbers and white space the character at `at` is; [`END`] at the end.
    #[inline]
    fn kind(&self, at: usize) -> u8 {
        if at == self.text.len() {
            return END;
        }
        self.class_at(at).0 & (LETTER | NUMBER | SPACE)
    }

    /// End of the letters at `at`.
    #[inline]
    fn letters(&self, mut at: usize, word: u8) -> usize {
        loop {
            while let Some(eight) = self.text.get(at..).and_then(<[u8]>::first_chunk::<8>) {
                let letters = leading_ascii_letters(u64::from_le_bytes(*eight));
                at += letters;
                if letters < 8 {
                    break;
                }
            }
            match self.text.get(at) {
                None => return at,
                Some(byte) if byte.is_ascii() => {
                    if !byte.is_ascii_alphabetic() {
                        return at;
                    }
                    at += 1;
                }
                Some(_) => loop {
                    let (class, length) = self.class_at(at);
                    if class & word == 0 {
                        return at;
                    }
                    at += length;
                    if self.text.get(at).is_none_or(u8::is_ascii) {
                        break;
                    }
                },
            }
        }
    }

    /// End of the numbers at `at`, `most` characters at most.
    #[inline]
    fn numbers(&self, mut at: usize, most: usize) -> usize {
        for _ in 0..most {
            let (class, length) = self.class_at(at);
            if class & NUMBER == 0 {
                break;
            }
            at += length;
        }
        at
    }

    /// End of what is neither `word`, nor a number, nor white space.
    #[inline]
    fn others(&self, mut at: usize, word: u8) -> usize {
        while at < self.text.len() {
            let (class, length) = self.class_at(at);
            if class & (word | NUMBER | SPACE) != 0 {
                break;
            }
            at += length;
        }
        at
    }

    #[inline]
    fn newlines(&self, mut at: usize) -> usize {
        while let Some(b'\r' | b'\n') = self.text.get(at) {
            at += 1;
        }
        at
    }

    /// `\s*[\r\n]+|\s+(?!\S)|\s+`, the first alternative only if `to_newline`: up to the last line
    /// break of the run; or all but its last character, which goes to the next word; or all.
    fn white_space(&self, start: usize, to_newline: bool) -> usize {
        let mut at = start;
        let mut last = start;
        let mut after_newline = None;
        loop {
            let (class, length) = self.class_at(at);
            if class & SPACE == 0 {
                break;
            }
            last = at;
            at += length;
            if matches!(self.text[last], b'\r' | b'\n') {
                after_newline = Some(at);
            }
        }
        match after_newline {
            Some(end) if to_newline => end,
            _ if at == self.text.len() || last == start => at,
            _ => last,
        }
    }
}

/// How many of eight bytes, the lowest first, are ASCII letters before the first that is not.
#[inline]
fn leading_ascii_letters(eight: u64) -> usize {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH: u64 = 0x80 * ONES;
    // Case folded and without the high bits no sum leaves its byte.
    let folded = (eight | (0x20 * ONES)) & !HIGH;
    let from_a = folded + (0x80 - u64::from(b'a')) * ONES;
    let beyond_z = folded + (0x7f - u64::from(b'z')) * ONES;
    let letters = from_a & !beyond_z & !eight & HIGH;
    ((letters ^ HIGH).trailing_zeros() / 8) as usize
}

#[cfg(test)]
#[path = "scanner_tests.rs"]
mod tests;
