use proptest::prelude::*;
use tokenizers::utils::SysRegex;

use super::*;
use crate::fast::bpe::code_points::telling_characters;

struct Case {
    name: &'static str,
    scanner: Box<dyn Scanner>,
    regex: SysRegex,
}

fn cases() -> Vec<Case> {
    let code_points = CodePoints::get().unwrap();
    let case = |name, scanner, pattern| Case {
        name,
        scanner,
        regex: SysRegex::new(pattern).unwrap(),
    };
    vec![
        case("gpt2", Box::new(Gpt2(code_points)), GPT2),
        case("llama3", Box::new(Llama3::new(code_points)), CL100K),
        case("qwen2", Box::new(Qwen2::new(code_points)), QWEN2),
        case("qwen3.5", Box::new(Qwen35::new(code_points)), QWEN35),
    ]
}

fn words(scanner: &dyn Scanner, text: &str) -> Vec<(usize, usize)> {
    let mut words = Vec::new();
    let mut start = 0;
    while start < text.len() {
        let end = scanner.word_end(text.as_bytes(), start);
        assert!(end > start, "no progress at {start} of {text:?}");
        words.push((start, end));
        start = end;
    }
    words
}

fn check(case: &Case, text: &str) {
    let expected: Vec<_> = case.regex.find_iter(text).collect();
    let given = words(case.scanner.as_ref(), text);
    assert_eq!(given, expected, "{}: {text:?}", case.name);
}

#[test]
fn every_character_in_every_place() {
    for case in cases() {
        for c in telling_characters() {
            // One text for many contexts: after and before letters, digits, spaces, line breaks,
            // punctuation, apostrophes, itself.
            let text = format!(
                "{c}a{c}1{c} {c}{c} {c}a '{c} 'l{c} '{c}e'{c}l \n{c}\n {c}\t{c}\r\n.{c} .{c}é{c} 1{c}12 {c}"
            );
            check(&case, &text);
        }
    }
}

#[test]
fn contractions_white_space_and_ends() {
    let pieces = [
        "'s",
        "'S",
        "'ſ",
        "'re",
        "'rE",
        "'ll",
        "'lL",
        "'l",
        "'",
        " ",
        "  ",
        "\n",
        "\r\n",
        "\t",
        "\u{a0}",
        "\u{3000}",
        "\u{85}",
        "a",
        "Bc",
        "é",
        "中",
        "\u{301}",
        "1",
        "1234",
        "²",
        ".",
        "!?",
        "😀",
        "/",
        "\0",
        "abcdefgh",
        "abcdefghijk",
    ];
    for case in cases() {
        check(&case, "");
        for first in pieces {
            check(&case, first);
            for second in pieces {
                for third in pieces {
                    check(&case, &format!("{first}{second}{third}"));
                }
            }
        }
    }
}

#[test]
fn ascii_letters_of_eight_bytes() {
    for byte in 0..=u8::MAX {
        for index in 0..8 {
            let mut eight = *b"azAZmnop";
            eight[index] = byte;
            let expected = if byte.is_ascii_alphabetic() { 8 } else { index };
            let counted = leading_ascii_letters(u64::from_le_bytes(eight));
            assert_eq!(counted, expected, "{byte} at {index}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_text_is_split_as_by_the_engine(text in any::<String>()) {
        for case in cases() {
            check(&case, &text);
        }
    }

    #[test]
    fn texts_of_few_classes(text in "[a-cA\u{17f}é中'slredvtmL 1²\u{301}\u{a0}\r\n\t.,/!😀]{0,40}") {
        for case in cases() {
            check(&case, &text);
        }
    }
}
