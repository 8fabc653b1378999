//! Token ids are the ones that Score and Embed use.

use tulip::engine::Task;
use tulip::fake_engine::FakeEngine;
use tulip_proto::v1::{InputType, TokenizeRequest, Truncation};

use crate::support::{CLS, SEP, TestServer, info, packed, segment, text, word};

#[tokio::test]
async fn singles_with_prompt_and_tokens() {
    let mut info = info(Task::Embed, 4);
    info.prompts.named = [("query".into(), "w90 ".into())].into();
    let server = TestServer::start(FakeEngine::new(info));
    let mut client = server.client().await;
    let request = TokenizeRequest {
        inputs: vec![text("w1"), segment(&[500]), text("w2 w3")],
        input_type: InputType::Query.into(),
        truncation: Some(Truncation {
            max_tokens: 4,
            ..Truncation::default()
        }),
        return_tokens: true,
        ..TokenizeRequest::default()
    };
    let response = client.tokenize(request).await.unwrap().into_inner();
    assert_eq!(
        response.sequences[0].token_ids,
        packed(&[CLS, word(90), word(1), SEP])
    );
    assert_eq!(
        response.sequences[0].tokens,
        ["[CLS]", "w90", "w1", "[SEP]"]
    );
    assert!(response.sequences[1].token_ids.is_empty());
    assert_eq!(response.item_errors[0].index, 1);
    assert_eq!(
        response.sequences[2].token_ids,
        packed(&[CLS, word(90), word(2), SEP])
    );
    let report = response.truncations[0];
    assert_eq!(
        (report.index, report.tokens_given, report.tokens_used),
        (2, 3, 2)
    );
}

#[tokio::test]
async fn pairs_have_a_second_segment() {
    let server = TestServer::start(FakeEngine::new(info(Task::Score, 1)));
    let mut client = server.client().await;
    let request = TokenizeRequest {
        query: Some(text("w1 w2")),
        inputs: vec![text("w3"), text("")],
        ..TokenizeRequest::default()
    };
    let response = client.tokenize(request).await.unwrap().into_inner();
    assert_eq!(
        response.sequences[0].token_ids,
        packed(&[CLS, word(1), word(2), SEP, word(3), SEP])
    );
    assert_eq!(
        response.sequences[1].token_ids,
        packed(&[CLS, word(1), word(2), SEP, SEP])
    );
    let starts: Vec<u32> = response
        .sequences
        .iter()
        .map(|sequence| sequence.second_segment_start)
        .collect();
    assert_eq!(starts, [4, 4]);
    assert!(response.sequences[0].tokens.is_empty());
}
