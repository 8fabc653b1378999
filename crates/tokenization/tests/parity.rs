//! Token ids equal those of transformers, with the tokenizers of real models. Ignored by default:
//! `make_parity_cases.py` says how to run it.

use serde::Deserialize;
use tokenization::{
    Content, EncodeError, Encoded, PairTruncation, Side, Tokenizer, TokenizerOptions,
    TruncationOptions,
};

#[derive(Deserialize)]
struct File {
    /// Path of a `tokenizer.json`.
    tokenizer: String,
    cases: Vec<Case>,
}

/// First text, second text, `max_length`, side, strategy, token ids, token types.
#[derive(Deserialize)]
struct Case(
    String,
    Option<String>,
    usize,
    String,
    String,
    Vec<u32>,
    Vec<u32>,
);

#[test]
#[ignore = "needs cases made by transformers"]
fn token_ids_equal_transformers() {
    let path = std::env::var("TOKENIZATION_PARITY_CASES").expect("a file of cases");
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let file: File = serde_json::from_str(line).unwrap();
        let options = TokenizerOptions {
            max_sequence_tokens: 100_000,
            strip: false,
            lower_case: false,
            vocab_size: 1_000_000,
        };
        let json = std::fs::read(&file.tokenizer).unwrap();
        let tokenizer = Tokenizer::from_json(&json, options).unwrap();
        for case in &file.cases {
            let Case(first, second, .., token_ids, token_types) = case;
            let name = format!("{}: {first:?} {second:?}", file.tokenizer);
            let encoded = encode(&tokenizer, case).expect(&name);
            assert_eq!(&encoded.token_ids, token_ids, "{name}");
            // Of an empty query without special tokens: all of type 1 is no second segment.
            if token_types.first() != Some(&1) {
                let start = encoded.second_segment_start as usize;
                let types =
                    (0..token_ids.len()).map(|index| u32::from(start > 0 && index >= start));
                assert_eq!(&types.collect::<Vec<_>>(), token_types, "{name}");
            }
        }
        println!("{}: {} cases equal", file.tokenizer, file.cases.len());
    }
}

fn encode(tokenizer: &Tokenizer, case: &Case) -> Result<Encoded, EncodeError> {
    let Case(first, second, max_tokens, side, strategy, ..) = case;
    let truncation = TruncationOptions {
        side: if side == "left" {
            Side::Left
        } else {
            Side::Right
        },
        pair: match strategy.as_str() {
            "only_second" => PairTruncation::ProtectQuery,
            _ => PairTruncation::LongestFirst,
        },
        ..TruncationOptions::to(*max_tokens)
    };
    let first = Content::Text(first.clone());
    match second {
        None => tokenizer.encode_single("", &first, &truncation),
        Some(second) => {
            let query = tokenizer.encode_query(&first, &truncation)?;
            tokenizer.encode_pair(&query, &Content::Text(second.clone()), &truncation)
        }
    }
}
