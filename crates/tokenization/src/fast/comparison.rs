//! For tests: a fast tokenizer against the `tokenizers` crate on random text.

use serde_json::Value;

use super::random_text::RandomText;
use super::{FastTokenizer, NotCovered};

/// Loads `json`; nothing but the crate's ids counts, so padding and truncation go.
pub(super) fn load(json: &Value) -> (tokenizers::Tokenizer, Result<FastTokenizer, NotCovered>) {
    let mut json = json.clone();
    json["padding"] = Value::Null;
    json["truncation"] = Value::Null;
    let bytes = serde_json::to_vec(&json).unwrap();
    let reference = tokenizers::Tokenizer::from_bytes(&bytes).unwrap();
    let fast = FastTokenizer::of(&reference, &bytes);
    (reference, fast)
}

/// Both give the same ids for `texts` random texts; beginnings too are what they should be.
pub(super) fn assert_equal_on_random_text(name: &str, json: &Value, texts: usize) {
    let (reference, fast) = load(json);
    let fast = fast.unwrap_or_else(|reason| panic!("{name}: {reason}"));
    let mut random = RandomText::new(7, RandomText::pieces_of(&reference));
    for _ in 0..texts {
        assert_equal(name, &reference, &fast, &random.text());
    }
}

pub(super) fn assert_equal(
    name: &str,
    reference: &tokenizers::Tokenizer,
    fast: &FastTokenizer,
    text: &str,
) {
    let expected = reference.encode_fast(text, false).unwrap();
    let mut ids = Vec::new();
    fast.encode(text, usize::MAX, &mut ids);
    assert_eq!(ids, expected.get_ids(), "{name}: {text:?}");
    let limit = ids.len() / 3;
    let mut beginning = Vec::new();
    fast.encode(text, limit, &mut beginning);
    assert!(
        beginning.len() >= limit && ids.starts_with(&beginning),
        "{name}: of {text:?} the beginning is {beginning:?}, not {ids:?}"
    );
}
