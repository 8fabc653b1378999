use proptest::prelude::*;
use serde_json::{Value, json};

use super::Neighbours;
use crate::fast::bpe::fixtures::{Both, TEXTS, metaspace};

/// What makes a file one that is not covered.
type Change = fn(&mut Value);

fn all() -> [(&'static str, Both); 2] {
    [false, true].map(|prepends_space| {
        let both = Both::of(&metaspace(prepends_space)).unwrap();
        assert_eq!(both.fast.name(), "metaspace BPE");
        let name = if prepends_space { "llama2" } else { "gemma" };
        (name, both)
    })
}

#[test]
fn texts_of_all_kinds() {
    for (name, both) in all() {
        for text in TEXTS {
            both.check(name, text);
            both.check_stops(name, text);
        }
    }
}

#[test]
fn any_text() {
    let all = all();
    let text = prop_oneof![
        any::<String>(),
        "[a-eh lotwr\u{2581}éПривет你好世界안녕ส😀\u{301}0-9\n .,=-]{0,60}",
        "(the|hello|world|dog|привет|你好| |  |\n|\u{2581}|12|==|é|\u{10ffff}){0,30}",
    ];
    proptest!(ProptestConfig::with_cases(1_000), |(text in text)| {
        for (name, both) in &all {
            both.check(name, &text);
        }
    });
}

#[test]
fn neighbours_are_those_of_products() {
    let neighbours = Neighbours::new(["abc", "\u{2581}a", "é\u{2581}", "z"].into_iter());
    let contain = |first: char, second: char| neighbours.contain(first.into(), second.into());
    assert!(contain('a', 'b') && contain('b', 'c') && contain(' ', 'a') && contain('é', ' '));
    assert!(!contain('a', 'c') && !contain('c', 'a') && !contain('a', ' ') && !contain(' ', 'é'));
}

#[test]
fn what_is_not_covered_is_refused() {
    let refused = |change: fn(&mut Value)| {
        let mut file = metaspace(false);
        change(&mut file);
        Both::of(&file).map(|_| ()).unwrap_err().to_string()
    };
    let cases: [(Change, &str); 5] = [
        (
            |file| file["model"]["ignore_merges"] = json!(true),
            "ignores merges",
        ),
        (
            |file| file["model"]["byte_fallback"] = json!(false),
            "without byte fallback",
        ),
        (
            |file| {
                file["model"]["vocab"]
                    .as_object_mut()
                    .unwrap()
                    .remove("<0xFF>");
            },
            "byte 0xff has no token",
        ),
        (
            |file| {
                let model = &mut file["model"];
                let id = model["vocab"].as_object().unwrap().len();
                model["vocab"]["<0x41><0x42>"] = json!(id);
                let merge = json!(["<0x41>", "<0x42>"]);
                model["merges"].as_array_mut().unwrap().push(merge);
            },
            "merges bytes",
        ),
        (
            |file| file["pre_tokenizer"]["invert"] = json!(true),
            "pre-tokenizer",
        ),
    ];
    for (change, reason) in cases {
        let refusal = refused(change);
        assert!(refusal.contains(reason), "{refusal}");
    }
}
