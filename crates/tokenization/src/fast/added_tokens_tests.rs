use serde_json::{Value, json};

use super::*;
use crate::fixtures;

/// The fixture of BERT with these added tokens beside its own: content and flags out of
/// `single_word`, `lstrip`, `rstrip`, `normalized`.
fn with_tokens(tokens: &[(&str, &[&str])]) -> tokenizers::Tokenizer {
    let mut bert = fixtures::bert();
    let first = bert["model"]["vocab"].as_object().unwrap().len();
    for (index, (content, flags)) in tokens.iter().enumerate() {
        let flag = |name: &str| Value::Bool(flags.contains(&name));
        bert["added_tokens"].as_array_mut().unwrap().push(json!({
            "id": first + index, "content": content, "special": true,
            "single_word": flag("single_word"), "lstrip": flag("lstrip"),
            "rstrip": flag("rstrip"), "normalized": flag("normalized")}));
    }
    fixtures::reference(&bert)
}

/// What the crate's own splitting makes of `text`, normalization left out.
fn assert_equal(reference: &tokenizers::Tokenizer, text: &str) {
    let tokens = AddedTokens::of(reference).unwrap();
    let mut ours = Vec::new();
    for part in tokens.raw.split(text) {
        match part {
            Part::Token(id) => ours.push((Some(id), String::new())),
            Part::Text { text: part, start } => {
                assert!(!part.is_empty() && text[start..].starts_with(part));
                ours.push((None, part.to_owned()));
            }
        }
    }
    let mut plain = reference.clone();
    plain
        .with_normalizer(None::<tokenizers::NormalizerWrapper>)
        .unwrap();
    let vocabulary = plain.get_added_vocabulary();
    let split = vocabulary.extract_and_normalize(plain.get_normalizer(), text);
    let theirs: Vec<_> = split
        .get_splits(
            tokenizers::OffsetReferential::Original,
            tokenizers::OffsetType::Byte,
        )
        .into_iter()
        .map(|(part, _, tokens)| match tokens {
            Some(tokens) => (Some(tokens[0].id), String::new()),
            None => (None, part.to_owned()),
        })
        .collect();
    assert_eq!(ours, theirs, "{text:?}");
}

#[test]
fn all_rules_equal_the_crate() {
    let reference = with_tokens(&[
        ("<w>", &["single_word"]),
        ("<l>", &["lstrip"]),
        ("<r>", &["rstrip"]),
        ("<b>", &["lstrip", "rstrip"]),
        ("<all>", &["single_word", "lstrip", "rstrip"]),
        ("<l><r>", &[]),
        (" \u{3000}", &[]),
        ("w", &["single_word"]),
    ]);
    let pieces = [
        "<w>", "<l>", "<r>", "<b>", "<all>", "[MASK]", " ", "\u{3000}", "\n", "a", "w", "\u{301}",
        "_", "\u{200d}", "-", "<", "\u{4e00}",
    ];
    for first in pieces {
        for second in pieces {
            for third in pieces {
                for fourth in ["", "<r>", " <l>", "  ", "w"] {
                    let text = [first, second, third, fourth].concat();
                    assert_equal(&reference, &text);
                }
            }
        }
    }
    assert_equal(&reference, "");
}

#[test]
fn special_tokens_can_be_text() {
    let mut reference = with_tokens(&[]);
    reference.set_encode_special_tokens(true);
    assert_equal(&reference, "a [MASK] b");
    reference.set_encode_special_tokens(false);
    assert_equal(&reference, "a [MASK] b");
}

#[test]
fn normalized_tokens_are_told_apart() {
    assert!(!AddedTokens::of(&with_tokens(&[])).unwrap().has_normalized());
    let reference = with_tokens(&[("\u{c9}T\u{c9}", &["normalized"])]);
    let tokens = AddedTokens::of(&reference).unwrap();
    assert!(tokens.has_normalized());
    assert_eq!(tokens.raw.split("an ete").count(), 1);
    assert_eq!(tokens.normalized.split("an ete").count(), 2);
}
