//! vLLM: `/score`, `/v1/score` and `/rerank` with documents.

use serde_json::{Value, json};

use crate::support::{TestGateway, reranker};

async fn scores(gateway: &TestGateway, body: Value) -> Value {
    let mut answer = gateway.post("/score", body).await.json(200);
    assert!(answer["created"].take().as_u64().unwrap() > 1_700_000_000);
    answer
}

fn expected(scores: &[f64], tokens: u64) -> Value {
    let data: Vec<Value> = scores
        .iter()
        .enumerate()
        .map(|(index, score)| json!({"index": index, "object": "score", "score": score}))
        .collect();
    json!({
        "id": "score-r1", "object": "list", "created": null, "model": "fake", "data": data,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    })
}

#[tokio::test]
async fn one_to_many_in_request_order() {
    let gateway = reranker();
    for (one, many) in [
        ("text_1", "text_2"),
        ("data_1", "data_2"),
        ("queries", "documents"),
        ("queries", "items"),
    ] {
        let body = json!({"model": "m", one: "w1", many: ["w2", "w3 w4", "w5"]});
        let answer = scores(&gateway, body).await;
        assert_eq!(answer, expected(&[0.1528, 0.9583, 0.9436], 16));
    }
    let answer = gateway
        .post("/v1/score", json!({"text_1": ["w1"], "text_2": "w2"}))
        .await;
    assert_eq!(
        answer.json(200)["data"],
        json!([{"index": 0, "object": "score", "score": 0.1528}])
    );
}

#[tokio::test]
async fn pair_by_pair() {
    let gateway = reranker();
    let body = json!({"text_1": ["w1", "w1", "w2", "w1"], "text_2": ["w2", "w5", "w3", "w2"]});
    let answer = scores(&gateway, body).await;
    assert_eq!(answer, expected(&[0.1528, 0.9436, 0.9406, 0.1528], 20));
}

#[tokio::test]
async fn raw_scores() {
    let gateway = reranker();
    let body = json!({"text_1": "w1", "text_2": ["w2"], "use_activation": false});
    let answer = scores(&gateway, body).await;
    assert_eq!(answer, expected(&[-1.7125], 5));
}

#[tokio::test]
async fn limits_cut_where_they_are_named() {
    let gateway = reranker();
    let body = json!({"text_1": "w1", "text_2": ["w5 w4 w3"], "max_tokens_per_doc": 1});
    let answer = scores(&gateway, body).await;
    assert_eq!(answer, expected(&[0.9436], 5));
    let body = json!({"text_1": "w1", "text_2": ["w3 w4 w5"], "truncate_prompt_tokens": 5, "truncation_side": "left"});
    let answer = scores(&gateway, body).await;
    assert_eq!(answer, expected(&[0.9436], 5));
    let long = "w2 ".repeat(509);
    let body = json!({"text_1": "w1", "text_2": ["w2", long], "truncate_prompt_tokens": -1});
    let answer = gateway.post("/score", body).await;
    assert_eq!(answer.json(200)["usage"]["total_tokens"], 5 + 512);
    assert_eq!(answer.header("x-truncated"), "1:509>508");
}

#[tokio::test]
async fn rerank() {
    let gateway = reranker();
    let body = json!({"model": "m", "query": "w1", "documents": ["w2", "w3 w4", "w5"], "top_n": 2});
    let answer = gateway.post("/rerank", &body).await;
    let expected = json!({
        "id": "rerank-r1",
        "model": "fake",
        "usage": {"prompt_tokens": 16, "total_tokens": 16},
        "results": [
            {"index": 1, "document": {"text": "w3 w4"}, "relevance_score": 0.9583},
            {"index": 2, "document": {"text": "w5"}, "relevance_score": 0.9436},
        ],
    });
    assert_eq!(answer.json(200), expected);
    let body = json!({"query": "w1", "documents": ["w2", "w5"], "top_n": 0});
    let answer = gateway.post("/rerank", &body).await.json(200);
    assert_eq!(answer["results"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn invalid() {
    let gateway = reranker();
    let long = "w2 ".repeat(509);
    let cases = [
        (
            json!({"text_1": ["w1", "w2"], "text_2": ["w1", "w2", "w3"]}),
            "text_1: has 2 entries and text_2 has 3: must be 1:1, 1:N or N:N",
            Some("text_1"),
        ),
        (
            json!({"text_1": "w1"}),
            "text_2: is missing",
            Some("text_2"),
        ),
        (json!({"queries": "w1"}), "items: is missing", Some("items")),
        (
            json!({}),
            "text_1: is missing: give text_1 and text_2, or queries and documents",
            Some("text_1"),
        ),
        (
            json!({"text_1": "w1", "text_2": []}),
            "text_2: must not be empty",
            Some("text_2"),
        ),
        (
            json!({"text_1": "w1", "text_2": ["w2", long]}),
            "text_2[1]: at least 513 tokens with special tokens, limit 512",
            Some("text_2[1]"),
        ),
        (
            json!({"text_1": format!("{long}w3"), "text_2": ["w2"]}),
            "text_1: the query has at least 510 tokens, limit 509",
            Some("text_1"),
        ),
        (
            json!({"text_1": "w1", "text_2": ["w2"], "truncate_prompt_tokens": -2}),
            "truncate_prompt_tokens: must be at least 1, or -1, is -2",
            Some("truncate_prompt_tokens"),
        ),
        (
            json!({"text_1": "w1", "text_2": ["w2"], "truncation_side": "up"}),
            "truncation_side: must be left or right, is \"up\"",
            Some("truncation_side"),
        ),
        (
            json!({"text_1": "w1", "text_2": ["w2"], "instruction": "judge"}),
            "instruction: this model's template has no place for an instruction",
            Some("instruction"),
        ),
    ];
    for (body, message, param) in cases {
        let answer = gateway.post("/v1/score", body).await;
        let expected = json!({"error": {
            "message": message, "type": "BadRequestError", "param": param, "code": 400}});
        assert_eq!(answer.json(400), expected);
    }
    let answer = gateway
        .post("/rerank", json!({"query": 5, "documents": ["w2"]}))
        .await;
    let message = "query: invalid type: integer `5`, expected a string at line 1 column 29";
    let expected = json!({"error": {
        "message": message, "type": "BadRequestError", "param": "query", "code": 400}});
    assert_eq!(answer.json(400), expected);
}
