use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::fast::comparison::{assert_equal, assert_equal_on_random_text, load};
use crate::fixtures;

fn metaspace(scheme: &str, split: bool) -> Value {
    json!({"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": scheme,
        "split": split})
}

fn sequence(of: &[Value]) -> Value {
    json!({"type": "Sequence", "pretokenizers": of})
}

fn with_pre_tokenizer(pre_tokenizer: Value) -> Value {
    let mut json = fixtures::xlm_roberta();
    json["pre_tokenizer"] = pre_tokenizer;
    json
}

fn with_normalizers(normalizers: &[Value]) -> Value {
    let mut json = fixtures::xlm_roberta();
    json["normalizer"] = json!({"type": "Sequence", "normalizers": normalizers});
    json
}

#[test]
fn all_splits_equal_the_crate() {
    for scheme in ["always", "first", "never"] {
        for split in [true, false] {
            let json = with_pre_tokenizer(metaspace(scheme, split));
            assert_equal_on_random_text(&format!("{scheme} {split}"), &json, 700);
            if scheme != "first" {
                let both =
                    sequence(&[json!({"type": "WhitespaceSplit"}), metaspace(scheme, split)]);
                let json = with_pre_tokenizer(both);
                assert_equal_on_random_text(&format!("white space, {scheme} {split}"), &json, 700);
            }
        }
    }
}

#[test]
fn all_normalizers_equal_the_crate() {
    let strip = |left: bool, right: bool| json!({"type": "Strip", "strip_left": left, "strip_right": right});
    let replace = |pattern: Value, content: &str| json!({"type": "Replace", "pattern": pattern, "content": content});
    let join = |content: &str| replace(json!({"Regex": " {2,}"}), content);
    let quotes = replace(json!({"String": "''"}), "\"");
    let of_type = |name: &str| json!({"type": name});
    let sequences = [
        vec![],
        vec![join("\u{2581}")],
        vec![strip(false, true), join(" ")],
        vec![strip(true, false)],
        vec![strip(true, true), of_type("NFD"), of_type("Lowercase")],
        vec![quotes, of_type("NFKD"), join(" ")],
        vec![of_type("NFC")],
    ];
    for normalizers in sequences {
        let json = with_normalizers(&normalizers);
        assert_equal_on_random_text(&format!("{normalizers:?}"), &json, 700);
    }
}

#[test]
fn unknown_characters_are_one_token_or_bytes() {
    let mut json = fixtures::xlm_roberta();
    let tokens = json["model"]["vocab"].as_array_mut().unwrap();
    // Bytes of some characters only, and a token that unknown characters make up together: its
    // score is so bad that no way leads over it.
    for token in ["<0xC3>", "<0xA9>", "<0xE2>", "<0x80>", "<0xA6>"] {
        tokens.push(json!([token, -20.0]));
    }
    tokens.push(json!(["\u{451}\u{451}", -1_000.0]));
    json["normalizer"] = Value::Null;
    for fallback in [false, true] {
        json["model"]["byte_fallback"] = json!(fallback);
        assert_equal_on_random_text(&format!("byte_fallback {fallback}"), &json, 1_000);
        let (reference, fast) = load(&json);
        let fast = fast.unwrap();
        for text in [
            "\u{e9}\u{e9}a\u{e9}",
            "a\u{2026}\u{e9}\u{451}b",
            "\u{451}\u{451}",
            "a\u{451}\u{451}\u{451}b\u{451}\u{451} \u{451}",
            "<unk>\u{e9}<unk>a",
            "<0xC3>\u{e9}",
        ] {
            assert_equal("unknown", &reference, &fast, text);
        }
    }
}

#[test]
fn of_equally_good_ways_the_crate_s_is_taken() {
    let mut json = fixtures::xlm_roberta();
    // Many ways with equal sums, some equal only as real numbers.
    let mut pieces = vec![json!(["<unk>", 0.0])];
    for (piece, score) in [
        ("\u{2581}", -0.1),
        ("a", -0.1),
        ("aa", -0.2),
        ("aaa", -0.3),
        ("b", -0.7),
        ("ab", -0.8),
        ("ba", -0.8),
        ("aba", -0.9),
        ("bb", -1.4),
        ("abab", -1.6),
        ("\u{2581}a", -0.2),
        ("\u{2581}aa", -0.3),
        ("a", -0.1),
        ("\u{2581}ab", -0.9),
    ] {
        pieces.push(json!([piece, score]));
    }
    json["model"]["vocab"] = json!(pieces);
    json["model"]["unk_id"] = json!(0);
    json["added_tokens"] = json!([]);
    json["post_processor"] = Value::Null;
    let (reference, fast) = load(&json);
    let fast = fast.unwrap();
    let mut rng = fastrand::Rng::with_seed(3);
    for _ in 0..3_000 {
        let letters = ["a", "a", "a", "b", "b", " ", "c"];
        let text: String = (0..rng.usize(1..40))
            .map(|_| letters[rng.usize(..letters.len())])
            .collect();
        assert_equal("ties", &reference, &fast, &text);
    }
}

#[test]
fn what_is_not_covered_is_refused() {
    let mut no_unknown = fixtures::xlm_roberta();
    no_unknown["model"]["unk_id"] = Value::Null;
    let digits = json!({"type": "Digits", "individual_digits": true});
    let white = json!({"type": "WhitespaceSplit"});
    let regex = json!({"type": "Replace", "pattern": {"Regex": "a+"}, "content": "a"});
    let refused = [
        (no_unknown, "unk_id"),
        (with_pre_tokenizer(digits.clone()), "pre-tokenizer"),
        (
            with_pre_tokenizer(sequence(&[digits, metaspace("always", true)])),
            "Sequence",
        ),
        (
            with_pre_tokenizer(sequence(&[white, metaspace("first", true)])),
            "first",
        ),
        (with_normalizers(&[regex]), "replaces"),
        (with_normalizers(&[json!({"type": "Nmt"})]), "normalizer"),
    ];
    for (json, reason) in refused {
        let error = load(&json).1.unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    }
}

proptest! {
    #[test]
    fn any_text_equals_the_crate(text in any::<String>()) {
        static BOTH: LazyLock<(tokenizers::Tokenizer, crate::fast::FastTokenizer)> =
            LazyLock::new(|| {
                let (reference, fast) = load(&fixtures::xlm_roberta());
                (reference, fast.unwrap())
            });
        assert_equal("property", &BOTH.0, &BOTH.1, &text);
    }
}
