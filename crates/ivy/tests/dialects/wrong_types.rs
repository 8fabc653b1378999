//! An entry of a list that is no text is named by its place.

use serde_json::{Value, json};

use crate::support::{classifier, embedder, reranker};

fn bodies(list: &Value) -> [(&'static str, Value, &'static str); 11] {
    let inputs = json!({"source_sentence": "w1", "sentences": list});
    [
        (
            "/v1/rerank",
            json!({"query": "w1", "documents": list}),
            "documents[1]",
        ),
        (
            "/v2/rerank",
            json!({"query": "w1", "documents": list}),
            "documents[1]",
        ),
        (
            "/rerank",
            json!({"query": "w1", "documents": list}),
            "documents[1]",
        ),
        ("/rerank", json!({"query": "w1", "texts": list}), "texts[1]"),
        (
            "/score",
            json!({"text_1": "w1", "text_2": list}),
            "text_2[1]",
        ),
        ("/v2/embed", json!({"texts": list}), "texts[1]"),
        (
            "/similarity",
            json!({"inputs": inputs}),
            "inputs.sentences[1]",
        ),
        ("/tokenize", json!({"inputs": list}), "inputs[1]"),
        ("/predict", json!({"inputs": list}), "inputs[1]"),
        ("/embed", json!({"inputs": list}), "inputs[1]"),
        ("/v1/embeddings", json!({"input": list}), "input[1]"),
    ]
}

#[tokio::test]
async fn entries_are_named() {
    let (reranker, embedder, classifier) = (reranker(), embedder(), classifier());
    for wrong in [
        json!(null),
        json!(true),
        json!(1.5),
        json!({"x": 1}),
        json!([[]]),
    ] {
        for (path, body, place) in bodies(&json!(["w1", wrong, "w2"])) {
            // Lists beside texts are pairs to the one, token ids to the others.
            if wrong.is_array() && path == "/predict" {
                continue;
            }
            let gateway = match path {
                "/predict" => &classifier,
                "/rerank" | "/v1/rerank" | "/v2/rerank" | "/score" => &reranker,
                _ => &embedder,
            };
            let answer = gateway.post(path, &body).await;
            assert!(answer.status.is_client_error(), "{path} {wrong}");
            assert!(
                answer.text().contains(place),
                "{path} {wrong}: {}",
                answer.text()
            );
        }
    }
}

#[tokio::test]
async fn token_ids_among_texts() {
    let gateway = embedder();
    for (list, message) in [
        (json!(["w1", 5]), "entry 1 is a token id"),
        (json!([5, 6, "w1"]), "entry 2 is not one"),
    ] {
        let answer = gateway.post("/embed", json!({"inputs": list})).await;
        assert_eq!(answer.status, 422);
        assert!(answer.text().contains(message), "{}", answer.text());
    }
}
