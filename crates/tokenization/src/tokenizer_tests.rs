use serde_json::json;

use super::*;
use crate::{TruncationOptions, fixtures};

fn text(text: &str) -> Content {
    Content::Text(text.to_owned())
}

fn options() -> TokenizerOptions {
    TokenizerOptions {
        max_sequence_tokens: 10_000,
        strip: false,
        lower_case: false,
        vocab_size: 1_000,
    }
}

#[test]
fn truncation_and_padding_of_the_file_are_ignored() {
    let bert = fixtures::bert();
    assert_eq!(bert["truncation"]["max_length"], 4);
    let encoded = fixtures::load(&bert)
        .encode_single("", &text("a b c d e f"), &TruncationOptions::to(100))
        .unwrap();
    assert_eq!(encoded.token_ids.len(), 8);
}

#[test]
fn complete_sequences_are_checked() {
    let json = fixtures::bert().to_string();
    let options = TokenizerOptions {
        max_sequence_tokens: 3,
        vocab_size: 50,
        ..options()
    };
    let ours = Tokenizer::from_json(json.as_bytes(), options).unwrap();
    assert_eq!(ours.check_sequence(&[2, 49, 3]), Ok(()));
    assert_eq!(ours.check_sequence(&[]), Err(EncodeError::Empty));
    assert_eq!(
        ours.check_sequence(&[1; 4]),
        Err(EncodeError::TooLong {
            tokens: 4,
            limit: 3
        })
    );
    assert_eq!(
        ours.check_sequence(&[2, 50]),
        Err(EncodeError::TokenIdOutOfRange {
            position: 1,
            id: 50,
            vocab_size: 50
        })
    );
}

#[test]
fn a_token_beyond_the_embeddings_is_an_error() {
    let json = fixtures::bert().to_string();
    let options = TokenizerOptions {
        vocab_size: 7,
        ..options()
    };
    let ours = Tokenizer::from_json(json.as_bytes(), options).unwrap();
    assert_eq!(ours.encode_segment("a"), Ok(vec![5]));
    assert_eq!(
        ours.encode_segment("a b"),
        Err(EncodeError::TokenIdOutOfRange {
            position: 1,
            id: 7,
            vocab_size: 7
        })
    );
}

#[test]
fn strip_comes_after_the_prompt() {
    let json = fixtures::roberta().to_string();
    let load = |strip| {
        Tokenizer::from_json(json.as_bytes(), TokenizerOptions { strip, ..options() }).unwrap()
    };
    let truncation = TruncationOptions::to(100);
    let (plain, strips) = (load(false), load(true));
    assert_eq!(
        strips.encode_single("q: ", &text(" a\u{1c}"), &truncation),
        plain.encode_single("q: ", &text(" a"), &truncation)
    );
    assert_eq!(
        strips.encode_single("", &text("\u{1c} a \n"), &truncation),
        plain.encode_single("", &text("a"), &truncation)
    );
    assert_ne!(
        plain.encode_single("", &text(" a \n"), &truncation),
        plain.encode_single("", &text("a"), &truncation)
    );
}

#[test]
fn lower_case_leaves_special_tokens_alone() {
    let json = fixtures::xlm_roberta().to_string();
    let options = TokenizerOptions {
        lower_case: true,
        ..options()
    };
    let lower = Tokenizer::from_json(json.as_bytes(), options).unwrap();
    let plain = fixtures::load(&fixtures::xlm_roberta());
    assert_eq!(
        lower.encode_segment("HELLO <mask>"),
        plain.encode_segment("hello <mask>")
    );
    assert_ne!(plain.encode_segment("HELLO"), plain.encode_segment("hello"));
}

#[test]
fn files_that_cannot_be_used() {
    let load = |json: &str, max_sequence_tokens, vocab_size| {
        let options = TokenizerOptions {
            max_sequence_tokens,
            vocab_size,
            ..options()
        };
        Tokenizer::from_json(json.as_bytes(), options).unwrap_err()
    };
    let bert = fixtures::bert().to_string();
    assert!(matches!(load("{", 10, 10), LoadError::Json(_)));
    assert!(matches!(
        load(&json!({"model": 1}).to_string(), 10, 10),
        LoadError::Json(_)
    ));
    assert_eq!(
        load(&bert, 2, 1_000),
        LoadError::SequenceTooShort {
            max_sequence_tokens: 2,
            special_tokens: 2
        }
    );
    let token = "[SEP]".to_owned();
    assert_eq!(
        load(&bert, 10, 3),
        LoadError::SpecialTokenOutOfRange {
            token,
            id: 3,
            vocab_size: 3
        }
    );
}

#[test]
fn tokens_have_names() {
    let ours = fixtures::load(&fixtures::bert());
    let ids = ours.encode_segment("helloing").unwrap();
    assert_eq!(ours.tokens_of(&ids), ["hello", "##ing"]);
    assert_eq!(ours.tokens_of(&[999]), [""]);
}
