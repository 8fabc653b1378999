//! A fast tokenizer must give the ids of the `tokenizers` crate on built-in texts before it is
//! used: a net for files that look like what we cover and are not.

use std::fmt;

use super::FastTokenizer;
use crate::pool::caught;

/// The first text whose ids differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Difference {
    text: String,
    expected: Result<Vec<u32>, String>,
    given: Vec<u32>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            text,
            expected,
            given,
        } = self;
        write!(f, "{text:?} is {given:?}, should be {expected:?}")
    }
}

/// Compares the two on all [`texts`], whole and stopped early.
pub(super) fn first_difference(
    fast: &FastTokenizer,
    reference: &tokenizers::Tokenizer,
) -> Option<Difference> {
    let mut tokens: Vec<_> = reference.get_added_tokens_decoder().into_iter().collect();
    tokens.sort_unstable_by_key(|&(id, _)| id);
    // Of a file with thousands of added tokens the first, the last and some between.
    let step = tokens.len().div_ceil(16).max(1);
    let around = tokens
        .iter()
        .step_by(step)
        .map(|(_, token)| format!("a {0} b{0}c  {0}{0}\n{0} ", token.content));
    texts()
        .into_iter()
        .chain(around)
        .find_map(|text| difference(fast, reference, text))
}

fn difference(
    fast: &FastTokenizer,
    reference: &tokenizers::Tokenizer,
    text: String,
) -> Option<Difference> {
    let expected = caught(|| {
        Ok(reference
            .encode_fast(text.as_str(), false)?
            .get_ids()
            .to_vec())
    });
    let mut given = Vec::new();
    fast.encode(&text, usize::MAX, &mut given);
    if expected.as_ref() != Ok(&given) {
        return Some(Difference {
            text,
            expected,
            given,
        });
    }
    for limit in [1, given.len() / 2] {
        let mut beginning = Vec::new();
        fast.encode(&text, limit, &mut beginning);
        let enough = beginning.len() >= limit.min(given.len());
        if !enough || !given.starts_with(&beginning) {
            return Some(Difference {
                text,
                expected,
                given: beginning,
            });
        }
    }
    None
}

/// 200 texts: each sample alone, and each beside others with different things between them.
fn texts() -> Vec<String> {
    const JOINTS: [&str; 4] = ["", " ", "  \n", "'s "];
    let count = SAMPLES.len();
    let alone = SAMPLES.iter().map(|&sample| sample.to_owned());
    let beside = (0..TEXTS - count).map(|index| {
        let first = SAMPLES[1 + index % (count - 1)];
        let round = index / count;
        let second = SAMPLES[6 + (index * 7 + 11 * round) % (count - 6)];
        [first, JOINTS[(index + round) % JOINTS.len()], second].concat()
    });
    alone.chain(beside).collect()
}

const TEXTS: usize = 200;

/// What tokenizers trip over: scripts, marks, forms that normalize, white space, controls.
const SAMPLES: [&str; 56] = [
    "",
    " ",
    "   ",
    "\n",
    "\r\n",
    "\t\t x",
    "a",
    "hello world",
    "Hello, World! It's 25.5 °C; isn't it?",
    "The quick brown fox jumps over the lazy dog",
    "they'll we've I'm HE'D you'RE 'tis rock'n'roll",
    "1234567890 12 345 6,789.01 3\u{b2} \u{bd} \u{2460} \u{0663}\u{0664}",
    "def f(x: int) -> str:\n    return f\"{x:>10}\"  # comment\n\n\n",
    "<div class=\"a\">&amp;</div> https://example.org/a?b=c#d user@example.org",
    "supercalifragilisticexpialidocious antidisestablishmentarianism",
    "\u{e9}t\u{e9} na\u{ef}ve \u{c5}ngstr\u{f6}m fa\u{e7}ade \u{df} \u{1e9e} \u{130}stanbul \u{131}",
    "e\u{301}te\u{301} n\u{303} o\u{302}\u{323} a\u{308}\u{304} \u{1e69} s\u{323}\u{307}",
    "q\u{307}\u{323} \u{344} \u{340}\u{341} x\u{334}\u{20d2}\u{302e}\u{1d165}",
    "\u{fb01}ne \u{fb00} \u{ff21}\u{ff42}\u{ff11}\u{ff01} \u{2122} \u{210c} \u{3392} \u{1d49c}",
    "\u{41f}\u{440}\u{438}\u{432}\u{435}\u{442}, \u{43c}\u{438}\u{440}! \u{419}\u{451}\u{436} \u{438}\u{306}",
    "\u{39a}\u{3b1}\u{3bb}\u{3b7}\u{3bc}\u{3ad}\u{3c1}\u{3b1} \u{39a}\u{3cc}\u{3c3}\u{3bc}\u{3b5} \u{3a3}\u{3a3} \u{37e} \u{1f78}",
    "\u{5e9}\u{5dc}\u{5d5}\u{5dd} \u{5e2}\u{5d5}\u{5dc}\u{5dd} \u{5e9}\u{5c1}\u{5b8}\u{5dc}\u{5d5}\u{5b9}\u{5dd}",
    "\u{645}\u{631}\u{62d}\u{628}\u{627} \u{628}\u{627}\u{644}\u{639}\u{627}\u{644}\u{645} \u{645}\u{64f}\u{62d}\u{64e}\u{645}\u{64e}\u{651}\u{62f} \u{fdfa} \u{fefb}",
    "\u{928}\u{92e}\u{938}\u{94d}\u{924}\u{947} \u{926}\u{941}\u{928}\u{93f}\u{92f}\u{93e} \u{915}\u{94d}\u{937} \u{958}",
    "\u{ba8}\u{bbf}\u{bb2}\u{bcb} \u{0cb5}\u{0cbf}\u{0cca} \u{d15}\u{d4d}\u{d37}",
    "\u{e2a}\u{e27}\u{e31}\u{e2a}\u{e14}\u{e35}\u{e0a}\u{e32}\u{e27}\u{e42}\u{e25}\u{e01} \u{e33} \u{eb3}",
    "\u{1019}\u{103c}\u{1014}\u{103a}\u{1019}\u{102c} \u{1781}\u{17d2}\u{1798}\u{17c2}\u{179a}",
    "\u{f40}\u{f42}\u{f71}\u{f72}\u{f80} \u{f73} \u{f0b}",
    "\u{4f60}\u{597d}\u{ff0c}\u{4e16}\u{754c}\u{3002}\u{6211}\u{662f}\u{5b66}\u{751f}",
    "\u{3053}\u{3093}\u{306b}\u{3061}\u{306f}\u{4e16}\u{754c} \u{30ab}\u{3099}\u{30d1} \u{ff76}\u{ff9e}\u{ff8a}\u{ff9f}",
    "\u{c548}\u{b155}\u{d558}\u{c138}\u{c694} \u{110b}\u{1161}\u{11ab} \u{1100}\u{1100}\u{1161} \u{a960}\u{d7b0}\u{d7cb}",
    "\u{f900}\u{f901} \u{2f800} \u{20000}\u{2a6d6} \u{3400}\u{9fff} \u{fa0e}",
    "\u{1f600}\u{1f44d}\u{1f3fd} \u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}\u{200d}\u{1f466} \u{2764}\u{fe0f} 1\u{fe0f}\u{20e3}",
    "\u{1f1e9}\u{1f1ea}\u{1f1eb}\u{1f1f7}\u{1f1ea} \u{1f3f4}\u{e0067}\u{e0062}\u{e007f}",
    "\u{0}\u{1}a\u{7}\u{8}b\u{b}\u{c}c\u{1b}[0m\u{7f}",
    "\u{80}\u{85}\u{9f} \u{ad}a\u{ad}b \u{600}1 \u{6dd}2 \u{110bd}",
    "\u{a0}a\u{a0}\u{1680}\u{2003}b\u{2028}c\u{2029}\u{202f}\u{205f}\u{3000}d",
    "a\u{200b}b\u{200c}c\u{200d}d\u{2060}e\u{feff}f\u{180e}g",
    "\u{202a}left\u{202c}\u{202e}right\u{2066}x\u{2069}",
    "\u{fffd}\u{fffe}\u{ffff} \u{e000}\u{f8ff} \u{10ffff}",
    "\u{378}\u{530}\u{e01ef}\u{1fffe} \u{10900}\u{12000}\u{13000}\u{1d173}",
    "\u{2581}\u{2581}a \u{2581} b\u{2581}",
    "\u{201c}quoted\u{201d} \u{2018}it\u{2019}s\u{2019} \u{ab}non\u{bb} \u{2014} \u{2026} \u{2013}",
    "$5 \u{20ac}7 \u{a3}8 +1 -2 \u{d7}3 \u{f7}4 <5 >=6 \u{2260}7 ^8 `9` ~10 |11|",
    "#hashtag @user ##piece ### * ** _ __ snake_case camelCase kebab-case",
    "\u{1ab0}\u{300}\u{301} \u{302} \u{903}\u{93e} \u{9be}a",
    "\u{17f}\u{2019}\u{17f} '\u{17f} \u{212a}elvin \u{2126}hm \u{b5}m \u{3bc}m",
    "\u{61}\u{5ae}\u{300}\u{315}\u{62} \u{1e0b}\u{323} \u{d4db} \u{1112}\u{1171}\u{11b6}",
    "!!!???...,,,;;;:::---===((([[[{{{\"\"\"'''",
    "\u{3001}\u{ff61}\u{30fb}\u{301c}\u{ff5e}\u{300c}\u{300d}\u{3010}\u{3011}",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvw",
    "[CLS] [SEP] [UNK] [MASK] <s> </s> <unk> <mask> <pad> <0x41> <|endoftext|> <|im_start|>",
    "trailing   \n leading\n\n\n   \tmixed \r\n\r\n   ",
    "\u{61}\u{300}\u{300}\u{300}\u{300}\u{300}\u{300}\u{300}\u{300}\u{300}\u{300}\u{300}\u{300}",
    "Stra\u{df}e stra\u{df}e STRASSE \u{149} \u{1f0} \u{390} \u{587}",
];

#[cfg(test)]
#[path = "self_check_tests.rs"]
mod tests;
