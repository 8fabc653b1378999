//! Random text with all that Unicode has, for comparisons with the `tokenizers` crate.

use fastrand::Rng;

/// Makes texts of many kinds; the same seed makes the same texts.
pub(crate) struct RandomText {
    rng: Rng,
    /// Added tokens and a sample of the vocabulary: text that means something to the tokenizer.
    pieces: Vec<String>,
}

/// What one stretch of text is made of.
const KINDS: usize = 12;

impl RandomText {
    pub(crate) fn new(seed: u64, pieces: Vec<String>) -> Self {
        Self {
            rng: Rng::with_seed(seed),
            pieces,
        }
    }

    /// Pieces of a tokenizer for [`RandomText::new`].
    pub(crate) fn pieces_of(reference: &tokenizers::Tokenizer) -> Vec<String> {
        let mut pieces: Vec<String> = reference.get_vocab(true).into_keys().collect();
        pieces.sort_unstable();
        let step = pieces.len().div_ceil(20_000).max(1);
        let added = reference.get_added_tokens_decoder().into_values();
        let mut added: Vec<String> = added.map(|token| token.content).collect();
        added.sort_unstable();
        pieces.into_iter().step_by(step).chain(added).collect()
    }

    /// One to four stretches of different kinds.
    pub(crate) fn text(&mut self) -> String {
        let mut text = String::new();
        for _ in 0..self.rng.usize(1..=4) {
            let kind = self.rng.usize(..KINDS);
            let length = match self.rng.u8(..20) {
                0 => self.rng.usize(50..300),
                1..=5 => self.rng.usize(..4),
                _ => self.rng.usize(1..24),
            };
            let block = self.rng.u32(..0x1_8000 / 0x80) * 0x80;
            let plane = self.rng.u32(..17) * 0x1_0000;
            let repeated = self.of(block, 0x80);
            for _ in 0..length {
                self.stretch(kind, block, plane, repeated, &mut text);
            }
        }
        text
    }

    fn stretch(&mut self, kind: usize, block: u32, plane: u32, repeated: char, text: &mut String) {
        match kind {
            // Any code point of one plane, assigned or not.
            0 => text.push(self.of(plane, 0x1_0000)),
            // Words of one script, with spaces and punctuation.
            1 => {
                text.push(self.of(block, 0x80));
                self.sometimes(&[" ", ".", ", ", "-", "\n"], text);
            }
            // English as it is typed.
            2 => {
                text.push(self.of('a' as u32, 26));
                self.sometimes(
                    &[" ", " The ", "'s", "'LL", "  ", ", ", "1", "\u{e9}"],
                    text,
                );
            }
            // Letters with marks of all classes, in any order.
            3 => {
                text.push(self.pick(&[
                    'e', 'a', 's', 'A', '\u{1e69}', '\u{928}', '\u{5d0}', '\u{ac00}', '=',
                ]));
                for _ in 0..self.rng.usize(..5) {
                    let mark = self.pick(&[
                        (0x300, 0x70),
                        (0x591, 0x30),
                        (0x64b, 0x15),
                        (0x93c, 0x12),
                        (0xe31, 0x1a),
                        (0x1ab0, 0x20),
                        (0x1dc0, 0x40),
                        (0x20d0, 0x21),
                        (0x302a, 6),
                        (0x1d165, 0x10),
                        (0xfe20, 0x10),
                        (0xf71, 0x14),
                        (0x1b34, 0x12),
                        (0x16ff0, 2),
                        (0x10a0c, 4),
                    ]);
                    text.push(self.of(mark.0, mark.1));
                }
            }
            // Emoji with everything that joins them.
            4 => {
                let first = self.pick(&[
                    (0x1f600, 0x50),
                    (0x1f466, 4),
                    (0x2600, 0xff),
                    (0x1f1e6, 26),
                    (0x30, 10),
                ]);
                text.push(self.of(first.0, first.1));
                self.sometimes(
                    &[
                        "\u{fe0f}",
                        "\u{200d}",
                        "\u{1f3fd}",
                        "\u{20e3}",
                        "\u{e0067}",
                        "\u{e007f}",
                    ],
                    text,
                );
            }
            // Hangul, whole and in letters.
            5 => {
                let range = self.pick(&[
                    (0x1100, 0x100),
                    (0xac00, 11_172),
                    (0xa960, 0x20),
                    (0xd7b0, 0x50),
                ]);
                text.push(self.of(range.0, range.1));
            }
            // Controls, format characters, white space.
            6 => {
                let range = self.pick(&[
                    (0, 0x20),
                    (0x7f, 0x22),
                    (0x2000, 0x10),
                    (0x2028, 8),
                    (0x205f, 0x11),
                    (0xfff0, 0x10),
                ]);
                text.push(self.of(range.0, range.1));
                self.sometimes(
                    &[
                        " ", "  ", "\r\n", "\u{feff}", "\u{3000}", "\u{ad}", "\u{180e}", "a",
                    ],
                    text,
                );
            }
            // One character again and again.
            7 => text.push(repeated),
            // Pieces of the vocabulary without anything between them, or with.
            8 | 9 if !self.pieces.is_empty() => {
                let piece = self.rng.usize(..self.pieces.len());
                text.push_str(&self.pieces[piece]);
                if kind == 9 {
                    self.sometimes(&[" ", "\u{2581}", "\n", "\t "], text);
                }
            }
            // Ideographs, kana, compatibility forms.
            10 => {
                let range = self.pick(&[
                    (0x4e00, 0x5000),
                    (0x3040, 0xc0),
                    (0xff00, 0xf0),
                    (0x3300, 0x100),
                    (0xf900, 0x200),
                    (0x2f800, 0x220),
                    (0x3001, 3),
                ]);
                text.push(self.of(range.0, range.1));
            }
            // Digits and signs.
            _ => {
                let range = self.pick(&[
                    (0x20, 0x20),
                    (0x30, 10),
                    (0x660, 10),
                    (0x2150, 0x40),
                    (0x2460, 0x40),
                    (0x1d7ce, 50),
                ]);
                text.push(self.of(range.0, range.1));
            }
        }
    }

    fn of(&mut self, first: u32, count: u32) -> char {
        // A surrogate has no place in a text.
        char::from_u32(first + self.rng.u32(..count)).unwrap_or('\u{fffd}')
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.rng.usize(..of.len())]
    }

    fn sometimes(&mut self, of: &[&str], text: &mut String) {
        if self.rng.u8(..4) == 0 {
            text.push_str(self.pick(of));
        }
    }
}
