//! OpenAI: `/v1/embeddings` and `/v1/models`.

use serde_json::json;

use crate::support::{embedder, reranker};

#[tokio::test]
async fn embeddings() {
    let gateway = embedder();
    let body = json!({"model": "text-embedding-3-small", "input": ["w1", "w2 w3"], "user": "u"});
    for path in ["/v1/embeddings", "/embeddings"] {
        let answer = gateway.post(path, &body).await;
        let expected = json!({
            "object": "list",
            "data": [
                {"object": "embedding", "index": 0, "embedding": [0.8418, -0.0939, -0.5041, -0.169]},
                {"object": "embedding", "index": 1, "embedding": [0.9, -0.1884, 0.127, -0.3721]},
            ],
            "model": "fake",
            "usage": {"prompt_tokens": 7, "total_tokens": 7},
        });
        assert_eq!(answer.json(200), expected);
    }
}

#[tokio::test]
async fn every_form_of_input() {
    let gateway = embedder();
    let embedding = json!([0.9, -0.1884, 0.127, -0.3721]);
    for input in [
        json!("w2 w3"),
        json!(["w2 w3"]),
        json!([6, 7]),
        json!([[6, 7]]),
        json!(["w2 \u{0020}w3"]),
    ] {
        let answer = gateway
            .post("/v1/embeddings", json!({"input": input}))
            .await
            .json(200);
        let expected = json!([{"object": "embedding", "index": 0, "embedding": embedding}]);
        assert_eq!(answer["data"], expected, "{input}");
    }
}

#[tokio::test]
async fn base64_and_dimensions() {
    let gateway = embedder();
    let body = json!({"input": "w1", "encoding_format": "base64"});
    let answer = gateway.post("/v1/embeddings", body).await.json(200);
    assert_eq!(answer["data"][0]["embedding"], "9n1XP1xKwL1wCQG/YgQtvg==");

    let body = json!({"input": "w1", "dimensions": 2});
    let answer = gateway.post("/v1/embeddings", body).await.json(200);
    assert_eq!(answer["data"][0]["embedding"], json!([0.9938, -0.1109]));
}

#[tokio::test]
async fn over_long_inputs() {
    let gateway = embedder();
    let long = "w2 ".repeat(511);
    let answer = gateway
        .post("/v1/embeddings", json!({"input": ["w1", long]}))
        .await;
    assert_eq!(answer.json(200)["usage"]["total_tokens"], 515);
    assert_eq!(answer.header("x-truncated"), "1:511>510");

    let body = json!({"input": ["w1 w2 w3"], "truncate_prompt_tokens": 4});
    let answer = gateway.post("/v1/embeddings", body).await;
    assert_eq!(answer.json(200)["usage"]["total_tokens"], 4);
    assert_eq!(answer.header("x-truncated"), "0:3>2");
}

#[tokio::test]
async fn lone_surrogates_and_nul() {
    let gateway = embedder();
    let whole = gateway
        .post("/v1/embeddings", r#"{"input": ["\ufffd", "w1\u0000"]}"#)
        .await;
    let half = gateway
        .post("/v1/embeddings", r#"{"input": ["\ud83d", "w1\u0000"]}"#)
        .await;
    assert_eq!(half.json(200), whole.json(200));
}

#[tokio::test]
async fn invalid() {
    let gateway = embedder();
    let cases = [
        (
            json!({"input": []}),
            "input: must not be empty",
            Some("input"),
        ),
        (
            json!({"input": "w1", "encoding_format": "hex"}),
            "encoding_format: must be float or base64, is \"hex\"",
            Some("encoding_format"),
        ),
        (
            json!({"input": "w1", "dimensions": 3}),
            "dimensions: is 3, this model has 4 and can be cut to [2]",
            Some("dimensions"),
        ),
        (
            json!({"input": "w1", "dimensions": 0}),
            "dimensions: must be at least 1, is 0",
            Some("dimensions"),
        ),
        (
            json!({"input": "w1", "dimensions": 4_294_967_298_u64}),
            "dimensions: must be at most 4294967295, is 4294967298",
            Some("dimensions"),
        ),
        (
            json!({"input": "w1", "truncate_prompt_tokens": 2}),
            "truncate_prompt_tokens: is 2, must be at least 3: 2 special tokens and one of the text",
            Some("truncate_prompt_tokens"),
        ),
        (
            json!({"input": [[4, 100]]}),
            "input[0].token_ids[1]: is 100, must be below vocab_size=100",
            Some("input[0].token_ids[1]"),
        ),
        (
            json!({"input": 5}),
            "input: invalid type: integer `5`, expected a string, a list of strings, token ids or lists of token ids at line 1 column 10",
            Some("input"),
        ),
        (json!({}), "missing field `input` at line 1 column 2", None),
    ];
    for (body, message, param) in cases {
        let answer = gateway.post("/v1/embeddings", body).await;
        let mut expected = json!({"error": {"message": message, "type": "invalid_request_error"}});
        if let Some(param) = param {
            expected["error"]["param"] = param.into();
        }
        assert_eq!(answer.json(400), expected);
    }
}

#[tokio::test]
async fn a_reranker_gives_no_vectors() {
    let gateway = reranker();
    let answer = gateway.post("/v1/embeddings", json!({"input": "w1"})).await;
    let expected = json!({"error": {
        "message": "Embed: fake gives scores, not vectors",
        "type": "invalid_request_error",
    }});
    assert_eq!(answer.json(400), expected);
}

#[tokio::test]
async fn models() {
    let gateway = embedder();
    let mut list = gateway.get("/v1/models").await.json(200);
    let created = list["data"][0]["created"].take();
    assert!(created.as_u64().unwrap() > 1_700_000_000, "{created}");
    let entry = json!({"id": "fake", "object": "model", "created": null, "owned_by": "rose"});
    assert_eq!(list, json!({"object": "list", "data": [entry]}));

    let mut one = gateway.get("/v1/models/fake").await.json(200);
    one["created"].take();
    assert_eq!(one, entry);
    let missing = gateway.get("/v1/models/org/other").await;
    let expected = json!({"error": {
        "message": "model: \"org/other\" is not served here",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }});
    assert_eq!(missing.json(404), expected);
}
