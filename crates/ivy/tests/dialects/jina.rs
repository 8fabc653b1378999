//! Jina: `/v1/rerank` and the fields it adds to `/v1/embeddings`.

use serde_json::json;

use crate::support::{embedder, reranker};

#[tokio::test]
async fn rerank() {
    let gateway = reranker();
    let body = json!({"model": "jina-reranker-v2-base-multilingual", "query": {"text": "w1"},
        "documents": ["w2", {"text": "w3 w4"}, "w5"], "top_n": 2});
    let answer = gateway.post("/v1/rerank", body).await;
    let expected = json!({
        "id": "r1",
        "model": "fake",
        "results": [
            {"index": 1, "relevance_score": 0.9583, "document": {"text": "w3 w4"}},
            {"index": 2, "relevance_score": 0.9436, "document": {"text": "w5"}},
        ],
        "meta": {
            "api_version": {"version": "1"},
            "billed_units": {"search_units": 1},
            "tokens": {"input_tokens": 16, "output_tokens": 0},
        },
        "usage": {"prompt_tokens": 16, "total_tokens": 16},
    });
    assert_eq!(answer.json(200), expected);
}

#[tokio::test]
async fn rerank_without_documents() {
    let gateway = reranker();
    let body = json!({"query": "w1", "documents": ["w5", "w2", "w5"], "return_documents": false});
    let answer = gateway.post("/v1/rerank", body).await.json(200);
    // Ties by index.
    let expected = json!([
        {"index": 0, "relevance_score": 0.9436},
        {"index": 2, "relevance_score": 0.9436},
        {"index": 1, "relevance_score": 0.1528},
    ]);
    assert_eq!(answer["results"], expected);
}

#[tokio::test]
async fn rerank_invalid() {
    let gateway = reranker();
    let cases = [
        (
            json!({"query": "w1", "documents": []}),
            "documents: must not be empty",
        ),
        (
            json!({"query": {"image": "x"}, "documents": ["w2"]}),
            "query: images are not supported",
        ),
        (
            json!({"query": "w1", "documents": ["w2", {"title": "w3"}]}),
            "documents[1]: has no text",
        ),
        (
            json!({"query": "w1", "documents": "w2"}),
            "documents: invalid type: string \"w2\", expected a sequence at line 1 column 17",
        ),
    ];
    for (body, message) in cases {
        let answer = gateway.post("/v1/rerank", body).await;
        assert_eq!(
            answer.json(422),
            json!({"detail": message, "message": message})
        );
    }
}

#[tokio::test]
async fn embeddings() {
    let gateway = embedder();
    let body = json!({"model": "jina-embeddings-v3", "task": "retrieval.query",
        "input": ["w5", {"text": "w5"}], "normalized": true, "embedding_type": "float"});
    let answer = gateway.post("/v1/embeddings", body).await;
    let embedding = json!([-0.5735, 0.1146, -0.5589, -0.5879]);
    let expected = json!({
        "object": "list",
        "data": [
            {"object": "embedding", "index": 0, "embedding": embedding},
            {"object": "embedding", "index": 1, "embedding": embedding},
        ],
        "model": "fake",
        "usage": {"prompt_tokens": 8, "total_tokens": 8},
    });
    assert_eq!(answer.json(200), expected);

    // Any of the model's prompts is a task.
    let body = json!({"input": "w5", "task": "sts", "embedding_type": "ubinary"});
    let answer = gateway.post("/v1/embeddings", body).await.json(200);
    assert_eq!(answer["data"][0]["embedding"], json!([0b1001_0000]));
}

#[tokio::test]
async fn embeddings_invalid() {
    let gateway = embedder();
    let body = json!({"input": "w5", "task": "text-matching", "late_chunking": true});
    let answer = gateway.post("/v1/embeddings", body).await;
    let message = "late_chunking: is not supported, must be false";
    assert_eq!(
        answer.json(422),
        json!({"detail": message, "message": message})
    );
}
