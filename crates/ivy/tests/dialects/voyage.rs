//! Voyage: told by the fields that only its clients send.

use serde_json::json;

use crate::support::{embedder, reranker};

#[tokio::test]
async fn rerank() {
    let gateway = reranker();
    let body = json!({"model": "rerank-2.5", "query": "w1", "documents": ["w2", "w3 w4", "w5"],
        "top_k": 2, "truncation": true});
    let answer = gateway.post("/v1/rerank", &body).await;
    let mut expected = json!({
        "object": "list",
        "data": [
            {"index": 1, "relevance_score": 0.9583},
            {"index": 2, "relevance_score": 0.9436},
        ],
        "model": "fake",
        "usage": {"prompt_tokens": 16, "total_tokens": 16},
    });
    assert_eq!(answer.json(200), expected);

    let mut with_documents = body.clone();
    with_documents["return_documents"] = true.into();
    let answer = gateway.post("/v1/rerank", with_documents).await;
    expected["data"][0]["document"] = "w3 w4".into();
    expected["data"][1]["document"] = "w5".into();
    assert_eq!(answer.json(200), expected);
}

#[tokio::test]
async fn rerank_invalid() {
    let gateway = reranker();
    let long = "w2 ".repeat(509);
    let cases = [
        (
            json!({"query": "w1", "documents": [], "truncation": true}),
            "documents: must not be empty",
        ),
        (
            json!({"query": "w1", "documents": ["w2"], "top_k": 0}),
            "top_k: must be at least 1, is 0",
        ),
        (
            json!({"query": "w1", "documents": ["w2", long], "truncation": false}),
            "documents[1]: at least 513 tokens with special tokens, limit 512",
        ),
    ];
    for (body, message) in cases {
        let answer = gateway.post("/v1/rerank", body).await;
        assert_eq!(answer.json(400), json!({"detail": message}));
    }
}

#[tokio::test]
async fn embeddings() {
    let gateway = embedder();
    // As its client asks: base64, whatever the type.
    let body = json!({"model": "voyage-3.5", "input": ["w5"], "input_type": "document",
        "truncation": true, "output_dtype": "int8", "encoding_format": "base64"});
    let answer = gateway.post("/v1/embeddings", body).await;
    let expected = json!({
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": "FR+M2w=="}],
        "model": "fake",
        "usage": {"prompt_tokens": 4, "total_tokens": 4},
    });
    assert_eq!(answer.json(200), expected);

    let body = json!({"input": "w5", "output_dimension": 2, "truncation": true});
    let answer = gateway.post("/v1/embeddings", body).await.json(200);
    assert_eq!(answer["data"][0]["embedding"], json!([-0.4365, 0.8997]));
}

#[tokio::test]
async fn embeddings_invalid() {
    let gateway = embedder();
    let cases = [
        (
            json!({"input": "w5", "output_dtype": "float64"}),
            "output_dtype: must be float, int8, uint8, binary or ubinary, is \"float64\"",
        ),
        (
            json!({"input": "w5", "truncation": true, "input_type": "both"}),
            "input_type: must be query or document, is \"both\"",
        ),
        (
            json!({"input": "w5", "output_dimension": 0}),
            "output_dimension: must be at least 1, is 0",
        ),
        (
            json!({"input": "w5", "output_dimension": 3}),
            "output_dimension: is 3, this model has 4 and can be cut to [2]",
        ),
    ];
    for (body, message) in cases {
        let answer = gateway.post("/v1/embeddings", body).await;
        assert_eq!(answer.json(400), json!({"detail": message}));
    }
}
