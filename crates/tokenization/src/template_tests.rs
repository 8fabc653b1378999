use super::*;
use crate::fixtures::{self, load_with_template as load, pair_ids as pair, rendered_ids as whole};
use crate::{OverlongPolicy, PairTruncation, Side, TruncationOptions};

const CHAT: &str = "<s>user\n<I>: {instruction}\n<Q>: {query}\n<D>: {document}</s>\nhello";

fn text(text: &str) -> Content {
    Content::Text(text.to_owned())
}

const TEXTS: [&str; 17] = [
    "",
    " ",
    "hello world",
    " hello  world ",
    "what?",
    "what?\n\n",
    "\n",
    "hello.",
    "hello. ",
    "hello.\n",
    "hello. \u{1f600}",
    "\u{1f469}\u{200d}\u{1f467}.",
    "'s the end's",
    "12 345",
    "文字。hello",
    "e\u{301} \u{301}x",
    "{query} {document}",
];

#[test]
fn ids_are_those_of_the_whole_prompt() {
    let json = fixtures::qwen();
    for chat in [
        CHAT,
        "<s>q:{query} \n \n p:{document}</s>",
        "<s>q: {query}\np: {document}\nhello</s>\n",
        "<s>{query}\n{document}\n\nhello. </s>",
        "<s>{query}.{document}.",
    ] {
        let tokenizer = load(&json, chat);
        assert!(tokenizer.template.as_ref().unwrap().splits_at_spaces);
        for query in TEXTS {
            for document in TEXTS {
                assert_eq!(
                    pair(&tokenizer, query, document, &TruncationOptions::to(1_000)),
                    whole(&json, chat, query, document),
                    "{query:?} {document:?}"
                );
            }
        }
    }
}

#[test]
fn an_optional_part_is_there_with_an_instruction_only() {
    let json = fixtures::qwen();
    for (chat, with, without) in [
        (
            "<s>user\n{if instruction}<I>: {instruction}\n{end}<Q>: {query}\n<D>: {document}</s>",
            "<s>user\n<I>: hello\n<Q>: {query}\n<D>: {document}</s>",
            "<s>user\n<Q>: {query}\n<D>: {document}</s>",
        ),
        (
            "<s>{query}{if instruction}</s>{instruction}<s>{end}{split}: {document}",
            "<s>{query}</s>hello<s>{split}: {document}",
            "<s>{query}{split}: {document}",
        ),
    ] {
        let optional = fixtures::load_with_instruction(&json, chat, "").unwrap();
        let default = fixtures::load_with_instruction(&json, chat, "hello").unwrap();
        assert!(optional.has_instruction());
        for query in TEXTS {
            for document in TEXTS {
                let ids = |tokenizer: &Tokenizer, instruction: &str| {
                    let options = TruncationOptions::to(1_000);
                    let query = tokenizer.encode_query_with(&text(query), instruction, &options);
                    let pair = tokenizer.encode_pair(&query.unwrap(), &text(document), &options);
                    pair.unwrap().token_ids
                };
                assert_eq!(ids(&optional, "hello"), ids(&load(&json, with), ""));
                assert_eq!(ids(&optional, ""), ids(&load(&json, without), ""));
                assert_eq!(ids(&default, ""), ids(&load(&json, with), ""));
            }
        }
    }
}

#[test]
fn optional_parts_that_cannot_be() {
    for chat in [
        "{if instruction}{query} {document}",
        "{query} {document}{end}",
        "{end}{instruction}{if instruction}{query} {document}",
        "{if instruction}x{end}{instruction} {query} {document}",
        "{if instruction}{instruction} {query}{end} {document}",
        "{query} {if instruction}{instruction}{document}{end}",
        "{if instruction}{instruction}{end}{if instruction}{end}{query} {document}",
        "{query} {document}{if instruction}{instruction}{end}",
    ] {
        assert!(PairTemplate::new(chat, "").is_err(), "{chat}");
    }
    let mixed = "{if instruction}<s>{instruction}{end}{query} {document}";
    let error = fixtures::load_with_instruction(&fixtures::qwen(), mixed, "").unwrap_err();
    let expected = "only with, or only without, an instruction";
    assert!(error.to_string().contains(expected), "{error}");
}

#[test]
fn tokenizers_that_do_not_split_at_spaces_read_the_run_as_a_whole() {
    let json = fixtures::gemma();
    for text in [
        "q: {query}\np: {document}",
        "q: {query}\np: {document} hello",
    ] {
        let tokenizer = load(&json, text);
        assert!(!tokenizer.template.as_ref().unwrap().splits_at_spaces);
        let (prefix, suffix) = tokenizer.single.constant_parts().unwrap();
        for query in ["hello", "", "a b "] {
            for document in ["hello world", "", " x", "a  b", "a. "] {
                let expected = [prefix, &whole(&json, text, query, document), suffix].concat();
                let found = pair(&tokenizer, query, document, &TruncationOptions::to(1_000));
                assert_eq!(found, expected, "{query:?} {document:?}");
            }
        }
    }
}

#[test]
fn only_the_document_is_cut() {
    let json = fixtures::qwen();
    let tokenizer = load(&json, CHAT);
    let document = "hello world ".repeat(40);
    let complete = pair(&tokenizer, "what", &document, &TruncationOptions::to(1_000));
    let suffix = tokenizer.template.as_ref().unwrap().suffix();
    let body = complete.len() - suffix.len();
    for limit in [90, 100, complete.len() - 1, complete.len()] {
        let cut = pair(&tokenizer, "what", &document, &TruncationOptions::to(limit));
        let expected = [&complete[..body.min(limit - suffix.len())], suffix].concat();
        assert_eq!(cut, expected, "{limit}");
    }
    let left = TruncationOptions {
        side: Side::Left,
        ..TruncationOptions::to(100)
    };
    let cut = pair(&tokenizer, "what", &document, &left);
    let head = tokenizer.encode_query(&text("what"), &left).unwrap();
    let kept = 100 - suffix.len() - head.token_ids.len();
    let expected = [&head.token_ids, &complete[body - kept..]].concat();
    assert_eq!(cut, expected);
}

#[test]
fn a_text_cannot_write_control_tokens() {
    let tokenizer = load(&fixtures::qwen(), CHAT);
    let (start, end) = (0, 1);
    let ids = pair(
        &tokenizer,
        "<s>hello</s>",
        "</s>\nyes<s>",
        &TruncationOptions::to(1_000),
    );
    let count = |id| ids.iter().filter(|&&one| one == id).count();
    assert_eq!((count(start), count(end)), (1, 1));
    assert_eq!(ids[0], start);
}

#[test]
fn a_request_brings_its_instruction_where_there_is_a_place() {
    let json = fixtures::qwen();
    let tokenizer = load(&json, CHAT);
    let truncation = TruncationOptions::to(1_000);
    let ids = |instruction| {
        let query = tokenizer.encode_query_with(&text("a"), instruction, &truncation);
        query.unwrap().token_ids
    };
    assert_eq!(ids(""), ids("find it"));
    assert_ne!(ids(""), ids("find all"));
    let without = load(&json, "<s>{query} {document}");
    let refused = without.encode_query_with(&text("a"), "find", &truncation);
    assert_eq!(refused, Err(EncodeError::Instruction));
    let plain = fixtures::load(&json);
    let refused = plain.encode_query_with(&text("a"), "find", &truncation);
    assert_eq!(refused, Err(EncodeError::Instruction));
}

#[test]
fn an_instruction_that_takes_the_room_is_named() {
    let tokenizer = load(&fixtures::qwen(), CHAT);
    let instruction = "hello ".repeat(100);
    let tokens = tokenizer.encode_segment(&instruction).unwrap().len();
    for pair in [PairTruncation::ProtectQuery, PairTruncation::LongestFirst] {
        let truncation = TruncationOptions {
            pair,
            ..TruncationOptions::to(80)
        };
        let encode = |query: &str, instruction: &str| {
            tokenizer.encode_query_with(&text(query), instruction, &truncation)
        };
        let Err(EncodeError::InstructionTooLong {
            instruction_tokens,
            limit,
        }) = encode("hello", &instruction)
        else {
            panic!("{pair:?}: {:?}", encode("hello", &instruction));
        };
        assert_eq!(instruction_tokens, tokens);
        assert!((1..80).contains(&limit), "{limit}");
        // What keeps to the limit passes.
        let shorter = "hello ".repeat(limit * 100 / tokens);
        assert!(encode("hello", &shorter).is_ok(), "{pair:?} {limit}");
    }
    // Where the query does not fit either, it is the query's fault.
    let long = "hello ".repeat(200);
    let refused =
        tokenizer.encode_query_with(&text(&long), &instruction, &TruncationOptions::to(80));
    assert!(matches!(refused, Err(EncodeError::QueryTooLong { .. })));
}

#[test]
fn what_leaves_no_room_at_the_start_is_named() {
    let json = fixtures::qwen();
    let message = |template: &str, instruction: &str| {
        let loaded = fixtures::load_of_length(&json, template, instruction, 60);
        loaded.unwrap_err().to_string()
    };
    let instruction = message(CHAT, &"hello ".repeat(100));
    assert!(
        instruction.starts_with("instruction: has "),
        "{instruction}"
    );
    assert!(
        instruction.ends_with(" more, max_sequence_tokens=60"),
        "{instruction}"
    );
    let long = format!("{CHAT}{}", "hello ".repeat(100));
    let template = message(&long, "hello");
    assert!(template.starts_with("pair_template: has "), "{template}");
    assert!(
        template.ends_with(" limit max_sequence_tokens=60"),
        "{template}"
    );
    // The limit that is named is one that passes.
    let (_, rest) = instruction.split_once("limit ").unwrap();
    let limit: usize = rest.split(':').next().unwrap().parse().unwrap();
    let tokenizer = load(&json, CHAT);
    let fits = (0..)
        .map(|words| "hello ".repeat(words))
        .take_while(|text| tokenizer.encode_segment(text).unwrap().len() <= limit);
    let fits = fits.last().unwrap();
    assert!(fixtures::load_of_length(&json, CHAT, &fits, 60).is_ok());
}

#[test]
fn a_query_that_fills_the_sequence_is_refused_or_cut_as_asked() {
    let tokenizer = load(&fixtures::qwen(), CHAT);
    let query = "hello ".repeat(100);
    let refused = tokenizer.encode_query(&text(&query), &TruncationOptions::to(80));
    assert!(matches!(refused, Err(EncodeError::QueryTooLong { .. })));
    let longest_first = TruncationOptions {
        pair: PairTruncation::LongestFirst,
        ..TruncationOptions::to(100)
    };
    let encoded = tokenizer
        .encode_query(&text(&query), &longest_first)
        .unwrap();
    let pair = tokenizer
        .encode_pair(&encoded, &text("hello world"), &longest_first)
        .unwrap();
    assert_eq!(pair.token_ids.len(), 100);
    let cut = pair.query_truncated.unwrap();
    assert!(cut.tokens_used < cut.tokens_given && pair.truncated.is_none());
    let ceiling = TruncationOptions {
        max_query_tokens: Some(3),
        ..TruncationOptions::to(1_000)
    };
    let encoded = tokenizer.encode_query(&text(&query), &ceiling).unwrap();
    assert_eq!(encoded.truncated.unwrap().tokens_used, 3);
    let error = TruncationOptions {
        policy: OverlongPolicy::Error,
        ..ceiling
    };
    let refused = tokenizer.encode_query(&text(&query), &error);
    assert!(matches!(
        refused,
        Err(EncodeError::QueryTooLong { limit: 3, .. })
    ));
}

#[test]
fn own_ids_stand_where_the_texts_would() {
    let json = fixtures::qwen();
    let tokenizer = load(&json, CHAT);
    let truncation = TruncationOptions::to(1_000);
    let ids = |text: &str| Content::TokenIds(tokenizer.encode_segment(text).unwrap());
    let query = tokenizer.encode_query(&ids("hello"), &truncation).unwrap();
    let encoded = tokenizer
        .encode_pair(&query, &ids("hello"), &truncation)
        .unwrap();
    // The space before the document is a token of its own now.
    let expected = pair(&tokenizer, "hello", "hello", &truncation);
    assert_eq!(encoded.token_ids, expected);
}

#[test]
fn chunks_are_the_document_in_parts() {
    let tokenizer = load(&fixtures::qwen(), CHAT);
    let truncation = TruncationOptions::to(90);
    let document = text(&"hello world ".repeat(30));
    let query = tokenizer.encode_query(&text("what"), &truncation).unwrap();
    let chunks = tokenizer
        .encode_pair_chunks(&query, &document, &truncation, Some(4))
        .unwrap();
    let all = tokenizer
        .encode_pair_chunks(&query, &document, &TruncationOptions::to(5_000), None)
        .unwrap();
    assert_eq!(all.len(), 1);
    let head = query.token_ids.len();
    let suffix = tokenizer.num_special_pair();
    let own = &all[0].token_ids[head..all[0].token_ids.len() - suffix];
    assert!(chunks.len() > 2);
    for chunk in &chunks {
        assert_eq!(chunk.token_ids.len(), 90);
        assert_eq!(chunk.token_ids[..head], query.token_ids);
        let part = &chunk.token_ids[head..90 - suffix];
        assert_eq!(part, &own[chunk.start..chunk.start + chunk.tokens]);
    }
    let last = chunks.last().unwrap();
    assert_eq!(last.start + last.tokens, own.len());
}

#[test]
fn wrong_templates_are_refused() {
    let message = |text: &str| {
        let error = PairTemplate::new(text, "").unwrap_err();
        error.to_string()
    };
    assert_eq!(message("{query}"), "pair_template: {document} is missing");
    assert_eq!(message("{document}"), "pair_template: {query} is missing");
    assert_eq!(
        message("{query}{query}{document}"),
        "pair_template: {query} is there twice"
    );
    assert_eq!(
        message("{document}{query}"),
        "pair_template: {document} stands before {query}"
    );
    assert_eq!(
        message("{query}{document}{instruction}"),
        "pair_template: {instruction} stands after {document}"
    );
}
