//! In steady state one of our own encoders allocates nothing; what a long text needed is given
//! back.

#![allow(clippy::unwrap_used)] // of what the test itself made

use serde_json::{Value, json};
use tokenization::{Tokenizer, TokenizerOptions};

const TEXTS: [&str; 6] = [
    "",
    "Hello, W\u{f6}rld! It's a na\u{ef}ve caf\u{e9}  \n with 25.5 \u{b0}C, isn't it?",
    "[MASK] a <mask> b \u{4e16}\u{754c} \u{3053}\u{3093}\u{ac00} e\u{301}\u{323}x \u{fb01}",
    "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467} \u{928}\u{92e}\u{938}\u{94d}\u{924}\u{947}",
    "\u{0}\u{1}\u{85}\u{ad}\u{200b}\u{fffd}a",
    "the end of the text after many many many words that repeat and repeat and repeat again",
];

fn load(json: &Value) -> Tokenizer {
    let options = TokenizerOptions {
        max_sequence_tokens: 10_000,
        strip: false,
        lower_case: false,
        vocab_size: 1_000,
    };
    Tokenizer::from_json(json.to_string().as_bytes(), options).unwrap()
}

fn file(normalizer: &Value, pre_tokenizer: &Value, model: &Value, mask: &str) -> Value {
    json!({"version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [{"id": 0, "content": mask, "single_word": false, "lstrip": true,
            "rstrip": false, "normalized": false, "special": true}],
        "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": null,
        "decoder": null, "model": model})
}

fn word_piece() -> Value {
    let pieces = [
        "[MASK]", "[UNK]", "the", "hello", "w", "##o", "##r", "##ld", "a", ",", "\u{4e16}",
    ];
    let vocab: serde_json::Map<_, _> = pieces
        .iter()
        .zip(0..)
        .map(|(piece, id)| ((*piece).to_owned(), json!(id)))
        .collect();
    file(
        &json!({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": null, "lowercase": true}),
        &json!({"type": "BertPreTokenizer"}),
        &json!({"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocab}),
        "[MASK]",
    )
}

fn unigram() -> Value {
    let mut vocab = vec![json!(["<mask>", 0.0]), json!(["<unk>", 0.0])];
    for piece in [
        "\u{2581}",
        "\u{2581}the",
        "rep",
        "eat",
        "e",
        "a",
        "t",
        "r",
        "p",
        "\u{4e16}",
    ] {
        vocab.push(json!([piece, -2.0]));
    }
    file(
        &json!({"type": "Sequence", "normalizers": [{"type": "NFKC"},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]}),
        &json!({"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": "always",
            "split": true}),
        &json!({"type": "Unigram", "unk_id": 1, "byte_fallback": false, "vocab": vocab}),
        "<mask>",
    )
}

fn byte_level_bpe() -> Value {
    let mut vocab = serde_json::Map::new();
    vocab.insert("<mask>".to_owned(), json!(0));
    for character in tokenizers::pre_tokenizers::byte_level::ByteLevel::alphabet() {
        let id = vocab.len();
        vocab.insert(character.to_string(), json!(id));
    }
    for merged in ["re", "pe", "at"] {
        let id = vocab.len();
        vocab.insert(merged.to_owned(), json!(id));
    }
    file(
        &json!({"type": "NFC"}),
        &json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
            "use_regex": true}),
        &json!({"type": "BPE", "dropout": null, "unk_token": null,
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
            "byte_fallback": false, "ignore_merges": false, "vocab": vocab,
            "merges": [["r", "e"], ["p", "e"], ["a", "t"]]}),
        "<mask>",
    )
}

fn metaspace_bpe() -> Value {
    let mut vocab = serde_json::Map::new();
    let bytes = (0..=u8::MAX).map(|byte| format!("<{byte:#04X}>"));
    let pieces = [
        "\u{2581}",
        "t",
        "h",
        "e",
        "a",
        "th",
        "the",
        "\u{2581}the",
        "aa",
    ];
    let tokens = bytes.chain(pieces.map(str::to_owned));
    for token in std::iter::once("<mask>".to_owned()).chain(tokens) {
        let id = vocab.len();
        vocab.insert(token, json!(id));
    }
    file(
        &json!({"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"}),
        &Value::Null,
        &json!({"type": "BPE", "dropout": null, "unk_token": null,
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": true,
            "byte_fallback": true, "ignore_merges": false, "vocab": vocab,
            "merges": [["t", "h"], ["th", "e"], ["\u{2581}", "the"], ["a", "a"]]}),
        "<mask>",
    )
}

/// A tokenizer of each of our own encoders.
fn tokenizers() -> impl Iterator<Item = (&'static str, Tokenizer)> {
    [
        ("wordpiece", word_piece()),
        ("unigram", unigram()),
        ("byte-level BPE", byte_level_bpe()),
        ("metaspace BPE", metaspace_bpe()),
    ]
    .into_iter()
    .map(|(encoder, json)| {
        let tokenizer = load(&json);
        assert_eq!(tokenizer.encoder_name(), encoder);
        (encoder, tokenizer)
    })
}

#[test]
fn a_long_text_leaves_no_long_buffers() {
    // One word, and of XLM-RoBERTa's kind one without a place where tokens are handed out.
    let long = "a".repeat(1 << 20);
    for (encoder, tokenizer) in tokenizers() {
        let counted = allocation_counter::measure(|| drop(tokenizer.encode_segment(&long)));
        assert!(counted.bytes_max > 1 << 20, "{encoder}: {counted:?}");
        assert!(counted.bytes_current < 4_096, "{encoder}: {counted:?}");
    }
}

#[test]
fn a_text_seen_before_costs_no_allocation() {
    for (encoder, tokenizer) in tokenizers() {
        let mut ids = Vec::new();
        let mut encode_all = || {
            for text in TEXTS {
                ids.clear();
                tokenizer.encode_segment_into(text, &mut ids).unwrap();
                assert_eq!(ids.is_empty(), text.is_empty(), "{text:?}");
            }
        };
        encode_all();
        let counted = allocation_counter::measure(encode_all);
        assert_eq!(counted.count_total, 0, "{encoder}");
        // The counter counts.
        let counted = allocation_counter::measure(|| drop(tokenizer.encode_segment("the end")));
        assert!(counted.count_total >= 1);
    }
}
