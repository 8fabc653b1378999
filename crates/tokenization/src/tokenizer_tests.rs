use serde_json::{Value, json};
use tokenizers::utils::truncation::{TruncationDirection, TruncationParams, TruncationStrategy};

use super::*;
use crate::fixtures;

const TEXTS: [&str; 14] = [
    "",
    " ",
    "hello",
    "hello world",
    "hello   worlding \n\t again  ",
    "Hello, it's a WORLD of 1234567 things...",
    "[SEP] hello [MASK]world</s><s> <mask>",
    "文字。hello文 字",
    "e\u{301}te\u{301} \u{fb01} ﬀ ½ ¨",
    "\u{0}\u{1}a\u{7f}b\u{200b}c\u{fffd}",
    "👩‍👩‍👧 😀",
    "def f(x):\n    return x ** 2\n",
    "\u{85}\u{a0}a\u{3000}",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
];

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

/// The reference with its own truncation, so that its own code decides what is cut.
fn truncating(
    tokenizer: &Value,
    max_length: usize,
    strategy: TruncationStrategy,
    side: Side,
) -> tokenizers::Tokenizer {
    let direction = match side {
        Side::Right => TruncationDirection::Right,
        Side::Left => TruncationDirection::Left,
    };
    let mut reference = fixtures::reference(tokenizer);
    reference
        .with_padding(None)
        .with_truncation(Some(TruncationParams {
            direction,
            max_length,
            strategy,
            stride: 0,
        }))
        .unwrap();
    reference
}

#[test]
fn single_texts_equal_the_reference() {
    for (name, json) in fixtures::all() {
        let ours = fixtures::load(&json);
        for side in [Side::Right, Side::Left] {
            for max_tokens in [3, 4, 7, 20, 500] {
                let strategy = TruncationStrategy::LongestFirst;
                let reference = truncating(&json, max_tokens, strategy, side);
                let truncation = TruncationOptions {
                    side,
                    ..TruncationOptions::to(max_tokens)
                };
                for sample in TEXTS {
                    let expected = reference.encode(sample, true).unwrap();
                    let encoded = ours.encode_single("", &text(sample), &truncation).unwrap();
                    let case = format!("{name} {side:?} {max_tokens} {sample:?}");
                    assert_eq!(encoded.token_ids, expected.get_ids(), "{case}");
                    assert_eq!(encoded.second_segment_start, 0, "{case}");
                    let given = ours.encode_segment(sample).unwrap().len();
                    let room = max_tokens - ours.num_special_single();
                    let report = Truncated {
                        tokens_given: given,
                        tokens_used: room,
                        side,
                    };
                    assert_eq!(
                        encoded.truncated,
                        (given > room).then_some(report),
                        "{case}"
                    );
                }
            }
        }
    }
}

#[test]
fn pairs_equal_the_reference() {
    for (name, json) in fixtures::all() {
        let ours = fixtures::load(&json);
        // Its `encode` stops reading a part at `max_length`, so that of two overlong parts it is
        // not always the longer that `longest_first` gives the odd token: cut whole parts here.
        let mut whole = fixtures::reference(&json);
        whole.with_truncation(None).unwrap().with_padding(None);
        for (pair, strategy) in [
            (PairTruncation::ProtectQuery, TruncationStrategy::OnlySecond),
            (
                PairTruncation::LongestFirst,
                TruncationStrategy::LongestFirst,
            ),
        ] {
            for (side, max_tokens) in [
                (Side::Right, 9),
                (Side::Left, 9),
                (Side::Right, 30),
                (Side::Right, 500),
            ] {
                let reference = truncating(&json, max_tokens, strategy, side);
                let truncation = TruncationOptions {
                    side,
                    pair,
                    ..TruncationOptions::to(max_tokens)
                };
                for query in TEXTS {
                    let encoded_query = ours.encode_query(&text(query), &truncation);
                    for document in TEXTS {
                        let case =
                            format!("{name} {pair:?} {side:?} {max_tokens} {query:?} {document:?}");
                        let encoded = encoded_query.clone().and_then(|query| {
                            ours.encode_pair(&query, &text(document), &truncation)
                        });
                        let parts =
                            [query, document].map(|part| whole.encode(part, false).unwrap());
                        let [first, second] = parts;
                        let Ok(expected) = reference.post_process(first, Some(second), true) else {
                            // The reference refuses to cut the document to nothing.
                            assert!(encoded.is_err(), "{case}");
                            continue;
                        };
                        let encoded = encoded.expect(&case);
                        assert_eq!(encoded.token_ids, expected.get_ids(), "{case}");
                        let start = encoded.second_segment_start as usize;
                        let types = (0..encoded.token_ids.len())
                            .map(|index| u32::from(start > 0 && index >= start));
                        // With nothing before type 1 there is one segment.
                        if expected.get_type_ids().first() != Some(&1) {
                            assert_eq!(
                                types.collect::<Vec<_>>(),
                                expected.get_type_ids(),
                                "{case}"
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn the_fallback_equals_the_reference() {
    let mut json = fixtures::bert();
    json["post_processor"] = fixtures::template(
        "[CLS]:0 $A:0 [SEP]:0",
        "[CLS]:0 $B:0 [SEP]:0 $A:1 [SEP]:1",
        &[("[CLS]", 2), ("[SEP]", 3)],
    );
    let ours = fixtures::load(&json);
    let reference = truncating(&json, 10, TruncationStrategy::OnlySecond, Side::Right);
    let truncation = TruncationOptions::to(10);
    let query = ours
        .encode_query(&text("hello world"), &truncation)
        .unwrap();
    for document in TEXTS {
        let expected = reference.encode(("hello world", document), true).unwrap();
        let encoded = ours
            .encode_pair(&query, &text(document), &truncation)
            .unwrap();
        assert_eq!(encoded.token_ids, expected.get_ids(), "{document:?}");
        let start = expected
            .get_type_ids()
            .iter()
            .position(|&token_type| token_type == 1);
        assert_eq!(
            encoded.second_segment_start as usize,
            start.unwrap(),
            "{document:?}"
        );
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
fn ceilings_of_the_parts() {
    let ours = fixtures::load(&fixtures::bert());
    let truncation = TruncationOptions {
        max_query_tokens: Some(2),
        max_document_tokens: Some(3),
        ..TruncationOptions::to(100)
    };
    let report = |tokens_given, tokens_used| {
        Some(Truncated {
            tokens_given,
            tokens_used,
            side: Side::Right,
        })
    };
    let query = ours.encode_query(&text("a b c d"), &truncation).unwrap();
    assert_eq!((query.token_ids.len(), query.truncated), (2, report(4, 2)));
    let pair = ours
        .encode_pair(&query, &text("a b c d e"), &truncation)
        .unwrap();
    assert_eq!(
        (pair.token_ids.len(), pair.truncated),
        (3 + 2 + 3, report(5, 3))
    );
    let single = ours
        .encode_single("", &text("a b c d e"), &truncation)
        .unwrap();
    assert_eq!(
        (single.token_ids.len(), single.truncated),
        (2 + 3, report(5, 3))
    );
}

#[test]
fn a_query_cut_for_one_pair_is_reported_there() {
    let ours = fixtures::load(&fixtures::bert());
    let truncation = TruncationOptions {
        pair: PairTruncation::LongestFirst,
        max_query_tokens: Some(5),
        ..TruncationOptions::to(7)
    };
    let query = ours
        .encode_query(&text("a b c d e f"), &truncation)
        .unwrap();
    let pair = ours.encode_pair(&query, &text("a"), &truncation).unwrap();
    let report = Truncated {
        tokens_given: 6,
        tokens_used: 3,
        side: Side::Right,
    };
    assert_eq!((pair.query_truncated, pair.truncated), (Some(report), None));
}

#[test]
fn too_long_is_an_error_when_asked() {
    let ours = fixtures::load(&fixtures::bert());
    let truncation = TruncationOptions {
        policy: OverlongPolicy::Error,
        ..TruncationOptions::to(6)
    };
    let single = |sample: &str| ours.encode_single("", &text(sample), &truncation);
    assert_eq!(single("a b c d").unwrap().token_ids.len(), 6);
    assert_eq!(
        single("a b c d e"),
        Err(EncodeError::TooLong {
            tokens: 7,
            limit: 6
        })
    );
    let query = ours.encode_query(&text("a b"), &truncation).unwrap();
    assert_eq!(
        ours.encode_pair(&query, &text("c"), &truncation)
            .unwrap()
            .token_ids
            .len(),
        6
    );
    assert_eq!(
        ours.encode_pair(&query, &text("c d"), &truncation),
        Err(EncodeError::TooLong {
            tokens: 7,
            limit: 6
        })
    );
    let ceilings = TruncationOptions {
        max_query_tokens: Some(1),
        max_document_tokens: Some(1),
        ..truncation
    };
    assert_eq!(
        ours.encode_query(&text("a b"), &ceilings),
        Err(EncodeError::QueryTooLong {
            query_tokens: 2,
            limit: 1
        })
    );
    assert_eq!(
        ours.encode_single("", &text("a b"), &ceilings),
        Err(EncodeError::DocumentTooLong {
            document_tokens: 2,
            limit: 1
        })
    );
}

#[test]
fn a_protected_query_may_leave_no_room() {
    let ours = fixtures::load(&fixtures::bert());
    let truncation = TruncationOptions::to(6);
    let query = ours.encode_query(&text("a b c"), &truncation).unwrap();
    assert_eq!(
        ours.encode_pair(&query, &text("d"), &truncation),
        Err(EncodeError::NoRoom {
            query_tokens: 3,
            special_tokens: 3,
            limit: 6
        })
    );
    let empty = ours.encode_pair(&query, &text(""), &truncation).unwrap();
    assert_eq!((empty.token_ids.len(), empty.truncated), (6, None));
    assert_eq!(
        ours.encode_query(&text("a b c d"), &truncation),
        Err(EncodeError::QueryTooLong {
            query_tokens: 4,
            limit: 3
        })
    );
}

#[test]
fn limits_below_the_special_tokens() {
    let ours = fixtures::load(&fixtures::bert());
    let no_room = |limit| {
        Err(EncodeError::NoRoom {
            query_tokens: 0,
            special_tokens: 2,
            limit,
        })
    };
    assert_eq!(
        ours.encode_single("", &text("a"), &TruncationOptions::to(2)),
        no_room(2)
    );
    assert_eq!(
        ours.encode_single("", &text(""), &TruncationOptions::to(1)),
        no_room(1)
    );
    let empty = ours
        .encode_single("", &text(""), &TruncationOptions::to(2))
        .unwrap();
    assert_eq!(empty.token_ids, [2, 3]);
}

#[test]
fn the_model_s_limit_holds_whatever_is_asked() {
    let json = fixtures::bert().to_string();
    let options = TokenizerOptions {
        max_sequence_tokens: 5,
        ..options()
    };
    let ours = Tokenizer::from_json(json.as_bytes(), options).unwrap();
    let encoded = ours
        .encode_single("", &text("a b c d e"), &TruncationOptions::to(99))
        .unwrap();
    assert_eq!(encoded.token_ids.len(), 5);
}

#[test]
fn token_ids_are_segments() {
    let ours = fixtures::load(&fixtures::bert());
    let truncation = TruncationOptions::to(8);
    let ids = ours.encode_segment("hello world").unwrap();
    let given = Content::TokenIds(ids.clone());
    let single =
        |content: &Content, prompt: &str| ours.encode_single(prompt, content, &truncation).unwrap();
    assert_eq!(single(&given, ""), single(&text("hello world"), ""));
    assert_eq!(single(&given, "a "), single(&text("hello world"), "a "));
    let query = ours.encode_query(&given, &truncation).unwrap();
    assert_eq!(
        query,
        ours.encode_query(&text("hello world"), &truncation)
            .unwrap()
    );
    let long = Content::TokenIds(vec![ids[0]; 9]);
    let pair = ours.encode_pair(&query, &long, &truncation).unwrap();
    assert_eq!(pair.truncated.unwrap().tokens_given, 9);
    let out_of_range = Content::TokenIds(vec![1, 1_000]);
    let error = EncodeError::TokenIdOutOfRange {
        position: 1,
        id: 1_000,
        vocab_size: 1_000,
    };
    assert_eq!(
        ours.encode_single("", &out_of_range, &truncation),
        Err(error.clone())
    );
    assert_eq!(ours.encode_query(&out_of_range, &truncation), Err(error));
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
