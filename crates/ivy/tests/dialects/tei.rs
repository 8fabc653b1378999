//! Text Embeddings Inference.

use serde_json::{Value, json};

use crate::support::{classifier, embedder, reranker};

#[tokio::test]
async fn rerank() {
    let gateway = reranker();
    let body = json!({"query": "w1", "texts": ["w2", "w3 w4", "w5"]});
    let answer = gateway.post("/rerank", body).await;
    let expected = json!([
        {"index": 1, "score": 0.9583},
        {"index": 2, "score": 0.9436},
        {"index": 0, "score": 0.1528},
    ]);
    assert_eq!(answer.json(200), expected);
    assert_eq!(answer.header("x-compute-tokens"), "16");
    assert_eq!(answer.header("x-compute-characters"), "11");
    assert_eq!(answer.header("x-compute-type"), "gpu");
    assert_eq!(answer.header("x-model-fingerprint"), "fake-fingerprint");
    assert_eq!(answer.header("x-request-id"), "r1");
    for name in [
        "x-total-time",
        "x-tokenization-time",
        "x-queue-time",
        "x-inference-time",
        "x-compute-time",
    ] {
        answer
            .header(name)
            .parse::<u64>()
            .unwrap_or_else(|_| panic!("{name}"));
    }
    let timing = answer.header("server-timing");
    for name in ["total;dur=", "tokenize;dur=", "queue;dur=", "compute;dur="] {
        assert!(timing.contains(name), "{timing}");
    }
}

#[tokio::test]
async fn rerank_raw_with_text() {
    let gateway = reranker();
    let body = json!({"query": "w1", "texts": ["w2", "w3 w4"], "raw_scores": true,
        "return_text": true, "truncate": null});
    let answer = gateway.post("/rerank", body).await;
    let expected = json!([
        {"index": 1, "text": "w3 w4", "score": 3.1348},
        {"index": 0, "text": "w2", "score": -1.7125},
    ]);
    assert_eq!(answer.json(200), expected);
}

#[tokio::test]
async fn rerank_truncation() {
    let gateway = reranker();
    let long = ["w2 ".repeat(508), "w3".to_owned()].concat();
    let mut body = json!({"query": "w1", "texts": ["w2", long]});
    let answer = gateway.post("/rerank", &body).await;
    answer.json(200);
    assert_eq!(answer.header("x-truncated"), "1:509>508");
    body["truncation_direction"] = "Left".into();
    let answer = gateway.post("/rerank", &body).await;
    answer.json(200);
    assert_eq!(answer.header("x-truncated"), "1:509>508");
    body["truncate"] = false.into();
    let answer = gateway.post("/rerank", &body).await;
    let expected = json!({
        "error": "`texts[1]` at least 513 tokens with special tokens, limit 512", "error_type": "Validation"});
    assert_eq!(answer.json(422), expected);
}

#[tokio::test]
async fn embed() {
    let gateway = embedder();
    let one = json!([[0.8418, -0.0939, -0.5041, -0.169]]);
    let answer = gateway.post("/embed", json!({"inputs": "w1"})).await;
    assert_eq!(answer.json(200), one);
    let answer = gateway
        .post(
            "/embed",
            json!({"inputs": ["w1", [6, 7]], "truncate": true}),
        )
        .await;
    let two = json!([
        [0.8418, -0.0939, -0.5041, -0.169],
        [0.9, -0.1884, 0.127, -0.3721]
    ]);
    assert_eq!(answer.json(200), two);
    let answer = gateway
        .post("/embed", json!({"inputs": "w5", "prompt_name": "sts"}))
        .await;
    assert_eq!(
        answer.json(200),
        json!([[0.4174, -0.6126, -0.6711, 0.0091]])
    );
    let answer = gateway
        .post("/embed", json!({"inputs": "w1", "dimensions": 2}))
        .await;
    assert_eq!(answer.json(200), json!([[0.9938, -0.1109]]));
}

#[tokio::test]
async fn embed_invalid() {
    let gateway = embedder();
    let cases = [
        (
            json!({"inputs": []}),
            400,
            "`inputs` cannot be empty",
            "Empty",
        ),
        (
            json!({"inputs": "w1", "prompt_name": "no"}),
            422,
            "`prompt_name` \"no\" is no prompt of this model, known are [\"document\", \"query\", \"sts\"]",
            "Validation",
        ),
        (
            json!({"inputs": "w1", "normalize": false}),
            422,
            "`normalize` is NONE, but this model itself normalizes its vectors",
            "Validation",
        ),
        (
            json!({"inputs": "w1", "truncation_direction": "up"}),
            422,
            "`truncation_direction` must be left or right, is \"up\"",
            "Validation",
        ),
    ];
    for (body, status, error, error_type) in cases {
        let answer = gateway.post("/embed", body).await;
        assert_eq!(
            answer.json(status),
            json!({"error": error, "error_type": error_type})
        );
    }
    for (path, kind) in [("/embed_all", "tokens"), ("/embed_sparse", "sparse")] {
        let answer = gateway.post(path, json!({"inputs": "w1"})).await;
        let error = format!("model: \"fake\" gives dense vectors, not {kind}");
        assert_eq!(
            answer.json(424),
            json!({"error": error, "error_type": "Backend"})
        );
    }
}

#[tokio::test]
async fn predict() {
    let gateway = classifier();
    let w1: Value = json!([
        {"score": 0.9746, "label": "bad"},
        {"score": 0.0214, "label": "good"},
        {"score": 0.004, "label": "fine"},
    ]);
    let pair: Value = json!([
        {"score": 0.9879, "label": "good"},
        {"score": 0.0074, "label": "bad"},
        {"score": 0.0047, "label": "fine"},
    ]);
    let answer = gateway.post("/predict", json!({"inputs": "w1"})).await;
    assert_eq!(answer.json(200), w1);
    let answer = gateway
        .post("/predict", json!({"inputs": ["w1", "w2"]}))
        .await;
    assert_eq!(answer.json(200), pair);
    let body = json!({"inputs": [["w1"], ["w1", "w2"], ["w1"], ["w1"]]});
    let answer = gateway.post("/predict", body).await;
    assert_eq!(answer.json(200), json!([w1, pair, w1, w1]));
    let answer = gateway
        .post("/predict", json!({"inputs": ["w2 w3"], "raw_scores": true}))
        .await;
    let raw = json!([
        {"score": 2.7664, "label": "bad"},
        {"score": 0.3904, "label": "fine"},
        {"score": -0.5791, "label": "good"},
    ]);
    assert_eq!(answer.json(200), raw);
}

#[tokio::test]
async fn predict_with_one_label() {
    let gateway = reranker();
    let answer = gateway
        .post("/predict", json!({"inputs": [["w1", "w2"], ["w1", "w5"]]}))
        .await;
    let expected = json!([
        [{"score": 0.1528, "label": "LABEL_0"}],
        [{"score": 0.9436, "label": "LABEL_0"}],
    ]);
    assert_eq!(answer.json(200), expected);
}

#[tokio::test]
async fn predict_invalid() {
    let gateway = classifier();
    let answer = gateway.post("/predict", json!({"inputs": []})).await;
    let expected = json!({"error": "`inputs` cannot be empty", "error_type": "Empty"});
    assert_eq!(answer.json(400), expected);
    let answer = gateway
        .post("/predict", json!({"inputs": ["a", "b", "c"]}))
        .await;
    let error = "`inputs` invalid length 3, expected one or two strings at line 1 column 23";
    assert_eq!(
        answer.json(422),
        json!({"error": error, "error_type": "Validation"})
    );
    let answer = embedder().post("/predict", json!({"inputs": "a"})).await;
    let expected = json!({"error": "fake gives vectors, not labels", "error_type": "Backend"});
    assert_eq!(answer.json(424), expected);
}

#[tokio::test]
async fn similarity() {
    let gateway = embedder();
    let body = json!({"inputs": {"source_sentence": "w1", "sentences": ["w1", "w2 w3"]}});
    let answer = gateway.post("/similarity", body).await;
    assert_eq!(answer.json(200), json!([1.0, 0.7741]));
    let body = json!({"inputs": {"source_sentence": "w1", "sentences": []}});
    let answer = gateway.post("/similarity", body).await;
    let expected = json!({"error": "`sentences` cannot be empty", "error_type": "Empty"});
    assert_eq!(answer.json(400), expected);
}

#[tokio::test]
async fn tokenize_and_decode() {
    let gateway = embedder();
    let answer = gateway.post("/tokenize", json!({"inputs": "w1 zz"})).await;
    let expected = json!([[
        {"id": 2, "text": "[CLS]", "special": true},
        {"id": 5, "text": "w1", "special": false, "start": 0, "stop": 2},
        {"id": 1, "text": "zz", "special": true, "start": 3, "stop": 5},
        {"id": 3, "text": "[SEP]", "special": true},
    ]]);
    assert_eq!(answer.json(200), expected);
    let body = json!({"inputs": ["w2", ""], "add_special_tokens": false, "prompt_name": "query"});
    let answer = gateway.post("/tokenize", body).await;
    let expected = json!([
        [
            {"id": 5, "text": "w1", "special": false, "start": 0, "stop": 2},
            {"id": 6, "text": "w2", "special": false, "start": 3, "stop": 5},
        ],
        [{"id": 5, "text": "w1", "special": false, "start": 0, "stop": 2}],
    ]);
    assert_eq!(answer.json(200), expected);

    let answer = gateway.post("/decode", json!({"ids": [2, 5, 6, 3]})).await;
    assert_eq!(answer.json(200), json!(["w1 w2"]));
    let body = json!({"ids": [[2, 5], [6]], "skip_special_tokens": false});
    let answer = gateway.post("/decode", body).await;
    assert_eq!(answer.json(200), json!(["[CLS] w1", "w2"]));
    let answer = gateway.post("/decode", json!({"ids": []})).await;
    let expected = json!({"error": "`ids` cannot be empty", "error_type": "Empty"});
    assert_eq!(answer.json(400), expected);
}

#[tokio::test]
async fn info() {
    let version = env!("CARGO_PKG_VERSION");
    let mut expected = json!({
        "model_id": "fake",
        "model_sha": "fake-fingerprint",
        "model_dtype": "float32",
        "served_model_name": "fake",
        "model_type": {"embedding": {"pooling": "mean"}},
        "max_concurrent_requests": 4096,
        "max_input_length": 512,
        "max_batch_tokens": 16384,
        "max_client_batch_size": 10000,
        "auto_truncate": true,
        "tokenization_workers": 2,
        "version": version,
    });
    assert_eq!(embedder().get("/info").await.json(200), expected);
    expected["model_type"] = json!({"reranker": {
        "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}});
    assert_eq!(reranker().get("/info").await.json(200), expected);
    expected["model_type"] = json!({"classifier": {
        "id2label": {"0": "bad", "1": "good", "2": "fine"},
        "label2id": {"bad": 0, "good": 1, "fine": 2}}});
    assert_eq!(classifier().get("/info").await.json(200), expected);
}

#[tokio::test]
async fn root_is_what_the_model_is_for() {
    let body = json!({"inputs": "w5"});
    let gateway = embedder();
    let embedded = gateway.post("/embed", &body).await.json(200);
    assert_eq!(gateway.post("/", &body).await.json(200), embedded);
    let gateway = classifier();
    let predicted = gateway.post("/predict", &body).await.json(200);
    assert_eq!(gateway.post("/", &body).await.json(200), predicted);
    let gateway = reranker();
    let body = json!({"query": "w1", "texts": ["w2", "w3"]});
    let ranked = gateway.post("/rerank", &body).await.json(200);
    assert_eq!(gateway.post("/", &body).await.json(200), ranked);
}
