use serde_json::Value;

use super::*;
use crate::fixtures::{self, load_with_template, pair_ids, rendered_ids};
use crate::{OverlongPolicy, PairTruncation, TruncationOptions};

/// Its text after the document begins with a line break, which a mark before it draws in.
const CHAT: &str = "<s>q: {query}\np: {document}\nhello</s>\n";
/// The same, all read apart.
const APART: &str = "<s>q: {query}{split}\np: {document}{split}\nhello</s>\n";

/// The numbers of a fixture's tokens are new each time: it is made once in a test.
fn tokenizer() -> (Value, Tokenizer) {
    let json = fixtures::qwen();
    let tokenizer = load_with_template(&json, CHAT);
    (json, tokenizer)
}

fn text(text: &str) -> Content {
    Content::Text(text.to_owned())
}

fn left(max_tokens: usize) -> TruncationOptions {
    TruncationOptions {
        side: Side::Left,
        ..TruncationOptions::to(max_tokens)
    }
}

/// Ids of a prompt with a document that was cut to `kept` of its own tokens, at the right.
fn cut_prompt(tokenizer: &Tokenizer, document: &str, kept: usize) -> Vec<u32> {
    let ids = |text: &str| tokenizer.encode_segment(text).unwrap();
    let head = [vec![0], ids("q: what?\np:")].concat();
    let document = ids(&format!(" {document}"));
    [&head, &document[..kept], &ids("\nhello"), &[1], &ids("\n")].concat()
}

#[test]
fn a_last_mark_is_one_token_with_the_line_break_after_it() {
    let (json, tokenizer) = tokenizer();
    let joined = u32::try_from(json["model"]["vocab"][".Ċ"].as_u64().unwrap()).unwrap();
    let truncation = TruncationOptions::to(1_000);
    let ids = pair_ids(&tokenizer, "what?", "hello.", &truncation);
    assert!(ids.contains(&joined));
    assert_eq!(ids, rendered_ids(&json, CHAT, "what?", "hello."));
    let apart = load_with_template(&json, APART);
    let ids = pair_ids(&apart, "what?", "hello.", &truncation);
    assert!(!ids.contains(&joined));
}

#[test]
fn a_mark_in_the_template_makes_runs_of_their_own() {
    let json = fixtures::qwen();
    let apart = load_with_template(&json, APART);
    let ids = |text: &str| apart.encode_segment(text).unwrap();
    for query in ["", "what?", "hello ", "{split}", "a\n"] {
        for document in ["", " ", "hello.", "hello.\n", "{split}?"] {
            let expected = [
                &[0][..],
                &ids(&format!("q: {query}")),
                &ids(&format!("\np: {document}")),
                &ids("\nhello"),
                &[1],
                &ids("\n"),
            ];
            let found = pair_ids(&apart, query, document, &TruncationOptions::to(1_000));
            assert_eq!(found, expected.concat(), "{query:?} {document:?}");
        }
    }
    // Before the document too: its first word has no space in it.
    let before = load_with_template(&json, "<s>{query} {split}{document}{split}{split}.");
    let found = pair_ids(&before, "what", "wo", &TruncationOptions::to(1_000));
    let expected = [ids("what "), ids("wo"), ids(".")].concat();
    assert_eq!(found[1..1 + expected.len()], expected);
}

#[test]
fn only_the_document_is_cut_and_the_limit_holds() {
    let (json, tokenizer) = tokenizer();
    let document = "hello. world? ".repeat(30) + "end.";
    let own = tokenizer.encode_segment(&format!(" {document}")).unwrap();
    let whole = rendered_ids(&json, CHAT, "what?", &document);
    let around = cut_prompt(&tokenizer, &document, 0).len();
    // The last mark and the line break became one.
    assert_eq!(whole.len(), around + own.len() - 1);
    let query = tokenizer.encode_query(&text("what?"), &TruncationOptions::to(1_000));
    let query = query.unwrap();
    for limit in around + 1..whole.len() + 3 {
        let truncation = TruncationOptions::to(limit);
        let pair = tokenizer.encode_pair(&query, &text(&document), &truncation);
        let pair = pair.unwrap();
        if limit >= whole.len() {
            assert_eq!((&pair.token_ids, pair.truncated), (&whole, None));
            continue;
        }
        let kept = limit - around;
        assert_eq!(pair.token_ids, cut_prompt(&tokenizer, &document, kept));
        let cut = pair.truncated.unwrap();
        assert_eq!((cut.tokens_used, cut.side), (kept, Side::Right));
        assert!(cut.tokens_given > kept && cut.tokens_given <= own.len());
        let refused = TruncationOptions {
            policy: OverlongPolicy::Error,
            ..truncation
        };
        let refused = tokenizer.encode_pair(&query, &text(&document), &refused);
        assert!(matches!(refused, Err(EncodeError::TooLong { .. })));
    }
    let no_room = tokenizer.encode_pair(&query, &text("a"), &TruncationOptions::to(around));
    assert!(matches!(no_room, Err(EncodeError::NoRoom { .. })));
}

#[test]
fn cut_at_the_left_the_end_stays_one_text() {
    let (json, tokenizer) = tokenizer();
    let document = "hello. world? ".repeat(30) + "end.";
    let whole = rendered_ids(&json, CHAT, "what?", &document);
    let around = cut_prompt(&tokenizer, &document, 0).len();
    let query = tokenizer
        .encode_query(&text("what?"), &left(1_000))
        .unwrap();
    let head = &query.token_ids;
    for limit in [around + 1, around + 20, whole.len() - 1, whole.len()] {
        let pair = tokenizer.encode_pair(&query, &text(&document), &left(limit));
        let pair = pair.unwrap();
        let kept = &whole[whole.len() - (limit - head.len())..];
        assert_eq!(pair.token_ids, [head, kept].concat(), "{limit}");
        let own = whole.len() - around;
        let expected = (limit < whole.len()).then_some(Truncated {
            tokens_given: own,
            tokens_used: limit - around,
            side: Side::Left,
        });
        assert_eq!(pair.truncated, expected);
    }
}

#[test]
fn of_a_document_far_too_long_only_a_beginning_is_read() {
    let (_, tokenizer) = tokenizer();
    let document = "hello world. ".repeat(20_000);
    let around = cut_prompt(&tokenizer, &document, 0).len();
    let query = text("what?");
    let query = tokenizer.encode_query(&query, &TruncationOptions::to(99));
    let pair = tokenizer.encode_pair(
        &query.unwrap(),
        &text(&document),
        &TruncationOptions::to(99),
    );
    let pair = pair.unwrap();
    assert_eq!(
        pair.token_ids,
        cut_prompt(&tokenizer, &document, 99 - around)
    );
    assert!(pair.truncated.unwrap().tokens_given < 1_000);
}

#[test]
fn ceilings_and_queries_that_give_way() {
    let (json, tokenizer) = tokenizer();
    let document = "hello. world? ".repeat(20);
    let ceiling = TruncationOptions {
        max_document_tokens: Some(7),
        ..TruncationOptions::to(1_000)
    };
    let found = pair_ids(&tokenizer, "what?", &document, &ceiling);
    assert_eq!(found, cut_prompt(&tokenizer, &document, 7));
    let longest_first = TruncationOptions {
        pair: PairTruncation::LongestFirst,
        ..TruncationOptions::to(60)
    };
    for document in [&document, "hello."] {
        let query = "what ".repeat(50);
        let found = pair_ids(&tokenizer, &query, document, &longest_first);
        let end = rendered_ids(&json, CHAT, "", document);
        assert_eq!(found.len(), 60);
        assert_eq!(found[57..], end[end.len() - 3..], "{document}");
    }
}

#[test]
fn own_ids_are_joined_with_nothing() {
    let (_, tokenizer) = tokenizer();
    let truncation = TruncationOptions::to(1_000);
    let own = tokenizer.encode_segment("hello.").unwrap();
    let query = tokenizer.encode_query(&text("what?"), &truncation).unwrap();
    for (limit, document) in [(1_000, " hello."), (24, " hello")] {
        let limit = TruncationOptions::to(limit);
        let pair = tokenizer.encode_pair(&query, &Content::TokenIds(own.clone()), &limit);
        let around = cut_prompt(&tokenizer, document, 0).len();
        let kept = own.len().min(limit.max_tokens - around - 1);
        let ids = |text: &str| tokenizer.encode_segment(text).unwrap();
        let head = [vec![0], ids("q: what?\np:"), ids(" ")].concat();
        let end = [ids("\nhello"), vec![1], ids("\n")].concat();
        assert_eq!(
            pair.unwrap().token_ids,
            [&head, &own[..kept], &end].concat()
        );
    }
}

#[test]
fn the_part_that_ends_a_document_is_read_with_the_text_after_it() {
    let (json, tokenizer) = tokenizer();
    let joined = u32::try_from(json["model"]["vocab"][".Ċ"].as_u64().unwrap()).unwrap();
    let truncation = TruncationOptions::to(60);
    let document = "hello world. ".repeat(30) + "end.";
    let query = tokenizer.encode_query(&text("what?"), &truncation).unwrap();
    let content = text(&document);
    let chunks = tokenizer.encode_pair_chunks(&query, &content, &truncation, Some(4));
    let chunks = chunks.unwrap();
    let own = tokenizer.encode_segment(&format!(" {document}")).unwrap();
    let around = cut_prompt(&tokenizer, &document, 0).len();
    let (last, others) = chunks.split_last().unwrap();
    assert!(others.len() > 2);
    let (head, suffix) = (query.token_ids.len(), around - query.token_ids.len());
    for chunk in others {
        assert_eq!(chunk.token_ids.len(), 60);
        let end = head + chunk.tokens;
        let part = &own[chunk.start..chunk.start + chunk.tokens];
        assert_eq!(chunk.token_ids[head..end], *part);
        let alone = cut_prompt(&tokenizer, &document, 0);
        assert_eq!(chunk.token_ids[end..], alone[head..]);
        assert!(!chunk.token_ids.contains(&joined));
    }
    assert_eq!(last.start + last.tokens, own.len());
    let whole = rendered_ids(&json, CHAT, "what?", &document);
    let length = last.token_ids.len();
    assert_eq!(length, 60 - 1);
    let kept = length - head;
    assert_eq!(last.token_ids[head..], whole[whole.len() - kept..]);
    assert!(kept > suffix && last.token_ids.contains(&joined));
    // One that fits is what encode_pair makes of it.
    let short = tokenizer.encode_pair_chunks(&query, &text("end."), &truncation, None);
    let expected = pair_ids(&tokenizer, "what?", "end.", &truncation);
    assert_eq!(short.unwrap()[0].token_ids, expected);
}
