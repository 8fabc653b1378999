use proptest::prelude::*;
use serde_json::{Value, json};

use super::{ALPHABET_END, alphabet};
use crate::fast::bpe::fixtures::{Both, TEXTS, byte_level, splitters};

/// What makes a file one that is not covered.
type Change = fn(&mut Value);

fn all() -> Vec<(String, Both)> {
    let mut all = Vec::new();
    for (splitter, pre_tokenizer) in splitters() {
        for (normalizer, ignore_merges) in [(Value::Null, true), (json!({"type": "NFC"}), false)] {
            let name = format!("{splitter}, {normalizer}, ignore_merges {ignore_merges}");
            let file = byte_level(&normalizer, &pre_tokenizer, ignore_merges);
            let both = Both::of(&file).unwrap_or_else(|reason| panic!("{name}: {reason}"));
            assert_eq!(both.fast.name(), "byte-level BPE");
            all.push((name, both));
        }
    }
    all
}

#[test]
fn the_alphabet_is_the_crate_s() {
    let crate_s = tokenizers::pre_tokenizers::byte_level::ByteLevel::alphabet();
    assert_eq!(alphabet().map(|(c, _)| c).collect::<Vec<_>>().len(), 256);
    assert!(alphabet().all(|(c, _)| crate_s.contains(&c) && (c as usize) < ALPHABET_END));
}

#[test]
fn texts_of_all_kinds() {
    for (name, both) in all() {
        for text in TEXTS {
            both.check(&name, text);
            both.check_stops(&name, text);
        }
        // Each word of each length, so that short, long and uncached words are seen.
        for length in 1..80 {
            let word: String = "hellothereworldsПриветмир"
                .chars()
                .cycle()
                .take(length)
                .collect();
            both.check(&name, &format!("{word} {word}"));
        }
    }
}

#[test]
fn whole_words_are_taken_before_merges_only_if_the_file_says_so() {
    let (_, pre_tokenizer) = splitters().remove(3);
    let ids = |ignore_merges| {
        let both = Both::of(&byte_level(&Value::Null, &pre_tokenizer, ignore_merges)).unwrap();
        let mut ids = Vec::new();
        both.fast.encode(" zqj", usize::MAX, &mut ids);
        ids.len()
    };
    assert_eq!(ids(true), 1);
    assert_eq!(ids(false), 4);
}

#[test]
fn any_text() {
    let all = all();
    let text = prop_oneof![
        any::<String>(),
        "[a-eh lotwr'ſSélПивер你好世界안ส😀\u{301}\u{1100}\u{1161}0-9\r\n\t .,=-]{0,60}",
        "(the|hello|world|dog|привет|你好| |  |\n|'s|'LL|12|==|é|e\u{301}){0,30}",
    ];
    proptest!(ProptestConfig::with_cases(200), |(text in text)| {
        for (name, both) in &all {
            both.check(name, &text);
        }
    });
}

#[test]
fn what_is_not_covered_is_refused() {
    let (_, pre_tokenizer) = splitters().remove(4);
    let refused = |change: fn(&mut Value)| {
        let mut file = byte_level(&Value::Null, &pre_tokenizer, false);
        change(&mut file);
        Both::of(&file).map(|_| ()).unwrap_err().to_string()
    };
    let cases: [(Change, &str); 8] = [
        (|file| file["model"]["dropout"] = json!(0.1), "dropout"),
        (
            |file| file["model"]["end_of_word_suffix"] = json!("</w>"),
            "end_of_word_suffix",
        ),
        (
            |file| file["normalizer"] = json!({"type": "NFKC"}),
            "normalizer",
        ),
        (
            |file| {
                file["pre_tokenizer"]["pretokenizers"][0]["pattern"] = json!({"Regex": r"\w+|\W+"});
            },
            r"\w+|\W+",
        ),
        (
            |file| file["pre_tokenizer"]["pretokenizers"][0]["behavior"] = json!("Removed"),
            "pre-tokenizer",
        ),
        (
            |file| file["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = json!(true),
            "pre-tokenizer",
        ),
        (|file| file["pre_tokenizer"] = Value::Null, "together"),
        (
            |file| {
                file["model"]["vocab"].as_object_mut().unwrap().remove("ÿ");
            },
            "byte 0xff has no token",
        ),
    ];
    for (change, reason) in cases {
        let refusal = refused(change);
        assert!(refusal.contains(reason), "{refusal}");
    }
    let twice: fn(&mut Value) = |file| file["model"]["vocab"]["zqjx"] = json!(0);
    assert!(refused(twice).contains("same id"));
    let large: fn(&mut Value) = |file| file["model"]["vocab"]["zqjx"] = json!(1 << 24);
    assert!(refused(large).contains("24 bits"));
}
