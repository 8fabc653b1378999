use serde_json::{Value, json};

use super::*;
use crate::fixtures;
use crate::truncation::TruncationOptions;
use crate::{Content, EncodeError, PairTruncation, Side, Tokenizer, Truncated};

/// Texts full of places where a stage might look across, made of these in all orders.
const WORDS: [&str; 24] = [
    "hello", "WORLD", "é", "e\u{301}", "文字", "。", "ﬁ", "7", "123456", "it's", "'", "...",
    "\u{0}", "\u{200d}", "\u{301}", "<mask>", "[SEP]", "</s>", "한글", "カナ", "\u{a0}", "¨", "🇩🇪",
    "\u{d4e}",
];
const GAPS: [&str; 7] = [" ", "  ", "\n", " \n", "", "。", "\t "];

/// Deterministic, so that a failure is the same every time.
fn samples() -> Vec<String> {
    let mut state = 1_u64;
    let mut next = |bound: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    (0..600)
        .map(|_| {
            let length = 5 + next(40);
            (0..length)
                .map(|_| [WORDS[next(WORDS.len())], GAPS[next(GAPS.len())]].concat())
                .collect()
        })
        .collect()
}

/// Pipelines with a rule, beyond those of the fixtures.
fn pipelines() -> Vec<(String, Value)> {
    let mut pipelines: Vec<(String, Value)> = fixtures::all()
        .into_iter()
        .filter(|(name, _)| *name != "gemma")
        .map(|(name, json)| (name.to_owned(), json))
        .collect();
    let metaspace = fixtures::xlm_roberta()["pre_tokenizer"].clone();
    for (name, pre_tokenizer) in [
        (
            "white space, metaspace",
            json!({"type": "Sequence", "pretokenizers": [
            {"type": "WhitespaceSplit"}, metaspace]}),
        ),
        (
            "digits, metaspace",
            json!({"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": false}, metaspace]}),
        ),
        ("words", json!({"type": "Whitespace"})),
    ] {
        for form in ["NFC", "NFD", "NFKC", "NFKD"] {
            let mut json = fixtures::xlm_roberta();
            json["pre_tokenizer"] = pre_tokenizer.clone();
            json["normalizer"] = json!({"type": form});
            pipelines.push((format!("{name} {form}"), json));
        }
    }
    let mut json = fixtures::xlm_roberta();
    json["pre_tokenizer"] = json!({"type": "WhitespaceSplit"});
    pipelines.push(("white space, spaces joined".to_owned(), json));
    pipelines
}

fn rule(json: &Value) -> Option<PrefixRule> {
    PrefixRule::of(&fixtures::reference(json))
}

#[test]
fn tokens_of_every_prefix_are_the_first_of_the_whole() {
    for (name, json) in pipelines() {
        let rule = rule(&json).expect(&name);
        let ours = fixtures::load(&json);
        let mut prefixes = 0;
        for sample in samples() {
            let whole = ours.encode_segment(&sample).unwrap();
            let mut min_bytes = 1;
            while let Some(end) = rule.prefix_end(&sample, min_bytes) {
                let prefix = ours.encode_segment(&sample[..end]).unwrap();
                assert!(whole.starts_with(&prefix), "{name}: {end} of {sample:?}");
                prefixes += 1;
                min_bytes = end + 1;
            }
        }
        assert!(prefixes > 100, "{name}: only {prefixes} prefixes tried");
    }
}

#[test]
fn a_cut_is_between_letters_only() {
    let rule = rule(&fixtures::bert()).unwrap();
    assert_eq!(rule.prefix_end("ab cd ef", 1), Some(2));
    assert_eq!(rule.prefix_end("ab cd ef", 2), Some(2));
    assert_eq!(rule.prefix_end("ab cd ef", 3), Some(5));
    assert_eq!(rule.prefix_end("ab cd ef", 6), None);
    assert_eq!(rule.prefix_end("ab  cd. ef \u{301}", 1), None);
    assert_eq!(rule.prefix_end("文字文。字", 4), Some(9));
    assert_eq!(rule.prefix_end("", 1), None);
    assert_eq!(rule.prefix_end("ab", 100), None);
}

#[test]
fn no_rule_where_nothing_is_certain() {
    let with = |change: &dyn Fn(&mut Value)| {
        let mut json = fixtures::xlm_roberta();
        change(&mut json);
        rule(&json)
    };
    assert!(with(&|_| ()).is_some());
    assert_eq!(rule(&fixtures::gemma()), None);
    assert_eq!(with(&|json| json["pre_tokenizer"] = json!(null)), None);
    assert_eq!(
        with(&|json| json["pre_tokenizer"]["split"] = json!(false)),
        None
    );
    // Ideographs get spaces around them, which metaspaces keep.
    let bert = fixtures::bert()["normalizer"].clone();
    assert_eq!(with(&|json| json["normalizer"] = bert.clone()), None);
    let replace = json!({"type": "Replace", "pattern": {"Regex": "a b"}, "content": "c"});
    assert_eq!(with(&|json| json["normalizer"] = replace.clone()), None);
    for content in ["new york", "x\u{2581}y"] {
        assert_eq!(
            with(&|json| json["added_tokens"][0]["content"] = json!(content)),
            None
        );
    }
    let unknown = json!({"type": "Split", "pattern": {"Regex": ".+ .+"}, "behavior": "Isolated",
        "invert": false});
    assert_eq!(with(&|json| json["pre_tokenizer"] = unknown.clone()), None);
}

/// Counts what was read by its reports: a lower bound of the tokens given.
fn tokens_given(ours: &Tokenizer, text: &str, side: Side) -> usize {
    let truncation = TruncationOptions {
        side,
        ..TruncationOptions::to(12)
    };
    let encoded = ours
        .encode_single("", &Content::Text(text.to_owned()), &truncation)
        .unwrap();
    encoded.truncated.unwrap().tokens_given
}

#[test]
fn of_a_gigantic_text_only_a_beginning_is_read() {
    let ours = fixtures::load(&fixtures::bert());
    let words = "hello world ".repeat(50_000);
    assert_eq!(tokens_given(&ours, &words[..600], Side::Right), 11);
    assert_eq!(tokens_given(&ours, &words, Side::Right), 11);
    // Where the beginning has too few tokens, more is read.
    let blank = [&"\u{200b}".repeat(5_000), words.as_str()].concat();
    assert_eq!(tokens_given(&ours, &blank, Side::Right), 11);
    // The other end is found only by reading all.
    assert_eq!(tokens_given(&ours, &words[..12_000], Side::Left), 2_000);
    // A short text is read whole and counted exactly.
    assert_eq!(tokens_given(&ours, &words[..480], Side::Right), 80);
}

/// Outcomes of every way to encode `first` and `second`, without the counts of tokens given.
fn outcomes(ours: &Tokenizer, first: &Content, second: &Content) -> Vec<String> {
    let mut outcomes = Vec::new();
    for max_tokens in [5, 12, 40, 41] {
        for ceiling in [None, Some(3), Some(20)] {
            for pair in [PairTruncation::ProtectQuery, PairTruncation::LongestFirst] {
                let truncation = TruncationOptions {
                    pair,
                    max_query_tokens: ceiling,
                    max_document_tokens: ceiling,
                    ..TruncationOptions::to(max_tokens)
                };
                let query = ours.encode_query(first, &truncation);
                let encoded = match &query {
                    Ok(query) => ours.encode_pair(query, second, &truncation),
                    Err(EncodeError::QueryTooLong { limit, .. }) => {
                        outcomes.push(format!("query over {limit}"));
                        ours.encode_single("hello ", first, &truncation)
                    }
                    Err(error) => Err(error.clone()),
                };
                let used = |cut: Option<Truncated>| cut.map(|cut| cut.tokens_used);
                let encoded = encoded.map(|encoded| {
                    (
                        used(encoded.truncated),
                        used(encoded.query_truncated),
                        encoded.token_ids,
                    )
                });
                outcomes.push(format!("{encoded:?}"));
            }
        }
    }
    outcomes
}

#[test]
fn reading_a_beginning_changes_no_outcome() {
    let ours = fixtures::load(&fixtures::bert());
    let texts = [
        "hello",
        "a b c d e f",
        &"hello world ".repeat(60),
        &"ab cd ".repeat(900),
    ];
    for first in texts {
        for second in texts {
            let text = |text: &str| Content::Text(text.to_owned());
            // Token ids are all read, always.
            let ids = |text: &str| Content::TokenIds(ours.encode_segment(text).unwrap());
            assert_eq!(
                outcomes(&ours, &text(first), &text(second)),
                outcomes(&ours, &ids(first), &ids(second)),
                "{} and {} bytes",
                first.len(),
                second.len()
            );
        }
    }
}
