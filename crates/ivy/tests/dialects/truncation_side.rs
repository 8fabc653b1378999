//! A model whose tokenizer cuts the beginning off, for clients that say nothing of sides.

use serde_json::{Value, json};
use tulip::engine::{ModelInfo, Side, Task};

use crate::support::{TestGateway, info};

const RELEVANCE: &str = "/results/0/relevance_score";
const RELEVANCE_OF_DATA: &str = "/data/0/relevance_score";
const DENSE: &str = "/data/0/embedding";
const LONG: &str = "w1 w2 w3 w4";

fn gateway(task: Task, width: usize, truncation_side: Side) -> TestGateway {
    TestGateway::start(ModelInfo {
        truncation_side,
        max_sequence_tokens: 5,
        ..info(task, width)
    })
}

/// What stays of `LONG` where `kept` tokens do and this end is cut off.
fn kept(side: Side, tokens: usize) -> String {
    let words: Vec<&str> = LONG.split(' ').collect();
    match side {
        Side::Right => words[..tokens].join(" "),
        Side::Left => words[words.len() - tokens..].join(" "),
    }
}

fn other(side: Side) -> Side {
    match side {
        Side::Right => Side::Left,
        Side::Left => Side::Right,
    }
}

/// The number of the long text is that of the end that stays, and not that of the other end; `at`
/// is where it stands in the answer. `tokens` of the four stay.
async fn check(
    gateway: &TestGateway,
    path: &str,
    at: &str,
    body: impl Fn(&str) -> Value,
    side: Side,
    tokens: usize,
) {
    let long = gateway.post(path, &body(LONG)).await;
    let expected = format!("0:4>{tokens}");
    assert_eq!(long.header("x-truncated"), expected, "{path}");
    let long = long.json(200);
    let right = gateway.post(path, &body(&kept(side, tokens))).await;
    let wrong = gateway.post(path, &body(&kept(other(side), tokens))).await;
    assert_eq!(right.header("x-truncated"), "", "{path}");
    let (right, wrong) = (right.json(200), wrong.json(200));
    let number = |answer: &Value| answer.pointer(at).unwrap().clone();
    assert_eq!(number(&long), number(&right), "{path} {side:?}");
    assert_ne!(number(&long), number(&wrong), "{path} {side:?}");
    // Where the answer says which end is gone, it says this one.
    if let Some(warning) = long.pointer("/meta/warnings/0") {
        let gone = match side {
            Side::Right => "the end was cut off",
            Side::Left => "the beginning was cut off",
        };
        assert!(warning.as_str().unwrap().ends_with(gone), "{warning}");
    }
}

async fn check_pairs(gateway: &TestGateway, side: Side) {
    let tei = |text: &str| json!({"query": "w9", "texts": [text]});
    check(gateway, "/rerank", "/0/score", tei, side, 1).await;
    let cohere = |text: &str| json!({"query": "w9", "documents": [text]});
    check(gateway, "/v1/rerank", RELEVANCE, cohere, side, 1).await;
    check(gateway, "/v2/rerank", RELEVANCE, cohere, side, 1).await;
    let jina = |text: &str| json!({"query": "w9", "documents": [text], "truncation": true});
    check(gateway, "/v1/rerank", RELEVANCE_OF_DATA, jina, side, 1).await;
    let vllm = |text: &str| json!({"text_1": "w9", "text_2": [text], "truncate_prompt_tokens": -1});
    check(gateway, "/score", "/data/0/score", vllm, side, 1).await;
}

async fn check_singles(gateway: &TestGateway, side: Side) {
    let tei = |text: &str| json!({"inputs": [text]});
    check(gateway, "/embed", "/0", tei, side, 3).await;
    for extra in ["user", "truncation", "truncate"] {
        // OpenAI's request, and Voyage's and Jina's with a switch that names no side.
        let body = |text: &str| json!({"input": [text], "model": "m", extra: true});
        check(gateway, "/v1/embeddings", DENSE, body, side, 3).await;
    }
}

#[tokio::test]
async fn the_models_own_where_the_request_says_nothing() {
    for side in [Side::Left, Side::Right] {
        check_pairs(&gateway(Task::Score, 1, side), side).await;
        check_singles(&gateway(Task::Embed, 4, side), side).await;
        // Here the gateway tokenizes.
        let remote = gateway(Task::Score, 1, side).over_the_network().await;
        check_pairs(&remote, side).await;
        let remote = gateway(Task::Embed, 4, side).over_the_network().await;
        check_singles(&remote, side).await;
    }
}

const BOTH: [(Side, &str); 2] = [(Side::Left, "left"), (Side::Right, "right")];

#[tokio::test]
async fn a_request_that_says_it_wins() {
    for (own, _) in BOTH {
        let local = gateway(Task::Score, 1, own);
        let remote = gateway(Task::Score, 1, own).over_the_network().await;
        for gateway in [local, remote] {
            for (side, name) in BOTH {
                let tei = |text: &str| json!({"query": "w9", "texts": [text], "truncation_direction": name});
                check(&gateway, "/rerank", "/0/score", tei, side, 1).await;
                let vllm = |text: &str| {
                    json!({"text_1": "w9", "text_2": [text], "truncate_prompt_tokens": -1,
                           "truncation_side": name})
                };
                check(&gateway, "/score", "/data/0/score", vllm, side, 1).await;
            }
        }
    }
}

#[tokio::test]
async fn so_does_a_request_for_vectors() {
    for (own, _) in BOTH {
        let local = gateway(Task::Embed, 4, own);
        let remote = gateway(Task::Embed, 4, own).over_the_network().await;
        for gateway in [local, remote] {
            for (side, name) in BOTH {
                let tei = |text: &str| json!({"inputs": [text], "truncation_direction": name});
                check(&gateway, "/embed", "/0", tei, side, 3).await;
                let vllm = |text: &str| {
                    json!({"input": [text], "model": "m", "truncation_side": name,
                           "truncate_prompt_tokens": 4})
                };
                check(&gateway, "/v1/embeddings", DENSE, vllm, side, 2).await;
            }
        }
    }
}

#[tokio::test]
async fn an_unknown_side_is_refused_by_name() {
    let gateway = gateway(Task::Embed, 4, Side::Right);
    let body = json!({"input": ["w1"], "model": "m", "truncation_side": "middle"});
    let answer = gateway.post("/v1/embeddings", &body).await.json(400);
    let expected = "truncation_side: must be left or right, is \"middle\"";
    assert_eq!(answer["error"]["message"], expected);
    assert_eq!(answer["error"]["param"], "truncation_side");
}

/// Cohere documents `END` as the default, so there it is not the model's side that counts.
#[tokio::test]
async fn coheres_ends_are_those_of_the_text() {
    for (own, _) in BOTH {
        let local = gateway(Task::Embed, 4, own);
        let remote = gateway(Task::Embed, 4, own).over_the_network().await;
        for gateway in [local, remote] {
            for (truncate, side) in [
                (None, Side::Right),
                (Some("END"), Side::Right),
                (Some("START"), Side::Left),
            ] {
                let body = |text: &str| {
                    let mut body = json!({"texts": [text], "input_type": "search_document"});
                    if let Some(truncate) = truncate {
                        body["truncate"] = truncate.into();
                    }
                    body
                };
                check(&gateway, "/v2/embed", "/embeddings/float/0", body, side, 3).await;
                check(&gateway, "/v1/embed", "/embeddings/0", body, side, 3).await;
            }
        }
    }
}
