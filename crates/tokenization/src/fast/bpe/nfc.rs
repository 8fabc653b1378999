//! Normalization form C, with the tables of the `tokenizers` crate; text that is in it already,
//! nearly all, is only looked at.

use unicode_normalization_alignments::char::canonical_combining_class;
use unicode_normalization_alignments::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use super::code_points::{CodePoints, NFC_STABLE, code_point_at};

/// A part of a text that composition may change, in bytes.
struct Doubtful {
    /// Nothing before this place is touched, and what is after it does not depend on that.
    start: usize,
    /// As far as it is known: the first character after it is stable, or the text ends.
    end: usize,
}

/// Appends `text` in form C to `normalized`.
pub(super) fn push_nfc(code_points: &CodePoints, text: &str, normalized: &mut String) {
    let mut copied = 0;
    while let Some(Doubtful { start, end }) = next_doubtful(code_points, text, copied) {
        normalized.push_str(&text[copied..start]);
        normalized.extend(text[start..end].nfc().map(|(c, _)| c));
        copied = end;
    }
    normalized.push_str(&text[copied..]);
}

/// Nothing of `text` needs composing.
pub(super) fn is_nfc(code_points: &CodePoints, text: &str) -> bool {
    next_doubtful(code_points, text, 0).is_none()
}

/// The first part of `text` from `from` on that is not certainly in form C. `from` is 0 or the
/// start of a stable character.
fn next_doubtful(code_points: &CodePoints, text: &str, from: usize) -> Option<Doubtful> {
    let bytes = text.as_bytes();
    let mut at = from;
    // Where the last stable character begins; what comes after it may join it.
    let mut start = from;
    let mut last_class = 0;
    while at < bytes.len() {
        let lead = bytes[at];
        if lead < 0x80 {
            let ascii = ascii_run(&bytes[at..]);
            at += ascii;
            start = at - 1;
            last_class = 0;
            continue;
        }
        let (code_point, length) = code_point_at(bytes, at)?;
        if code_points.is_stable_lead(lead) || code_points.class(code_point) & NFC_STABLE != 0 {
            start = at;
            at += length;
            last_class = 0;
            continue;
        }
        let c = char::from_u32(code_point)?;
        let class = canonical_combining_class(c);
        let in_order = class == 0 || class >= last_class;
        if !in_order || is_nfc_quick(std::iter::once(c)) != IsNormalized::Yes {
            return Some(Doubtful {
                start,
                end: stable_from(code_points, bytes, at + length),
            });
        }
        last_class = class;
        at += length;
    }
    None
}

/// Start of the first stable character at or after `at`.
fn stable_from(code_points: &CodePoints, text: &[u8], mut at: usize) -> usize {
    while let Some((code_point, length)) = code_point_at(text, at) {
        if code_points.class(code_point) & NFC_STABLE != 0 {
            break;
        }
        at += length;
    }
    at
}

/// Number of ASCII bytes at the start of `text`.
fn ascii_run(text: &[u8]) -> usize {
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let (chunks, rest) = text.as_chunks::<8>();
    for (index, chunk) in chunks.iter().enumerate() {
        let high = u64::from_le_bytes(*chunk) & HIGH;
        if high != 0 {
            return 8 * index + high.trailing_zeros() as usize / 8;
        }
    }
    let ascii = rest.iter().take_while(|byte| byte.is_ascii()).count();
    8 * chunks.len() + ascii
}

#[cfg(test)]
#[path = "nfc_tests.rs"]
mod tests;
