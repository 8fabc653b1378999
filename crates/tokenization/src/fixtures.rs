//! Small tokenizers of each kind, for tests: real pipelines, tiny vocabularies.

use serde_json::{Value, json};

use crate::error::LoadError;
use crate::{Content, PairTemplate, Tokenizer, TokenizerOptions, TruncationOptions};

/// A tokenizer and the name it has in a failing assertion.
pub(crate) type Fixture = (&'static str, Value);

pub(crate) fn load(json: &Value) -> Tokenizer {
    let options = TokenizerOptions {
        max_sequence_tokens: 10_000,
        strip: false,
        lower_case: false,
        vocab_size: 1_000,
    };
    Tokenizer::from_json(json.to_string().as_bytes(), options).unwrap()
}

/// The same tokenizer in the reference implementation.
pub(crate) fn reference(json: &Value) -> tokenizers::Tokenizer {
    tokenizers::Tokenizer::from_bytes(json.to_string()).unwrap()
}

/// The tokenizer of a model with a template of pairs; its instruction is `find it`.
pub(crate) fn load_with_template(json: &Value, template: &str) -> Tokenizer {
    load_with_instruction(json, template, "find it").unwrap()
}

/// With this instruction where a request brings none.
pub(crate) fn load_with_instruction(
    json: &Value,
    template: &str,
    instruction: &str,
) -> Result<Tokenizer, LoadError> {
    load_of_length(json, template, instruction, 10_000)
}

/// Of a model that reads so many tokens.
pub(crate) fn load_of_length(
    json: &Value,
    template: &str,
    instruction: &str,
    max_sequence_tokens: usize,
) -> Result<Tokenizer, LoadError> {
    let options = TokenizerOptions {
        max_sequence_tokens,
        strip: true,
        lower_case: false,
        vocab_size: 1_000,
    };
    let template = PairTemplate::new(template, instruction)?;
    let json = json.to_string();
    Tokenizer::from_json_with_template(json.as_bytes(), options, &template)
}

/// Ids of a prompt that was rendered by hand, read as one text by the reference.
pub(crate) fn rendered_ids(json: &Value, template: &str, query: &str, document: &str) -> Vec<u32> {
    let (before, after) = template.split_once("{document}").unwrap();
    let before = before.replace("{instruction}", "find it");
    let prompt = [&before.replace("{query}", query), document, after].concat();
    let encoding = reference(json).encode_fast(prompt, false).unwrap();
    encoding.get_ids().to_vec()
}

pub(crate) fn pair_ids(
    tokenizer: &Tokenizer,
    query: &str,
    document: &str,
    truncation: &TruncationOptions,
) -> Vec<u32> {
    let query = Content::Text(query.to_owned());
    let query = tokenizer.encode_query(&query, truncation).unwrap();
    let document = Content::Text(document.to_owned());
    let pair = tokenizer.encode_pair(&query, &document, truncation);
    pair.unwrap().token_ids
}

/// One of each pipeline in use: BERT, RoBERTa and GPT-2, XLM-R, Qwen, Gemma.
pub(crate) fn all() -> Vec<Fixture> {
    vec![
        ("bert", bert()),
        ("roberta", roberta()),
        ("xlm_roberta", xlm_roberta()),
        ("qwen", qwen()),
        ("gemma", gemma()),
    ]
}

/// `[CLS] A [SEP] B [SEP]`, types 0 and 1.
pub(crate) fn bert() -> Value {
    let mut vocab = vocabulary(&["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]);
    for letter in 'a'..='z' {
        push(&mut vocab, &letter.to_string());
        push(&mut vocab, &format!("##{letter}"));
    }
    for piece in [
        "hello", "world", "##ing", "文", "字", "。", ".", "'", "0", "##0",
    ] {
        push(&mut vocab, piece);
    }
    let special = |content: &str| added_token(&vocab, content, false);
    json!({
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0},
        "padding": {"strategy": {"Fixed": 16}, "direction": "Right", "pad_to_multiple_of": null,
            "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"},
        "added_tokens": [special("[PAD]"), special("[CLS]"), special("[SEP]"), special("[MASK]")],
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": null, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
        "decoder": null,
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocab},
    })
}

/// `<s> A </s></s> B </s>`, all of type 0.
pub(crate) fn roberta() -> Value {
    let mut tokenizer = byte_level();
    tokenizer["pre_tokenizer"] = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
    tokenizer["post_processor"] = json!({"type": "RobertaProcessing", "sep": ["</s>", 1],
        "cls": ["<s>", 0], "trim_offsets": true, "add_prefix_space": true});
    tokenizer
}

/// `A <eos>`, the pair `A <eos> B <eos>`; NFC and the split of Qwen.
pub(crate) fn qwen() -> Value {
    let mut tokenizer = byte_level();
    tokenizer["normalizer"] = json!({"type": "NFC"});
    tokenizer["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [
        {"type": "Split", "behavior": "Isolated", "invert": false, "pattern": {"Regex":
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"}},
        {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
    ]});
    let ends = json!({"SpecialToken": {"id": "</s>", "type_id": 0}});
    tokenizer["post_processor"] = json!({"type": "Sequence", "processors": [
        {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        {"type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "A", "type_id": 0}}, ends],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, ends,
                {"Sequence": {"id": "B", "type_id": 0}}, ends],
            "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}},
    ]});
    tokenizer
}

/// Unigram behind metaspaces, `<mask>` takes the space before it.
pub(crate) fn xlm_roberta() -> Value {
    let mut pieces: Vec<(String, f64)> = ["<s>", "<pad>", "</s>", "<unk>"]
        .map(|piece| (piece.to_owned(), 0.0))
        .to_vec();
    let words = [
        "\u{2581}",
        "\u{2581}hello",
        "\u{2581}wor",
        "ld",
        "ing",
        "文字",
        "。",
        ".",
        "'",
    ];
    pieces.extend(words.map(|piece| (piece.to_owned(), -4.0)));
    pieces.extend(('a'..='z').map(|letter| (letter.to_string(), -6.0)));
    pieces.push(("<mask>".to_owned(), 0.0));
    let id = |content: &str| {
        pieces
            .iter()
            .position(|(piece, _)| piece == content)
            .unwrap()
    };
    let token = |content: &str, lstrip| {
        json!({"id": id(content), "content": content, "single_word": false, "lstrip": lstrip,
            "rstrip": false, "normalized": false, "special": true})
    };
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [token("<s>", false), token("</s>", false), token("<mask>", true)],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "NFKC"}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]},
        "pre_tokenizer": {"type": "Metaspace", "replacement": "\u{2581}",
            "prepend_scheme": "always", "split": true},
        "post_processor": template("<s>:0 $A:0 </s>:0", "<s>:0 $A:0 </s>:0 </s>:0 $B:0 </s>:0",
            &[("<s>", 0), ("</s>", 2)]),
        "decoder": null,
        "model": {"type": "Unigram", "unk_id": 3, "byte_fallback": false, "vocab": pieces},
    })
}

/// One piece for the whole text; `<s> A`, the pair `<s> A <s> B` with type 1 from the second `<s>`.
pub(crate) fn gemma() -> Value {
    let mut tokenizer = byte_level();
    tokenizer["normalizer"] =
        json!({"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"});
    tokenizer["pre_tokenizer"] = json!({"type": "ByteLevel", "add_prefix_space": false,
        "trim_offsets": false, "use_regex": false});
    tokenizer["post_processor"] = template("<s>:0 $A:0", "<s>:0 $A:0 <s>:1 $B:1", &[("<s>", 0)]);
    tokenizer
}

/// A post-processor from the words of its templates, such as `$A:0` and `[SEP]:1`.
pub(crate) fn template(single: &str, pair: &str, special_tokens: &[(&str, u32)]) -> Value {
    let pieces = |words: &str| {
        let piece = |word: &str| {
            let (name, type_id) = word.rsplit_once(':').unwrap();
            let type_id: u32 = type_id.parse().unwrap();
            match name.strip_prefix('$') {
                Some(sequence) => json!({"Sequence": {"id": sequence, "type_id": type_id}}),
                None => json!({"SpecialToken": {"id": name, "type_id": type_id}}),
            }
        };
        words.split(' ').map(piece).collect::<Vec<_>>()
    };
    let special = |&(name, id): &(&str, u32)| {
        (
            name.to_owned(),
            json!({"id": name, "ids": [id], "tokens": [name]}),
        )
    };
    let special_tokens: serde_json::Map<_, _> = special_tokens.iter().map(special).collect();
    json!({"type": "TemplateProcessing", "single": pieces(single), "pair": pieces(pair),
        "special_tokens": special_tokens})
}

/// Byte-level BPE with a few merges; no post-processor.
fn byte_level() -> Value {
    let mut vocab = vocabulary(&["<s>", "</s>"]);
    for character in tokenizers::pre_tokenizers::byte_level::ByteLevel::alphabet() {
        push(&mut vocab, &character.to_string());
    }
    let mut merges = Vec::new();
    for (left, right) in [
        ("h", "e"),
        ("l", "l"),
        ("he", "ll"),
        ("hell", "o"),
        ("Ġ", "w"),
        (" ", " "),
        // A mark and a line break are one token, as in Qwen's and Llama's.
        (".", "Ċ"),
        ("?", "Ċ"),
    ] {
        if vocab.contains_key(left) && vocab.contains_key(right) {
            push(&mut vocab, &format!("{left}{right}"));
            merges.push(json!([left, right]));
        }
    }
    let special = |content: &str| added_token(&vocab, content, false);
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [special("<s>"), special("</s>")],
        "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
        "model": {"type": "BPE", "dropout": null, "unk_token": null,
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
            "byte_fallback": false, "ignore_merges": false, "vocab": vocab, "merges": merges},
    })
}

type Vocabulary = serde_json::Map<String, Value>;

fn vocabulary(pieces: &[&str]) -> Vocabulary {
    let mut vocab = Vocabulary::new();
    for piece in pieces {
        push(&mut vocab, piece);
    }
    vocab
}

fn push(vocab: &mut Vocabulary, piece: &str) {
    let id = vocab.len();
    vocab.entry(piece).or_insert(json!(id));
}

fn added_token(vocab: &Vocabulary, content: &str, normalized: bool) -> Value {
    json!({"id": vocab[content], "content": content, "single_word": false, "lstrip": false,
        "rstrip": false, "normalized": normalized, "special": true})
}
