//! Python's `str.strip()`: its set of white space is not Rust's.

/// White space to `str.isspace()`: bidirectional class WS, B or S, or category Zs. Beside Rust's
/// own set these are the four information separators; a zero-width space is not among them.
fn is_python_whitespace(c: char) -> bool {
    matches!(c, '\u{1c}'..='\u{1f}') || c.is_whitespace()
}

/// `text` without the white space around it, as Python's `str.strip()` has it.
pub(crate) fn strip(text: &str) -> &str {
    text.trim_matches(is_python_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_set_is_python_s() {
        // [c for c in map(chr, range(0x110000)) if c.isspace()] of Python 3.11
        let python: Vec<u32> = (0x09..=0x0d)
            .chain(0x1c..=0x20)
            .chain([0x85, 0xa0, 0x1680])
            .chain(0x2000..=0x200a)
            .chain([0x2028, 0x2029, 0x202f, 0x205f, 0x3000])
            .collect();
        let ours: Vec<u32> = ('\0'..=char::MAX)
            .filter(|&c| is_python_whitespace(c))
            .map(u32::from)
            .collect();
        assert_eq!(ours, python);
    }

    #[test]
    fn only_the_ends() {
        assert_eq!(strip("\u{1c}\u{85} a b\u{3000}\n"), "a b");
        assert_eq!(strip("\u{200b}a"), "\u{200b}a");
        assert_eq!(strip(" \t "), "");
    }
}
