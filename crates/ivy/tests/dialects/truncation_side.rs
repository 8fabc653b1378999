//! A model whose tokenizer cuts the beginning off, for clients that say nothing of sides.

use serde_json::{Value, json};
use tulip::engine::{ModelInfo, Side, Task};

use crate::support::{TestGateway, info};

const COHERE: &str = "/results/0/relevance_score";
const LONG: &str = "w1 w2 w3 w4";

fn gateway(task: Task, width: usize, truncation_side: Side) -> TestGateway {
    TestGateway::start(ModelInfo {
        truncation_side,
        max_sequence_tokens: 5,
        ..info(task, width)
    })
}

/// The number of the text is that of what is left of it; `at` is where it stands in the answer.
async fn check(gateway: &TestGateway, path: &str, at: &str, long: Value, cut: Value) {
    let whole = gateway.post(path, &cut).await.json(200);
    let answer = gateway.post(path, &long).await;
    assert_eq!(answer.header("x-truncated").len(), "0:4>1".len(), "{path}");
    let expected = whole.pointer(at).unwrap();
    assert_eq!(answer.json(200).pointer(at).unwrap(), expected, "{path}");
}

async fn check_pairs(gateway: &TestGateway, kept: &str) {
    let tei = |text: &str| json!({"query": "w9", "texts": [text]});
    check(gateway, "/rerank", "/0/score", tei(LONG), tei(kept)).await;
    let cohere = |text: &str| json!({"query": "w9", "documents": [text]});
    check(gateway, "/v1/rerank", COHERE, cohere(LONG), cohere(kept)).await;
    check(gateway, "/v2/rerank", COHERE, cohere(LONG), cohere(kept)).await;
    let vllm = |text: &str| json!({"text_1": "w9", "text_2": [text], "truncate_prompt_tokens": -1});
    check(gateway, "/score", "/data/0/score", vllm(LONG), vllm(kept)).await;
}

async fn check_singles(gateway: &TestGateway, kept: &str) {
    let tei = |text: &str| json!({"inputs": [text]});
    check(gateway, "/embed", "/0", tei(LONG), tei(kept)).await;
    let openai = |text: &str| json!({"input": [text], "model": "m"});
    check(
        gateway,
        "/v1/embeddings",
        "/data/0/embedding",
        openai(LONG),
        openai(kept),
    )
    .await;
}

#[tokio::test]
async fn the_models_own_where_the_request_says_nothing() {
    for (side, one, three) in [
        (Side::Left, "w4", "w2 w3 w4"),
        (Side::Right, "w1", "w1 w2 w3"),
    ] {
        check_pairs(&gateway(Task::Score, 1, side), one).await;
        check_singles(&gateway(Task::Embed, 4, side), three).await;
        // Here the gateway tokenizes.
        let remote = gateway(Task::Score, 1, side).over_the_network().await;
        check_pairs(&remote, one).await;
        let remote = gateway(Task::Embed, 4, side).over_the_network().await;
        check_singles(&remote, three).await;
    }
}

#[tokio::test]
async fn a_request_that_says_it_wins() {
    let local = gateway(Task::Score, 1, Side::Left);
    let remote = gateway(Task::Score, 1, Side::Left).over_the_network().await;
    for gateway in [local, remote] {
        let body = |text: &str, side: &str| json!({"query": "w9", "texts": [text], "truncation_direction": side});
        check(
            &gateway,
            "/rerank",
            "/0/score",
            body(LONG, "right"),
            body("w1", "right"),
        )
        .await;
        check(
            &gateway,
            "/rerank",
            "/0/score",
            body(LONG, "left"),
            body("w4", "left"),
        )
        .await;
    }
}
