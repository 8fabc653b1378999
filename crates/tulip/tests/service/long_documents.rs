//! What becomes of a document that is too long: an error, a cut, or its best part.

use tulip::engine::Task;
use tulip::fake_engine::FakeEngine;
use tulip_proto::v1::{
    ErrorReason, ScoreRequest, ScoreResponse, Truncation, TruncationPolicy, TruncationSide,
};

use crate::support::{
    TestServer, assert_close, float32, info, pair_row, score_request, sigmoid, single_row, word,
};

/// `w0 w1 …`, one token each.
fn words(count: u32) -> String {
    let words: Vec<String> = (0..count).map(|word| format!("w{}", word % 96)).collect();
    words.join(" ")
}

fn tokens(start: u32, count: u32) -> Vec<u32> {
    (start..start + count).map(|at| word(at % 96)).collect()
}

fn request(policy: TruncationPolicy, documents: &[&str]) -> ScoreRequest {
    ScoreRequest {
        truncation: Some(Truncation {
            policy: policy.into(),
            // Beside the query and three special tokens ten are left for a document.
            max_tokens: 14,
            chunk_overlap_tokens: 4,
            ..Truncation::default()
        }),
        ..score_request("w1", documents.iter().copied())
    }
}

async fn score(task: Task, width: usize, request: ScoreRequest) -> ScoreResponse {
    let server = TestServer::start(FakeEngine::new(info(task, width)));
    let mut client = server.client().await;
    client.score(request).await.unwrap().into_inner()
}

/// First token and length of each part of 27 tokens.
const PARTS: [(u32, u32); 4] = [(0, 10), (6, 10), (12, 10), (17, 10)];

#[tokio::test]
async fn the_best_part_counts_and_is_named() {
    let info = info(Task::Score, 1);
    let (long, short) = (words(27), words(3));
    let request = request(TruncationPolicy::ChunkMax, &[&short, &long, "w9 w8"]);
    let response = score(Task::Score, 1, request).await;

    let logits = PARTS.map(|(start, count)| pair_row(&info, &[word(1)], &tokens(start, count))[0]);
    let best = (0..PARTS.len())
        .max_by(|&a, &b| logits[a].total_cmp(&logits[b]))
        .unwrap();
    let expected = [
        sigmoid(pair_row(&info, &[word(1)], &tokens(0, 3))[0]),
        sigmoid(logits[best]),
        sigmoid(pair_row(&info, &[word(1)], &[word(9), word(8)])[0]),
    ];
    assert_close(&response.scores, &expected);
    assert_eq!(response.best_chunk_start, [0, PARTS[best].0, 0]);
    assert_eq!(response.best_chunk_tokens, [3, PARTS[best].1, 2]);
    assert_eq!(response.usage.unwrap().sequences, 1 + 4 + 1);
    assert_eq!(response.truncations, []);
}

#[tokio::test]
async fn the_labels_are_those_of_the_best_part() {
    let info = info(Task::Classify, 3);
    let request = ScoreRequest {
        all_labels: true,
        ..request(TruncationPolicy::ChunkMax, &[&words(27)])
    };
    let response = score(Task::Classify, 3, request).await;
    let start = response.best_chunk_start[0];
    let row = pair_row(&info, &[word(1)], &tokens(start, 10));
    let sum: f32 = row.iter().map(|logit| logit.exp()).sum();
    let row: Vec<f32> = row.iter().map(|logit| logit.exp() / sum).collect();
    let found = float32(&response.label_scores.unwrap().data);
    assert_close(&found, &row);
    assert_close(&response.scores, &row[1..2]);
}

#[tokio::test]
async fn an_embedding_model_compares_the_query_with_each_part() {
    let info = info(Task::Embed, 8);
    let truncation = Truncation {
        policy: TruncationPolicy::ChunkMax.into(),
        max_tokens: 12,
        chunk_overlap_tokens: 4,
        ..Truncation::default()
    };
    let request = ScoreRequest {
        truncation: Some(truncation),
        ..score_request("w1", [&*words(27)])
    };
    let response = score(Task::Embed, 8, request).await;
    let query = single_row(&info, &[word(1)]);
    let similarities = PARTS.map(|(start, count)| {
        let row = single_row(&info, &tokens(start, count));
        query.iter().zip(&row).map(|(a, b)| a * b).sum::<f32>()
    });
    let best = similarities.iter().copied().fold(f32::MIN, f32::max);
    assert_close(&response.scores, &[best]);
}

#[tokio::test]
async fn error_and_cut_say_what_happened() {
    let documents = [&*words(27), "w2"];
    let response = score(Task::Score, 1, request(TruncationPolicy::Error, &documents)).await;
    assert_eq!(response.item_errors.len(), 1);
    let error = &response.item_errors[0];
    assert_eq!(
        (error.index, error.reason()),
        (0, ErrorReason::TooLong),
        "{}",
        error.message
    );
    assert_eq!(response.ranking, [1]);

    let response = score(Task::Score, 1, request(TruncationPolicy::Cut, &documents)).await;
    let cut = &response.truncations[0];
    assert_eq!((cut.index, cut.tokens_used), (0, 10));
    assert!(cut.tokens_given >= 27);
    assert_eq!(cut.side(), TruncationSide::Right);
    assert!(response.best_chunk_start.is_empty());
}

#[tokio::test]
async fn an_overlap_of_a_whole_chunk_fails_only_long_documents() {
    let mut request = request(TruncationPolicy::ChunkMax, &[&words(27), "w2"]);
    request.truncation.as_mut().unwrap().chunk_overlap_tokens = 10;
    let response = score(Task::Score, 1, request).await;
    assert_eq!(response.item_errors.len(), 1);
    assert_eq!(
        response.item_errors[0].message,
        "documents[0]: chunk_overlap_tokens=10 must be below the 10 tokens that a chunk may have"
    );
    assert_eq!(response.ranking, [1]);
}
