//! Lone surrogates in JSON strings become U+FFFD.
//!
//! JavaScript and Python clients send them (half of a cut emoji) as `\ud83d`; a parser for UTF-8
//! strings refuses the whole body.

use std::borrow::Cow;

/// The body with every lone surrogate escape replaced by `\ufffd`; borrowed where there is none.
pub(crate) fn repaired(body: &[u8]) -> Cow<'_, [u8]> {
    let mut repaired: Option<Vec<u8>> = None;
    let mut at = 0;
    while let Some(found) = next_escape(body, at) {
        at = found;
        let Some(first) = surrogate(body, at) else {
            // Two bytes of an escape of any other kind: `\\` must not be read as a beginning.
            at += 2;
            continue;
        };
        if is_high(first) && surrogate(body, at + 6).is_some_and(|second| !is_high(second)) {
            at += 12;
            continue;
        }
        let copy = repaired.get_or_insert_with(|| body.to_vec());
        copy[at + 2..at + 6].copy_from_slice(b"fffd");
        at += 6;
    }
    repaired.map_or(Cow::Borrowed(body), Cow::Owned)
}

fn next_escape(body: &[u8], from: usize) -> Option<usize> {
    let rest = body.get(from..)?;
    memchr::memchr(b'\\', rest).map(|at| from + at)
}

fn is_high(unit: u16) -> bool {
    unit < 0xdc00
}

/// The surrogate that `\uXXXX` at this place stands for.
fn surrogate(body: &[u8], at: usize) -> Option<u16> {
    let escape = body.get(at..at + 6)?;
    if escape[0] != b'\\' || escape[1] != b'u' {
        return None;
    }
    let digits = std::str::from_utf8(&escape[2..]).ok()?;
    if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let unit = u16::from_str_radix(digits, 16).ok()?;
    (0xd800..=0xdfff).contains(&unit).then_some(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(json: &str) -> String {
        serde_json::from_slice(&repaired(json.as_bytes())).unwrap()
    }

    #[test]
    fn lone_halves_are_replaced() {
        assert_eq!(parsed(r#""a\ud83d""#), "a\u{fffd}");
        assert_eq!(parsed(r#""\ud83db""#), "\u{fffd}b");
        assert_eq!(parsed(r#""\uDE00\ud83d""#), "\u{fffd}\u{fffd}");
        assert_eq!(parsed(r#""\ud83d\ud83d\ude00""#), "\u{fffd}\u{1f600}");
        assert_eq!(parsed(r#""\ud83d\n""#), "\u{fffd}\n");
    }

    #[test]
    fn whole_pairs_and_other_escapes_stay() {
        for (json, text) in [
            (r#""\ud83d\ude00""#, "\u{1f600}"),
            (r#""\\ud83d""#, "\\ud83d"),
            (r#""\\\\ud83d""#, "\\\\ud83d"),
            (r#""\u0000\u00e9\"""#, "\0é\""),
        ] {
            assert!(
                matches!(repaired(json.as_bytes()), Cow::Borrowed(_)),
                "{json}"
            );
            assert_eq!(parsed(json), text);
        }
    }

    #[test]
    fn cut_escapes_are_left_to_the_parser() {
        for json in [r#""\ud8"#, r#""\"#, r#""\u"#, r#""\ud83"#] {
            assert!(
                matches!(repaired(json.as_bytes()), Cow::Borrowed(_)),
                "{json}"
            );
        }
    }
}
