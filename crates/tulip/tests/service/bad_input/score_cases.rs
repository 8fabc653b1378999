//! Requests that `Score` refuses.

use bytes::Bytes;
use tonic::Code::{FailedPrecondition, InvalidArgument, NotFound};
use tulip::engine::Task::{Classify, Embed, Score};
use tulip_proto::v1::{Input, PairTruncation, TruncationPolicy, input};

use super::{Case, case, score, truncation};
use crate::support::{CLS, SEP, segment, sequence, text};

pub(super) fn cases() -> Vec<Case> {
    let long = "w1 ".repeat(600);
    vec![
        // Query and documents
        case(
            "no query",
            Score,
            score(|r| r.query = None),
            InvalidArgument,
            &["query: is missing"],
        ),
        case(
            "no query, vectors",
            Embed,
            score(|r| r.query = None),
            InvalidArgument,
            &["query: is missing"],
        ),
        case(
            "hollow query",
            Score,
            score(|r| r.query = Some(Input::default())),
            InvalidArgument,
            &["query: has neither text nor token_ids"],
        ),
        case(
            "no documents",
            Score,
            score(|r| r.documents.clear()),
            InvalidArgument,
            &["documents: is empty"],
        ),
        case(
            "too many documents",
            Score,
            score(|r| r.documents = vec![text("w1"); 21]),
            InvalidArgument,
            &["documents: has 21 entries", "max_items_per_request=20"],
        ),
        case(
            "query too long",
            Score,
            score(|r| r.query = Some(text(long.clone()))),
            InvalidArgument,
            &["query: ", "at least", "limit 509"],
        ),
        case(
            "query beyond its ceiling",
            Score,
            score(|r| {
                r.query = Some(text("w1 w2 w3"));
                r.truncation = truncation(|t| {
                    t.policy = TruncationPolicy::Error.into();
                    t.max_query_tokens = 2;
                });
            }),
            InvalidArgument,
            &["query: ", "3 tokens", "limit 2"],
        ),
        case(
            "query beyond its ceiling, vectors",
            Embed,
            score(|r| {
                r.query = Some(text("w1 w2 w3"));
                r.truncation = truncation(|t| {
                    t.policy = TruncationPolicy::Error.into();
                    t.max_query_tokens = 2;
                });
            }),
            InvalidArgument,
            &["query: ", "3 tokens", "max_query_tokens=2"],
        ),
        case(
            "query id out of range",
            Score,
            score(|r| r.query = Some(segment(&[5, 100]))),
            InvalidArgument,
            &["query.token_ids[1]: is 100", "vocab_size=100"],
        ),
        case(
            "query ids cut short",
            Score,
            score(|r| {
                r.query = Some(Input {
                    content: Some(input::Content::TokenIds(Bytes::from_static(&[1, 2, 3]))),
                    ..Input::default()
                });
            }),
            InvalidArgument,
            &["query.token_ids: has 3 bytes", "multiple of 4"],
        ),
        case(
            "whole pair beside a query",
            Score,
            score(|r| r.documents[1] = sequence(&[CLS, SEP], 0)),
            InvalidArgument,
            &[
                "documents[1].form: is SEQUENCE",
                "query must then be absent",
            ],
        ),
        case(
            "whole sequence as query",
            Score,
            score(|r| r.query = Some(sequence(&[CLS, SEP], 0))),
            InvalidArgument,
            &["query.form: is SEQUENCE"],
        ),
        case(
            "whole pairs to an embedding model",
            Embed,
            score(|r| {
                r.query = None;
                r.documents = vec![sequence(&[CLS, SEP], 0)];
            }),
            InvalidArgument,
            &["query: is missing"],
        ),
        case(
            "can never fit",
            Score,
            score(|r| r.documents = vec![text("w1 ".repeat(400)); 12]),
            InvalidArgument,
            &[
                "request: has at least 4",
                " tokens, limit max_queued_tokens=4000",
            ],
        ),
        case(
            "parts that share too much",
            Score,
            score(|r| {
                r.documents = vec![text("w1 ".repeat(600))];
                r.truncation = truncation(|t| {
                    t.policy = TruncationPolicy::ChunkMax.into();
                    t.max_tokens = 104;
                    t.chunk_overlap_tokens = 90;
                });
            }),
            InvalidArgument,
            &["request: has at least 5304 tokens, limit max_queued_tokens=4000"],
        ),
        // Options
        case(
            "unknown label",
            Classify,
            score(|r| r.label = "good".into()),
            InvalidArgument,
            &["label: \"good\" is no label", "LABEL_0", "LABEL_1"],
        ),
        case(
            "label of an embedding model",
            Embed,
            score(|r| r.label = "good".into()),
            FailedPrecondition,
            &["label: ", "no labels"],
        ),
        case(
            "labels of an embedding model",
            Embed,
            score(|r| r.all_labels = true),
            FailedPrecondition,
            &["all_labels: ", "no labels"],
        ),
        case(
            "instruction without a place",
            Score,
            score(|r| r.instruction = "judge".into()),
            InvalidArgument,
            &["instruction: "],
        ),
        case(
            "chunks with another query each",
            Score,
            score(|r| {
                r.truncation = truncation(|t| {
                    t.policy = TruncationPolicy::ChunkMax.into();
                    t.pair = PairTruncation::LongestFirst.into();
                });
            }),
            InvalidArgument,
            &["truncation.pair: is LONGEST_FIRST", "CHUNK_MAX"],
        ),
        case(
            "strict",
            Score,
            score(|r| {
                r.strict = true;
                r.documents[1] = segment(&[5, 6, 777]);
            }),
            InvalidArgument,
            &["documents[1].token_ids[2]: is 777", "vocab_size=100"],
        ),
        case(
            "other model",
            Score,
            score(|r| r.model = "other".into()),
            NotFound,
            &["\"other\"", "\"fake\""],
        ),
    ]
}
