//! Cohere: `/v2/rerank`, `/v1/rerank` as its first version, `/v2/embed`, `/v1/embed`.

use serde_json::json;

use crate::support::{embedder, reranker};

#[tokio::test]
async fn rerank_v2() {
    let gateway = reranker();
    let body = json!({"model": "rerank-v3.5", "query": "w1", "documents": ["w2", "w3 w4", "w5"], "unknown": [1]});
    let answer = gateway.post("/v2/rerank", body).await;
    let expected = json!({
        "id": "r1",
        "results": [
            {"index": 1, "relevance_score": 0.9583},
            {"index": 2, "relevance_score": 0.9436},
            {"index": 0, "relevance_score": 0.1528},
        ],
        "meta": {
            "api_version": {"version": "2"},
            "billed_units": {"search_units": 1},
            "tokens": {"input_tokens": 16, "output_tokens": 0},
        },
    });
    assert_eq!(answer.json(200), expected);
}

#[tokio::test]
async fn rerank_v2_cuts_and_says_so() {
    let gateway = reranker();
    let body = json!({"query": "w1", "documents": ["w2", "w5 w4 w3", "w3 w4"], "top_n": 2,
        "max_tokens_per_doc": 1, "priority": 3});
    let answer = gateway.post("/v2/rerank", body).await;
    let expected = json!({
        "id": "r1",
        "results": [
            {"index": 1, "relevance_score": 0.9436},
            {"index": 2, "relevance_score": 0.2808},
        ],
        "meta": {
            "api_version": {"version": "2"},
            "billed_units": {"search_units": 1},
            "tokens": {"input_tokens": 15, "output_tokens": 0},
            "warnings": [
                "documents[1] was truncated: 1 of at least 3 tokens were used, the end was cut off",
                "documents[2] was truncated: 1 of at least 2 tokens were used, the end was cut off",
            ],
        },
    });
    assert_eq!(answer.json(200), expected);
    assert_eq!(answer.header("x-truncated"), "1:3>1, 2:2>1");
}

#[tokio::test]
async fn rerank_v2_invalid() {
    let gateway = reranker();
    let cases = [
        (
            json!({"query": "w1", "documents": []}),
            "invalid request: list of documents must not be empty",
        ),
        (
            json!({"query": " \t", "documents": ["w2"]}),
            "invalid request: query must not be empty or be only whitespace",
        ),
        (
            json!({"query": "w1", "documents": ["w2"], "top_n": 0}),
            "invalid request: top_n: must be at least 1, is 0",
        ),
        (
            json!({"query": "w1", "documents": ["w2"], "max_tokens_per_doc": -1}),
            "invalid request: max_tokens_per_doc: must be at least 1, is -1",
        ),
        (
            json!({"query": "w1", "documents": ["w2", 5]}),
            "invalid request: documents[1]: invalid type: integer `5`, expected a string at line 1 column 20",
        ),
        (
            json!({"documents": ["w2"]}),
            "invalid request: missing field `query` at line 1 column 20",
        ),
    ];
    for (body, message) in cases {
        let answer = gateway.post("/v2/rerank", body).await;
        assert_eq!(answer.json(400), json!({"id": "r1", "message": message}));
    }
}

#[tokio::test]
async fn rerank_v1() {
    let gateway = reranker();
    let sdk = [("x-fern-sdk-name", "cohere")];
    let body = json!({"query": "w1", "documents": ["w2", {"text": "w3 w4", "id": 7}], "top_n": 1});
    let answer = gateway.post_with("/v1/rerank", &sdk, &body).await;
    let mut expected = json!({
        "id": "r1",
        "model": "fake",
        "results": [{"index": 1, "relevance_score": 0.9583}],
        "meta": {
            "api_version": {"version": "1"},
            "billed_units": {"search_units": 1},
            "tokens": {"input_tokens": 11, "output_tokens": 0},
        },
        "usage": {"prompt_tokens": 11, "total_tokens": 11},
    });
    assert_eq!(answer.json(200), expected);

    let mut with_documents = body.clone();
    with_documents["return_documents"] = true.into();
    let answer = gateway.post_with("/v1/rerank", &sdk, with_documents).await;
    expected["results"][0]["document"] = json!({"text": "w3 w4", "id": 7});
    assert_eq!(answer.json(200), expected);
}

#[tokio::test]
async fn rerank_v1_reads_rank_fields() {
    let gateway = reranker();
    let body = json!({"query": "w1", "rank_fields": ["b"],
        "documents": [{"a": "w9", "b": "w2"}, {"a": "w9", "b": "w5"}]});
    let answer = gateway.post("/v1/rerank", body).await.json(200);
    let expected = json!([
        {"index": 1, "relevance_score": 0.9436},
        {"index": 0, "relevance_score": 0.1528},
    ]);
    assert_eq!(answer["results"], expected);

    let body = json!({"query": "w1", "rank_fields": ["c"], "documents": [{"b": "w2"}]});
    let answer = gateway.post("/v1/rerank", body).await;
    let message = "invalid request: documents[0]: has none of the rank_fields [\"c\"]";
    assert_eq!(answer.json(400), json!({"id": "r1", "message": message}));
}

#[tokio::test]
async fn embed_v2() {
    let gateway = embedder();
    let body = json!({"model": "embed-v4.0", "texts": ["w5"], "input_type": "search_query"});
    let answer = gateway.post("/v2/embed", body).await;
    let expected = json!({
        "id": "r1",
        "embeddings": {"float": [[-0.5735, 0.1146, -0.5589, -0.5879]]},
        "texts": ["w5"],
        "meta": {
            "api_version": {"version": "2"},
            "billed_units": {"input_tokens": 4},
            "tokens": {"input_tokens": 4, "output_tokens": 0},
        },
    });
    assert_eq!(answer.json(200), expected);
}

#[tokio::test]
async fn embed_v2_types() {
    let gateway = embedder();
    let body = json!({
        "inputs": [{"content": [{"type": "text", "text": "w5"}]}],
        "input_type": "search_document",
        "embedding_types": ["float", "int8", "uint8", "binary", "ubinary", "base64"],
    });
    let answer = gateway.post("/v2/embed", body).await.json(200);
    // Signs + + - -, packed from the top.
    let expected = json!({
        "float": [[0.1626, 0.2477, -0.9098, -0.2908]],
        "int8": [[21, 31, -116, -37]],
        "uint8": [[149, 159, 12, 91]],
        "binary": [[64]],
        "ubinary": [[192]],
        "base64": ["I3kmPjCkfT7C5Wi//eKUvg=="],
    });
    assert_eq!(answer["embeddings"], expected);
    assert_eq!(answer["texts"], json!(["w5"]));
}

#[tokio::test]
async fn embed_v2_invalid() {
    let gateway = embedder();
    let cases = [
        (json!({"texts": []}), "list of texts must not be empty"),
        (json!({}), "texts: is missing"),
        (
            json!({"texts": ["a"], "images": ["data:"]}),
            "images: are not supported",
        ),
        (
            json!({"texts": ["a"], "truncate": "MIDDLE"}),
            "truncate: must be NONE, START or END, is \"MIDDLE\"",
        ),
        (
            json!({"texts": ["a"], "embedding_types": ["float", "int4"]}),
            "embedding_types: must be float, int8, uint8, binary or ubinary, is \"int4\"",
        ),
        (
            json!({"texts": ["a"], "output_dimension": 3}),
            "output_dimension: is 3, this model has 4 and can be cut to [2]",
        ),
        (
            json!({"texts": ["a"], "output_dimension": 1_u64 << 40}),
            "output_dimension: must be at most 4294967295, is 1099511627776",
        ),
        (
            json!({"texts": ["a"], "max_tokens": 1}),
            "max_tokens: is 1, must be at least 3: 2 special tokens and one of the text",
        ),
        (
            json!({"texts": ["a"], "input_type": "query"}),
            "input_type: must be search_document, search_query, classification or clustering, is \"query\"",
        ),
        (
            json!({"texts": ["a", "w1 w2 w3"], "truncate": "NONE", "max_tokens": 4}),
            "texts[1]: at least 5 tokens with special tokens, limit 4",
        ),
    ];
    for (body, message) in cases {
        let answer = gateway.post("/v2/embed", body).await;
        let message = format!("invalid request: {message}");
        assert_eq!(answer.json(400), json!({"id": "r1", "message": message}));
    }
}

#[tokio::test]
async fn embed_v1() {
    let gateway = embedder();
    let body = json!({"model": "embed-v3.0", "texts": ["w5"], "input_type": "search_query"});
    let answer = gateway.post("/v1/embed", body.clone()).await;
    let expected = json!({
        "response_type": "embeddings_floats",
        "id": "r1",
        "embeddings": [[-0.5735, 0.1146, -0.5589, -0.5879]],
        "texts": ["w5"],
        "meta": {
            "api_version": {"version": "1"},
            "billed_units": {"input_tokens": 4},
            "tokens": {"input_tokens": 4, "output_tokens": 0},
        },
    });
    assert_eq!(answer.json(200), expected);
    let mut typed = body;
    typed["embedding_types"] = json!(["float"]);
    let answer = gateway.post("/v1/embed", typed).await.json(200);
    assert_eq!(answer["response_type"], "embeddings_by_type");
    let by_type = json!({"float": [[-0.5735, 0.1146, -0.5589, -0.5879]]});
    assert_eq!(answer["embeddings"], by_type);
    let answer = gateway.post("/v1/embed", json!({"texts": []})).await;
    let message = "invalid request: list of texts must not be empty";
    assert_eq!(answer.json(400), json!({"id": "r1", "message": message}));
}
