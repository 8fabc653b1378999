//! What a simulated replica serves.

use std::fmt::Write as _;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use tulip_proto::v1::*;

const TOKENIZER: &[u8] = include_bytes!("../../../../tulip/tests/fixtures/words.tokenizer.json");

fn tokenizer(tokenizer_json: Bytes) -> Tokenizer {
    let mut sha256 = String::new();
    for byte in Sha256::digest(&tokenizer_json) {
        write!(sha256, "{byte:02x}").unwrap();
    }
    Tokenizer {
        tokenizer_json,
        sha256,
    }
}

/// The same words in other bytes.
pub(crate) fn other_tokenizer() -> Tokenizer {
    tokenizer([TOKENIZER, b"\n"].concat().into())
}

pub(crate) fn model(name: &str, fingerprint: &str) -> GetModelResponse {
    GetModelResponse {
        model: name.into(),
        task: Task::Score.into(),
        limits: Some(Limits {
            max_sequence_tokens: 512,
            max_items_per_request: 10_000,
            ..Limits::default()
        }),
        vocab_size: 100,
        tokenizer: Some(tokenizer(Bytes::from_static(TOKENIZER))),
        fingerprint: fingerprint.into(),
        ..GetModelResponse::default()
    }
}
