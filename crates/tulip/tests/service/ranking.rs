//! Probabilities that are one float are still told apart.

use tulip::engine::{Activation, ModelInfo, Task};
use tulip::fake_engine::FakeEngine;
use tulip::sequence::Sequence;
use tulip_proto::v1::{ScoreRequest, Truncation, TruncationPolicy};

use crate::support::{TestServer, info, score_request, word};

/// The number of the last word.
fn logit(sequence: &Sequence) -> f32 {
    let ids = &sequence.token_ids;
    (ids[ids.len() - 2] - word(0)) as f32
}

fn reranker() -> FakeEngine {
    FakeEngine::new(info(Task::Score, 1)).with_rows(|sequence| vec![logit(sequence)])
}

#[tokio::test]
async fn logits_beyond_what_a_probability_tells_apart() {
    let server = TestServer::start(reranker());
    let mut client = server.client().await;
    let request = score_request("w0", ["w20", "w25", "w30", "w25", "w1"]);
    let response = client.score(request.clone()).await.unwrap().into_inner();
    assert_eq!(response.scores[..4], [1.0; 4]);
    assert_eq!(response.ranking, [2, 1, 3, 0, 4], "ties by index");
    assert_eq!(response.score_logits, [20.0, 25.0, 30.0, 25.0, 1.0]);

    let best = ScoreRequest {
        top_n: 1,
        ..request.clone()
    };
    let response = client.score(best).await.unwrap().into_inner();
    assert_eq!(response.ranking, [2]);

    let raw = ScoreRequest {
        raw_scores: true,
        ..request
    };
    let response = client.score(raw).await.unwrap().into_inner();
    assert_eq!(response.ranking, [2, 1, 3, 0, 4]);
    assert!(response.score_logits.is_empty());
}

#[tokio::test]
async fn probabilities_of_labels() {
    // The second label's own logit is the same for all documents.
    let rows = |sequence: &Sequence| vec![10.0 - logit(sequence), 10.0];
    let server = TestServer::start(FakeEngine::new(info(Task::Classify, 2)).with_rows(rows));
    let mut client = server.client().await;
    let request = score_request("w0", ["w20", "w25", "w30"]);
    let response = client.score(request.clone()).await.unwrap().into_inner();
    assert_eq!(response.scores, [1.0; 3]);
    assert_eq!(response.ranking, [2, 1, 0]);
    let first = ScoreRequest {
        label: "LABEL_0".into(),
        ..request
    };
    let response = client.score(first).await.unwrap().into_inner();
    assert_eq!(response.ranking, [0, 1, 2]);
    assert_eq!(response.score_logits, [-20.0, -25.0, -30.0]);
}

#[tokio::test]
async fn the_chunk_with_the_highest_logit_wins() {
    let info = ModelInfo {
        max_sequence_tokens: 5,
        ..info(Task::Score, 1)
    };
    let engine = FakeEngine::new(info).with_rows(|sequence| vec![logit(sequence)]);
    let server = TestServer::start(engine);
    let mut client = server.client().await;
    let request = ScoreRequest {
        truncation: Some(Truncation {
            policy: TruncationPolicy::ChunkMax.into(),
            ..Truncation::default()
        }),
        ..score_request("w0", ["w20 w30 w25"])
    };
    let response = client.score(request).await.unwrap().into_inner();
    assert_eq!((response.scores[0], response.score_logits[0]), (1.0, 30.0));
    assert_eq!(response.best_chunk_start, [1]);
}

#[tokio::test]
async fn scores_that_are_no_probabilities_say_no_logits() {
    let identity = ModelInfo {
        activation: Activation::Identity,
        ..info(Task::Score, 1)
    };
    for info in [identity, info(Task::Embed, 4)] {
        let server = TestServer::start(FakeEngine::new(info));
        let mut client = server.client().await;
        let request = score_request("w0", ["w20", "w30"]);
        let response = client.score(request).await.unwrap().into_inner();
        assert_eq!(response.ranking.len(), 2);
        assert!(response.score_logits.is_empty());
    }
}
