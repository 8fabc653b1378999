//! Our ids are those of the `tokenizers` crate, whatever the text.
//!
//! `TOKENIZER=tokenizer.json cargo +nightly fuzz run exactness`, in `crates/tokenization`.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tokenization::{Tokenizer, TokenizerOptions};

static BOTH: LazyLock<(Tokenizer, tokenizers::Tokenizer)> = LazyLock::new(|| {
    let path = std::env::var("TOKENIZER").expect("TOKENIZER names a tokenizer.json");
    let json = std::fs::read(path).expect("TOKENIZER can be read");
    let options = TokenizerOptions {
        max_sequence_tokens: 1_000_000,
        strip: false,
        lower_case: false,
        vocab_size: u32::MAX,
    };
    let ours = Tokenizer::from_json(&json, options).expect("a tokenizer");
    assert_ne!(ours.encoder_name(), "tokenizers", "nothing to compare");
    let mut reference = tokenizers::Tokenizer::from_bytes(&json).expect("a tokenizer");
    reference.with_truncation(None).expect("no truncation").with_padding(None);
    (ours, reference)
});

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let (ours, reference) = &*BOTH;
    let expected = reference.encode_fast(&*text, false).expect("the crate's ids");
    assert_eq!(
        ours.encode_segment(&text).expect("our ids"),
        expected.get_ids(),
        "{text:?}"
    );
});
