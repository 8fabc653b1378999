//! Small BPE tokenizers, trained at test time, and comparison with the `tokenizers` crate.

use serde_json::{Value, json};
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{
    DecoderWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper, TokenizerBuilder,
};

use super::scanner::{CL100K, GPT2, QWEN2, QWEN35};
use crate::fast::{FastTokenizer, NotCovered};

/// Words of many kinds, so that merges of many lengths come out.
const TEXT: &str = "the there then they're we've it's isn't I'M YOU'LL hello hello hello world \
    worlds wordless the quick brown fox jumps over the lazy dog and the other dogs 1234 12 2024 \
    3.14 été élève Ångström naïve façade Привет привет мир мира слово словами Καλημέρα κόσμε \
    你好 世界 你好世界 中文 文字 文章 日本語 にほんご カタカナ 안녕하세요 안녕 세계 สวัสดี สวัสดีครับ नमस्ते \
    दुनिया مرحبا بالعالم שלום עולם 😀😀 👍🏽 👨‍👩‍👧 !!! ... --- ==== (a) [b] {c} <div></div> \
    fn main() { let x = 10; }\n    return x;\n\n\n        if a == b:\n\t\tpass\r\n\r\n a  b   c";

/// How a fixture splits texts into words.
pub(super) fn splitters() -> Vec<(&'static str, Value)> {
    let byte_level = |prefix_space: bool, use_regex: bool| {
        json!({"type": "ByteLevel", "add_prefix_space": prefix_space, "trim_offsets": true,
            "use_regex": use_regex})
    };
    let pattern = |pattern: &str| {
        json!({"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated",
                "invert": false},
            byte_level(false, false)]})
    };
    vec![
        ("gpt2", byte_level(false, true)),
        ("prefix space", byte_level(true, true)),
        ("gpt2 as a pattern", pattern(GPT2)),
        ("llama3", pattern(CL100K)),
        ("qwen2", pattern(QWEN2)),
        ("qwen3.5", pattern(QWEN35)),
    ]
}

/// Byte-level BPE behind `normalizer` and `pre_tokenizer`.
pub(super) fn byte_level(normalizer: &Value, pre_tokenizer: &Value, ignore_merges: bool) -> Value {
    let mut file = trained(normalizer, pre_tokenizer);
    file["model"]["ignore_merges"] = json!(ignore_merges);
    // Tokens that no merge makes.
    for token in ["Ġzqj", "zqjx", "½½"] {
        let vocab = file["model"]["vocab"].as_object_mut().unwrap();
        let id = vocab.len();
        vocab.insert(token.to_owned(), json!(id));
    }
    file
}

/// BPE on characters with byte fallback, as in Gemma's file; or, with a space put before the text,
/// as in Llama 2's.
pub(super) fn metaspace(prepends_space: bool) -> Value {
    let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"});
    let normalizer = if prepends_space {
        let prepend = json!({"type": "Prepend", "prepend": "\u{2581}"});
        json!({"type": "Sequence", "normalizers": [prepend, replace]})
    } else {
        replace
    };
    // Words, so that training finds some; a file of this kind has no such pre-tokenizer.
    let words = json!({"type": "Split", "pattern": {"Regex": "\u{2581}*[^\u{2581}]+|\u{2581}+"},
        "behavior": "Isolated", "invert": false});
    let mut file = trained(&normalizer, &words);
    file["pre_tokenizer"] = if prepends_space {
        Value::Null
    } else {
        json!({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
            "invert": false})
    };
    file["model"]["byte_fallback"] = json!(true);
    file["model"]["fuse_unk"] = json!(true);
    let vocab = file["model"]["vocab"].as_object_mut().unwrap();
    // The trainer puts the alphabet of bytes in, which is none of this model's.
    for byte in 0..=u8::MAX {
        let id = vocab.len();
        vocab.insert(format!("<{byte:#04X}>"), json!(id));
    }
    file
}

fn trained(normalizer: &Value, pre_tokenizer: &Value) -> Value {
    let normalizer: Option<NormalizerWrapper> = serde_json::from_value(normalizer.clone()).unwrap();
    let pre_tokenizer: PreTokenizerWrapper = serde_json::from_value(pre_tokenizer.clone()).unwrap();
    let mut trainer = BpeTrainer::builder()
        .show_progress(false)
        .vocab_size(800)
        .min_frequency(0)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .build();
    let mut tokenizer = TokenizerBuilder::<
        BPE,
        NormalizerWrapper,
        PreTokenizerWrapper,
        PostProcessorWrapper,
        DecoderWrapper,
    >::default()
    .with_model(BPE::default())
    .with_normalizer(normalizer)
    .with_pre_tokenizer(Some(pre_tokenizer))
    .build()
    .unwrap();
    tokenizer
        .train(&mut trainer, std::iter::repeat_n(TEXT, 2))
        .unwrap();
    serde_json::to_value(&tokenizer).unwrap()
}

/// A tokenizer as the crate has it and as we have it.
pub(super) struct Both {
    pub(super) reference: tokenizers::Tokenizer,
    pub(super) fast: FastTokenizer,
}

impl Both {
    pub(super) fn of(file: &Value) -> Result<Self, NotCovered> {
        let json = file.to_string();
        let reference = tokenizers::Tokenizer::from_bytes(&json).unwrap();
        let fast = FastTokenizer::of(&reference, json.as_bytes())?;
        Ok(Self { reference, fast })
    }

    /// Compares the ids of `text`, twice: words are new at first, and known then.
    pub(super) fn check(&self, name: &str, text: &str) {
        let encoding = self.reference.encode_fast(text, false).unwrap();
        for _ in 0..2 {
            let mut ids = vec![7];
            self.fast.encode(text, usize::MAX, &mut ids);
            assert_eq!(ids[1..], *encoding.get_ids(), "{name}: {text:?}");
        }
    }

    /// Ids of a text stopped early are a beginning of all ids, and enough.
    pub(super) fn check_stops(&self, name: &str, text: &str) {
        let encoding = self.reference.encode_fast(text, false).unwrap();
        let all = encoding.get_ids();
        for limit in 0..all.len() + 2 {
            let mut ids = Vec::new();
            self.fast.encode(text, limit, &mut ids);
            assert!(all.starts_with(&ids), "{name}: {text:?} to {limit}");
            assert!(
                ids.len() >= limit.min(all.len()),
                "{name}: {text:?} to {limit}"
            );
        }
    }
}

/// Texts with much in them that a BPE could get wrong.
pub(super) const TEXTS: [&str; 12] = [
    "",
    " ",
    TEXT,
    "zqj zqjx zqjx ½½ zqjzqjx",
    "hello world  hello\n\nworld 'ſ 'S we'LL",
    "e\u{301}te\u{301} \u{1112}\u{1161}\u{11ab} q\u{307}\u{323}",
    "thethethethethethethethethethethethethethethethethethethethethethethethethethethethe",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "你好世界你好世界你好世界你好世界你好世界你好世界你好世界你好世界你好世界",
    "\u{2581}hello\u{2581}\u{2581} \u{2581}world <0x41> \u{10ffff}\u{e000}",
    "                                        x                            ",
    "\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n",
];
