//! Against the `tokenizers` crate's own truncation and post-processing.

use serde_json::Value;
use tokenizers::utils::truncation::{TruncationDirection, TruncationParams, TruncationStrategy};

use crate::fixtures;
use crate::{Content, PairTruncation, Side, Truncated, TruncationOptions};

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
