//! Requests that every method refuses, or one of the others.

use prost::Message as _;
use tonic::Code::{DeadlineExceeded, FailedPrecondition, InvalidArgument, NotFound};
use tulip::engine::Task::{Embed, Score};
use tulip_proto::v1::{
    EmbedRequest, GetModelRequest, Input, Normalization, OutputKind, TokenizeRequest,
};

use super::{Call, Case, case, score, truncation};
use crate::support::{embed_request, score_request, text};

fn embed(change: impl FnOnce(&mut EmbedRequest)) -> Call {
    let mut request = embed_request(["w1", "w2"]);
    change(&mut request);
    Call::Embed(request)
}

fn tokenize(change: impl FnOnce(&mut TokenizeRequest)) -> Call {
    let mut request = TokenizeRequest {
        inputs: vec![text("w1")],
        ..TokenizeRequest::default()
    };
    change(&mut request);
    Call::Tokenize(request)
}

/// A request whose second document is text that is not UTF-8.
fn not_utf8() -> Vec<u8> {
    let mut bytes = score_request("w1", ["w2", "w3 !!"]).encode_to_vec();
    let at = bytes.windows(2).position(|pair| pair == b"!!").unwrap();
    bytes[at] = 0xff;
    bytes
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        // Enums that we do not know
        case(
            "unknown priority",
            Score,
            score(|r| r.priority = 9),
            InvalidArgument,
            &["priority: 9 is no value of Priority"],
        ),
        case(
            "unknown policy",
            Score,
            score(|r| r.truncation = truncation(|t| t.policy = 9)),
            InvalidArgument,
            &["truncation.policy: 9"],
        ),
        case(
            "unknown side",
            Score,
            score(|r| r.truncation = truncation(|t| t.side = -1)),
            InvalidArgument,
            &["truncation.side: -1"],
        ),
        case(
            "no room in a pair",
            Score,
            score(|r| r.truncation = truncation(|t| t.max_tokens = 3)),
            InvalidArgument,
            &[
                "truncation.max_tokens: is 3, must be at least 4: 3 special tokens and one of the text",
            ],
        ),
        case(
            "no room in a text",
            Embed,
            embed(|r| r.truncation = truncation(|t| t.max_tokens = 1)),
            InvalidArgument,
            &["truncation.max_tokens: is 1, must be at least 3: 2 special tokens"],
        ),
        case(
            "no room in the texts of a score",
            Embed,
            score(|r| r.truncation = truncation(|t| t.max_tokens = 2)),
            InvalidArgument,
            &["truncation.max_tokens: is 2, must be at least 3"],
        ),
        case(
            "no room in what is tokenized",
            Score,
            tokenize(|r| {
                r.query = Some(text("w1"));
                r.truncation = truncation(|t| t.max_tokens = 2);
            }),
            InvalidArgument,
            &["truncation.max_tokens: is 2, must be at least 4"],
        ),
        case(
            "unknown pair truncation",
            Score,
            score(|r| r.truncation = truncation(|t| t.pair = 3)),
            InvalidArgument,
            &["truncation.pair: 3"],
        ),
        case(
            "unknown form",
            Score,
            score(|r| r.documents[1].form = 7),
            InvalidArgument,
            &["documents[1].form: 7 is no value of TokenIdsForm"],
        ),
        case(
            "unknown dtype",
            Embed,
            embed(|r| r.dtype = 99),
            InvalidArgument,
            &["dtype: 99 is no value of DType"],
        ),
        case(
            "unknown normalization",
            Embed,
            embed(|r| r.normalization = 5),
            InvalidArgument,
            &["normalization: 5"],
        ),
        case(
            "unknown input type",
            Embed,
            embed(|r| r.input_type = 5),
            InvalidArgument,
            &["input_type: 5"],
        ),
        case(
            "unknown output",
            Embed,
            embed(|r| r.outputs = vec![1, 8]),
            InvalidArgument,
            &["outputs[1]: 8"],
        ),
        // Embed
        case(
            "vectors of a cross-encoder",
            Score,
            embed(|_| {}),
            FailedPrecondition,
            &["Embed", "scores, not vectors"],
        ),
        case(
            "no inputs",
            Embed,
            embed(|r| r.inputs.clear()),
            InvalidArgument,
            &["inputs: is empty"],
        ),
        case(
            "too many inputs",
            Embed,
            embed(|r| r.inputs = vec![text("w1"); 21]),
            InvalidArgument,
            &["inputs: has 21 entries", "max_items_per_request=20"],
        ),
        case(
            "unknown prompt",
            Embed,
            embed(|r| r.prompt_name = "qery".into()),
            InvalidArgument,
            &["prompt_name: \"qery\"", "[]"],
        ),
        case(
            "dimensions",
            Embed,
            embed(|r| r.dimensions = 3),
            InvalidArgument,
            &["dimensions: is 3", "has 8", "[]"],
        ),
        case(
            "more dimensions",
            Embed,
            embed(|r| r.dimensions = 9),
            InvalidArgument,
            &["dimensions: is 9", "has 8"],
        ),
        case(
            "not normalized",
            Embed,
            embed(|r| r.normalization = Normalization::None.into()),
            InvalidArgument,
            &["normalization: is NONE"],
        ),
        case(
            "sparse",
            Embed,
            embed(|r| r.outputs = vec![OutputKind::Sparse.into()]),
            FailedPrecondition,
            &["outputs[0]: OUTPUT_KIND_SPARSE"],
        ),
        case(
            "token vectors",
            Embed,
            embed(|r| r.outputs = vec![1, OutputKind::Tokens.into()]),
            FailedPrecondition,
            &["outputs[1]: OUTPUT_KIND_TOKENS"],
        ),
        case(
            "strict embed",
            Embed,
            embed(|r| {
                r.strict = true;
                r.inputs[0] = Input::default();
            }),
            InvalidArgument,
            &["inputs[0]: has neither text nor token_ids"],
        ),
        // Tokenize and GetModel
        case(
            "nothing to tokenize",
            Score,
            tokenize(|r| r.inputs.clear()),
            InvalidArgument,
            &["inputs: is empty"],
        ),
        case(
            "pairs of an embedding model",
            Embed,
            tokenize(|r| r.query = Some(text("w1"))),
            FailedPrecondition,
            &["query: ", "not as pairs"],
        ),
        case(
            "description of another",
            Score,
            Call::GetModel(GetModelRequest {
                model: "other".into(),
                include_tokenizer: false,
            }),
            NotFound,
            &["\"other\""],
        ),
        // The wire
        case(
            "not UTF-8",
            Score,
            Call::Bytes(not_utf8()),
            InvalidArgument,
            &["ScoreRequest.documents", "UTF-8"],
        ),
        case(
            "not protobuf",
            Score,
            Call::Bytes(vec![0xff; 40]),
            InvalidArgument,
            &["decode"],
        ),
        case(
            "message too large",
            Score,
            score(|r| r.documents = vec![text("w".repeat(70_000))]),
            InvalidArgument,
            &["message: has 70014 bytes, limit max_message_bytes=65536"],
        ),
        case(
            "zero deadline",
            Score,
            Call::Timeout("000000000m"),
            DeadlineExceeded,
            &["deadline exceeded after 0 ms"],
        ),
        case(
            "malformed deadline",
            Score,
            Call::Timeout("-5S"),
            InvalidArgument,
            &["grpc-timeout: ", "-5S"],
        ),
    ]
}
