//! Prompts that a model wants around its texts.

use tulip::engine::{ModelInfo, Task, Templates};
use tulip::fake_engine::FakeEngine;
use tulip_proto::v1::{EmbedRequest, GetModelRequest, InputType, ScoreRequest};

use crate::support::{
    CLS, SEP, TestServer, assert_close, float32, info, score_request, sigmoid, single_row, text,
    word,
};

fn reranker() -> ModelInfo {
    ModelInfo {
        templates: Templates {
            pair: "[CLS] {instruction} w10 {query} w11 {document} w12 [SEP]".into(),
            default_instruction: "w20".into(),
            ..Templates::default()
        },
        ..info(Task::Score, 1)
    }
}

fn embedder() -> ModelInfo {
    ModelInfo {
        templates: Templates {
            query: "w10 {instruction} w11 {query}".into(),
            document: "w12 {document}".into(),
            default_instruction: "w20".into(),
            ..Templates::default()
        },
        ..info(Task::Embed, 8)
    }
}

/// The logit of a complete sequence.
fn logit(info: &ModelInfo, token_ids: &[u32]) -> f32 {
    FakeEngine::row(info, &token_ids.to_vec().into())[0]
}

#[tokio::test]
async fn a_pair_is_the_rendered_prompt() {
    let info = reranker();
    let server = TestServer::start(FakeEngine::new(info.clone()));
    let mut client = server.client().await;
    let prompt = |instruction, document: &[u32]| {
        let before = [CLS, word(instruction), word(10), word(1), word(11)];
        [&before, document, &[word(12), SEP]].concat()
    };
    for (instruction, expected) in [("", 20), ("w21", 21)] {
        let request = ScoreRequest {
            instruction: instruction.into(),
            // A special token in a text is text: the tokenizer does not know the word.
            ..score_request("w1", ["w2 w3", ""])
        };
        let response = client.score(request).await.unwrap().into_inner();
        let logits = [
            logit(&info, &prompt(expected, &[word(2), word(3)])),
            logit(&info, &prompt(expected, &[])),
        ];
        assert_close(&response.scores, &logits.map(sigmoid));
    }
}

#[tokio::test]
async fn an_instruction_that_is_too_long_is_named() {
    let info = ModelInfo {
        max_sequence_tokens: 20,
        ..reranker()
    };
    let server = TestServer::start(FakeEngine::new(info));
    let mut client = server.client().await;
    let mut message = async |instruction: &str, query: &str| {
        let request = ScoreRequest {
            instruction: instruction.into(),
            ..score_request(query, ["w2"])
        };
        let status = client.score(request).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
        status.message().to_owned()
    };
    // [CLS] w10 w11 w12 [SEP] and the query's word leave 14.
    let long = "w21 ".repeat(30);
    let expected = "instruction: has 30 tokens, limit 14";
    assert_eq!(message(&long, "w1").await, expected);
    let query = message(&long, &"w1 ".repeat(30)).await;
    assert!(
        query.starts_with("query: the query has at least "),
        "{query}"
    );
}

#[tokio::test]
async fn an_embedding_model_has_a_template_for_each_input_type() {
    let info = embedder();
    let server = TestServer::start(FakeEngine::new(info.clone()));
    let mut client = server.client().await;
    let cases = [
        (InputType::Query, "", vec![word(10), word(20), word(11)]),
        (InputType::Query, "w21", vec![word(10), word(21), word(11)]),
        (
            InputType::Unspecified,
            "w21",
            vec![word(10), word(21), word(11)],
        ),
        (InputType::Unspecified, "", vec![]),
        (InputType::Document, "", vec![word(12)]),
    ];
    for (input_type, instruction, prefix) in cases {
        let request = EmbedRequest {
            inputs: vec![text("w1")],
            input_type: input_type.into(),
            instruction: instruction.into(),
            ..EmbedRequest::default()
        };
        let response = client.embed(request).await.unwrap().into_inner();
        let expected = single_row(&info, &[prefix, vec![word(1)]].concat());
        let found = float32(&response.embeddings.unwrap().data);
        assert_close(&found, &expected);
    }
}

#[tokio::test]
async fn score_of_an_embedding_model_uses_both_templates() {
    let info = embedder();
    let server = TestServer::start(FakeEngine::new(info.clone()));
    let mut client = server.client().await;
    let request = ScoreRequest {
        instruction: "w21".into(),
        ..score_request("w1", ["w2"])
    };
    let response = client.score(request).await.unwrap().into_inner();
    let query = single_row(&info, &[word(10), word(21), word(11), word(1)]);
    let document = single_row(&info, &[word(12), word(2)]);
    let expected: f32 = query.iter().zip(&document).map(|(a, b)| a * b).sum();
    assert_close(&response.scores, &[expected]);
}

#[tokio::test]
async fn an_instruction_without_a_place_is_refused() {
    for (info, method) in [
        (info(Task::Score, 1), "pair"),
        (info(Task::Embed, 8), "vector"),
    ] {
        let server = TestServer::start(FakeEngine::new(info));
        let mut client = server.client().await;
        let request = ScoreRequest {
            instruction: "w21".into(),
            ..score_request("w1", ["w2"])
        };
        let status = client.score(request).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument, "{method}");
        assert_eq!(
            status.message(),
            "instruction: this model's template has no place for an instruction"
        );
    }
}

#[tokio::test]
async fn the_model_says_what_its_templates_are() {
    let server = TestServer::start(FakeEngine::new(reranker()));
    let mut client = server.client().await;
    let model = client.get_model(GetModelRequest::default()).await;
    let template = model.unwrap().into_inner().template.unwrap();
    assert_eq!(template.pair, reranker().templates.pair);
    assert_eq!(template.default_instruction, "w20");
}
