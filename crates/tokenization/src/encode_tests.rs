use super::*;
use crate::{Side, TokenizerOptions, fixtures};

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
