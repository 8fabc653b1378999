//! A model whose tokenizer cuts the beginning off does so in every method, unless asked otherwise.

use tulip::engine::{ModelInfo, Side, Task};
use tulip::fake_engine::FakeEngine;
use tulip_proto::v1::{
    EmbedRequest, GetModelRequest, ScoreRequest, TokenizeRequest, Truncation, TruncationSide,
};

use crate::support::{
    CLS, SEP, TestServer, assert_close, embed_request, float32, info, packed, pair_row,
    score_request, single_row, text, word,
};

const LONG: &str = "w1 w2 w3 w4";

fn left(task: Task, width: usize) -> ModelInfo {
    ModelInfo {
        truncation_side: Side::Left,
        max_sequence_tokens: 5,
        ..info(task, width)
    }
}

fn side(side: TruncationSide) -> Option<Truncation> {
    Some(Truncation {
        side: side.into(),
        ..Truncation::default()
    })
}

/// What a request says of the side, and what is cut.
fn cases() -> [(Option<Truncation>, TruncationSide); 4] {
    [
        (None, TruncationSide::Left),
        (side(TruncationSide::Unspecified), TruncationSide::Left),
        (side(TruncationSide::Left), TruncationSide::Left),
        (side(TruncationSide::Right), TruncationSide::Right),
    ]
}

#[tokio::test]
async fn pairs_keep_the_query_and_the_end_of_the_document() {
    let info = left(Task::Score, 1);
    let server = TestServer::start(FakeEngine::new(info.clone()));
    let mut client = server.client().await;
    for (truncation, cut) in cases() {
        let request = ScoreRequest {
            truncation,
            raw_scores: true,
            ..score_request("w9", [LONG])
        };
        let response = client.score(request).await.unwrap().into_inner();
        let kept = if cut == TruncationSide::Left { 4 } else { 1 };
        let row = pair_row(&info, &[word(9)], &[word(kept)]);
        assert_close(&response.scores, &row);
        assert_eq!(response.truncations[0].side(), cut, "{truncation:?}");
    }
}

#[tokio::test]
async fn single_texts_keep_special_tokens_and_lose_their_prompt() {
    let mut info = left(Task::Embed, 4);
    info.prompts.named = [("query".into(), "w90 ".into())].into();
    info.prompts.default_name = Some("query".into());
    let server = TestServer::start(FakeEngine::new(info.clone()));
    let mut client = server.client().await;
    for (truncation, cut) in cases() {
        let kept = match cut {
            TruncationSide::Left => [2, 3, 4],
            _ => [90, 1, 2],
        };
        let ids = kept.map(word);
        let request = EmbedRequest {
            truncation,
            ..embed_request([LONG])
        };
        let response = client.embed(request).await.unwrap().into_inner();
        let row = float32(&response.embeddings.unwrap().data);
        assert_close(&row, &single_row(&info, &ids));
        assert_eq!(response.truncations[0].side(), cut);

        let request = TokenizeRequest {
            inputs: vec![text(LONG)],
            truncation,
            ..TokenizeRequest::default()
        };
        let response = client.tokenize(request).await.unwrap().into_inner();
        let expected = [&[CLS], &ids[..], &[SEP]].concat();
        assert_eq!(response.sequences[0].token_ids, packed(&expected));
    }
}

#[tokio::test]
async fn the_side_is_told() {
    for (info, expected) in [
        (left(Task::Score, 1), TruncationSide::Left),
        (info(Task::Score, 1), TruncationSide::Right),
    ] {
        let server = TestServer::start(FakeEngine::new(info));
        let mut client = server.client().await;
        let request = GetModelRequest::default();
        let model = client.get_model(request).await.unwrap().into_inner();
        assert_eq!(model.truncation_side(), expected);
    }
}
