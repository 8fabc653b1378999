//! Error messages repeat what a request says, which can be megabytes. A gRPC status travels in
//! headers, for which clients have 16 KiB: a longer one is another error at the client.

use std::fmt::{Debug, Write};

/// Bytes of a message; percent-encoding makes them three times as many at most.
const MAX_MESSAGE_BYTES: usize = 2000;

/// Characters of a value inside of a message.
const MAX_VALUE_CHARS: usize = 200;

/// The beginning of a message, with `…` where more was.
#[must_use]
pub fn shortened(mut message: String) -> String {
    if message.len() > MAX_MESSAGE_BYTES {
        let room = MAX_MESSAGE_BYTES - "…".len();
        let boundary = |&at: &usize| message.is_char_boundary(at);
        let end = (0..=room).rev().find(boundary).unwrap_or(0);
        message.truncate(end);
        message.push('…');
    }
    message
}

/// A value as `{:?}` writes it, only its beginning and `…` where it is long.
#[must_use]
pub fn quoted(value: impl Debug) -> String {
    let mut beginning = Beginning {
        text: String::new(),
        room: MAX_VALUE_CHARS,
    };
    if write!(beginning, "{value:?}").is_err() {
        beginning.text.push('…');
    }
    beginning.text
}

/// Takes as many characters as there is room for, then fails: the rest is not even formatted.
struct Beginning {
    text: String,
    room: usize,
}

impl Write for Beginning {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for c in text.chars() {
            self.room = self.room.checked_sub(1).ok_or(std::fmt::Error)?;
            self.text.push(c);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_end_at_a_character() {
        let whole = "x".repeat(MAX_MESSAGE_BYTES);
        assert_eq!(shortened(whole.clone()), whole);
        for one in ["x", "ä", "€", "🌹"] {
            let short = shortened(format!("a{}", one.repeat(MAX_MESSAGE_BYTES)));
            assert!((1990..=MAX_MESSAGE_BYTES).contains(&short.len()), "{one}");
            assert!(short.starts_with('a') && short.ends_with(&format!("{one}…")));
        }
    }

    #[test]
    fn long_values_are_cut() {
        assert_eq!(quoted("a \"b\"\n"), r#""a \"b\"\n""#);
        assert_eq!(quoted("x".repeat(198)).chars().count(), 200);
        let cut = format!("\"{}…", "ä".repeat(199));
        assert_eq!(quoted("ä".repeat(1 << 20)), cut);
        assert_eq!(quoted(["a", "b"]), r#"["a", "b"]"#);
    }
}
