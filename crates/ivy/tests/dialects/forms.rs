//! Sparse vectors and vectors of tokens over HTTP, in the process and over the network.

use serde_json::{Value, json};
use tulip::config::ServerConfig;
use tulip::engine::{ModelInfo, Output, Outputs, Similarity, Task};
use tulip::fake_engine::FakeEngine;

use crate::support::{TestGateway, info};

/// `[CLS]` and `[SEP]`.
const SPECIAL: [u32; 2] = [2, 3];

fn sparse() -> ModelInfo {
    let mut info = info(Task::Embed, 6);
    info.outputs.kinds = vec![Output::Sparse];
    info.normalized = false;
    info.similarity = Similarity::Dot;
    info
}

fn tokens() -> ModelInfo {
    let mut info = info(Task::Embed, 3);
    info.outputs = Outputs {
        kinds: vec![Output::Tokens, Output::Sparse],
        dimensions: 2,
        skip_first_token: true,
        skip_token_ids: SPECIAL.to_vec(),
        ..Outputs::default()
    };
    info.layout.token_rows = true;
    info
}

async fn both(info: fn() -> ModelInfo) -> [TestGateway; 2] {
    let remote = TestGateway::start(info()).over_the_network().await;
    [TestGateway::start(info()), remote]
}

fn number(value: f32) -> f64 {
    (f64::from(value) * 1e4).round() / 1e4
}

#[tokio::test]
async fn a_sparse_model() {
    let row = |ids: &[u32]| FakeEngine::row(&sparse(), &ids.to_vec().into());
    let entries = |ids: &[u32]| -> Value {
        let row = row(ids);
        let above = row.iter().enumerate().filter(|(_, value)| **value > 0.0);
        above
            .map(|(index, &value)| json!({"index": index, "value": number(value)}))
            .collect()
    };
    for gateway in both(sparse).await {
        let body = json!({"inputs": ["w1", "", "w2 w3"]});
        let answer = gateway.post("/embed_sparse", body).await;
        let expected = json!([
            entries(&[2, 5, 3]),
            entries(&[2, 3]),
            entries(&[2, 6, 7, 3])
        ]);
        assert_eq!(answer.json(200), expected);
        // One text is one row.
        let answer = gateway.post("/embed_sparse", json!({"inputs": "w1"})).await;
        assert_eq!(answer.json(200), json!([entries(&[2, 5, 3])]));

        let body = json!({"query": "w1", "texts": ["w2", "w1"], "raw_scores": true});
        let answer = gateway.post("/rerank", body).await.json(200);
        let scores = answer.as_array().unwrap();
        let squares: f32 = row(&[2, 5, 3]).iter().map(|value| value * value).sum();
        let same = scores.iter().find(|score| score["index"] == 1).unwrap();
        let found = same["score"].as_f64().unwrap();
        assert!(
            (found - f64::from(squares)).abs() < 1e-3,
            "{found} {squares}"
        );

        let wrong = "model: \"fake\" gives sparse vectors, not dense";
        for (path, body) in [
            ("/embed", json!({"inputs": "w1"})),
            ("/", json!({"inputs": "w1"})),
            (
                "/similarity",
                json!({"inputs": {"source_sentence": "w1", "sentences": ["w2"]}}),
            ),
        ] {
            let answer = gateway.post(path, body).await;
            let expected = json!({"error": wrong, "error_type": "Backend"});
            assert_eq!(answer.json(424), expected, "{path}");
        }
        let body = json!({"input": "w1", "model": "m"});
        let answer = gateway.post("/v1/embeddings", body).await;
        assert!(
            answer
                .json(400)
                .to_string()
                .contains("gives sparse vectors")
        );
        for path in ["/v2/embed", "/v1/embed"] {
            let body = json!({"texts": ["w1"], "model": "m", "input_type": "search_query"});
            let answer = gateway.post(path, body).await;
            assert!(
                answer
                    .json(400)
                    .to_string()
                    .contains("gives sparse vectors")
            );
        }
        let answer = gateway.post("/embed_all", json!({"inputs": "w1"})).await;
        assert!(answer.json(424).to_string().contains("not tokens"));
        let answer = gateway
            .post("/embed_sparse", json!({"inputs": "w1", "dimensions": 2}))
            .await;
        let error = "`dimensions` is 2, but sparse vectors cannot be cut";
        let expected = json!({"error": error, "error_type": "Validation"});
        assert_eq!(answer.json(422), expected);
    }
}

#[tokio::test]
async fn a_model_of_token_vectors() {
    let vector = |id: u32| -> Value {
        let row = FakeEngine::row(&tokens(), &vec![id].into());
        row[..2].iter().map(|&value| number(value)).collect()
    };
    for gateway in both(tokens).await {
        let body = json!({"inputs": ["w1 w2", ""]});
        let answer = gateway.post("/embed_all", body).await;
        let expected = json!([[vector(5), vector(6), vector(3)], [vector(3)]]);
        assert_eq!(answer.json(200), expected);

        let answer = gateway
            .post("/embed_sparse", json!({"inputs": ["w1", ""]}))
            .await;
        let weight = FakeEngine::row(&tokens(), &vec![5].into())[2];
        let entry = json!({"index": 5, "value": number(weight)});
        let entries = if weight > 0.0 {
            vec![entry]
        } else {
            Vec::new()
        };
        assert_eq!(answer.json(200), json!([entries, []]));

        let status = gateway.get("/status").await.json(200);
        assert_eq!(status["models"][0]["outputs"], json!(["tokens", "sparse"]));
    }
}

#[tokio::test]
async fn vectors_that_are_too_many_are_refused() {
    let config = ServerConfig {
        max_message_bytes: 100_000,
        ..ServerConfig::default()
    };
    let start = || {
        let engine = FakeEngine::new(tokens());
        TestGateway::with(engine, config.clone(), ivy::GatewayConfig::default())
    };
    let inputs = vec!["w1 ".repeat(498); 30];
    for gateway in [start(), start().over_the_network().await] {
        let answer = gateway.post("/embed_all", json!({"inputs": &inputs})).await;
        let error = "`inputs` have 15000 tokens, whose vectors take 120000 bytes as float32, \
                     limit max_message_bytes=100000";
        let expected = json!({"error": error, "error_type": "Validation"});
        assert_eq!(answer.json(422), expected);
        let answer = gateway
            .post("/embed_all", json!({"inputs": &inputs[..20]}))
            .await;
        assert_eq!(answer.json(200).as_array().unwrap().len(), 20);
    }
}
