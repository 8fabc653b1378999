use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::fast::comparison::{assert_equal, assert_equal_on_random_text, load};
use crate::fixtures;

fn bert(normalizer: Value) -> Value {
    let mut bert = fixtures::bert();
    bert["normalizer"] = normalizer;
    bert
}

fn normalizer(clean: bool, chinese: bool, strip: Option<bool>, lower: bool) -> Value {
    json!({"type": "BertNormalizer", "clean_text": clean, "handle_chinese_chars": chinese,
        "strip_accents": strip, "lowercase": lower})
}

#[test]
fn all_options_equal_the_crate() {
    for clean in [false, true] {
        for chinese in [false, true] {
            for strip in [None, Some(false), Some(true)] {
                for lower in [false, true] {
                    let json = bert(normalizer(clean, chinese, strip, lower));
                    let name = format!("{clean} {chinese} {strip:?} {lower}");
                    assert_equal_on_random_text(&name, &json, 150);
                }
            }
        }
    }
}

#[test]
fn lower_case_may_come_first() {
    let lower = json!({"type": "Lowercase"});
    let cased = normalizer(true, true, Some(true), false);
    let json = bert(json!({"type": "Sequence", "normalizers": [lower, cased]}));
    assert_equal_on_random_text("lower case first", &json, 1_000);
}

#[test]
fn each_character_equals_the_crate() {
    let (reference, fast) = load(&fixtures::bert());
    let fast = fast.unwrap();
    // Words out of few letters, so that a difference shows: most others are unknown.
    let mut text = String::new();
    for c in ('\0'..'\u{20200}').chain('\u{2f800}'..'\u{2fa20}') {
        text.extend(['a', c, 'b', ' ', c, '\u{323}', c, ' ']);
        if text.len() > 4_000 {
            assert_equal("characters", &reference, &fast, &text);
            text.clear();
        }
    }
    assert_equal("characters", &reference, &fast, &text);
}

#[test]
fn added_tokens_may_match_normalized_text() {
    let mut json = fixtures::bert();
    let id = json["model"]["vocab"].as_object().unwrap().len();
    json["added_tokens"].as_array_mut().unwrap().push(json!({
        "id": id, "content": "H\u{c9}Y", "single_word": false, "lstrip": true, "rstrip": false,
        "normalized": true, "special": false}));
    assert_equal_on_random_text("normalized token", &json, 1_000);
    let (reference, fast) = load(&json);
    let fast = fast.unwrap();
    assert_equal(
        "",
        &reference,
        &fast,
        "a \u{4e00}HeY hey\u{301}b [MASK]hE\u{301}y",
    );
    let mut ids = Vec::new();
    fast.encode("x h\u{e9}Yx", usize::MAX, &mut ids);
    assert!(ids.contains(&(id as u32)));
}

#[test]
fn what_is_not_covered_is_refused() {
    let mut no_unknown = fixtures::bert();
    no_unknown["model"]["unk_token"] = json!("[NONE]");
    let mut other_split = fixtures::bert();
    other_split["pre_tokenizer"] = json!({"type": "Whitespace"});
    let refused = [
        (no_unknown, "\"[NONE]\" is not in the vocabulary"),
        (other_split, "pre-tokenizer"),
        (bert(json!({"type": "NFC"})), "normalizer"),
        (bert(Value::Null), "normalizer"),
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
                let (reference, fast) = load(&fixtures::bert());
                (reference, fast.unwrap())
            });
        assert_equal("property", &BOTH.0, &BOTH.1, &text);
    }
}
