//! Failures that do not depend on the dialect's fields, in the words of each family.

mod request;
mod service;

use serde_json::{Value, json};

use crate::support::{Answer, TestGateway};

/// One path of each family, with a body that is right.
fn routes() -> [(&'static str, Value); 6] {
    let pair = json!({"query": "w1", "documents": ["w2"]});
    let mut voyage = pair.clone();
    voyage["truncation"] = true.into();
    [
        ("openai /v1/embeddings", json!({"input": "w1"})),
        ("cohere /v2/rerank", pair.clone()),
        ("jina /v1/rerank", pair),
        ("voyage /v1/rerank", voyage),
        ("tei /rerank", json!({"query": "w1", "texts": ["w2"]})),
        ("vllm /score", json!({"text_1": "w1", "text_2": "w2"})),
    ]
}

fn path(route: &str) -> &str {
    route.split(' ').nth(1).unwrap()
}

/// The same message in the six shapes; `kinds` are OpenAI's type and code, vLLM's type, TEI's.
fn shapes(message: &str, code: u16, kinds: [Option<&str>; 4]) -> [Value; 6] {
    let [openai_type, openai_code, vllm, tei] = kinds;
    let mut openai = json!({"error": {"message": message, "type": openai_type}});
    if let Some(code) = openai_code {
        openai["error"]["code"] = code.into();
    }
    [
        openai,
        json!({"id": "r1", "message": message}),
        json!({"detail": message, "message": message}),
        json!({"detail": message}),
        json!({"error": message, "error_type": tei}),
        json!({"error": {"message": message, "type": vllm, "code": code}}),
    ]
}

/// The same before the body's fields are known: a path that families share answers for all of them.
fn shapes_by_path(message: &str, code: u16, kinds: [Option<&str>; 4]) -> [Value; 6] {
    let mut shapes = shapes(message, code, kinds);
    shapes[0]["detail"] = message.into();
    shapes[3] = shapes[2].clone();
    shapes
}

/// The answers of all families, Voyage's by its own fields, to right requests.
async fn all(gateway: &TestGateway, headers: &[(&str, &str)]) -> Vec<Answer> {
    let mut answers = Vec::new();
    for (route, body) in routes() {
        answers.push(gateway.post_with(path(route), headers, body).await);
    }
    answers
}

const INVALID: [Option<&str>; 4] = [
    Some("invalid_request_error"),
    None,
    Some("BadRequestError"),
    Some("Validation"),
];
