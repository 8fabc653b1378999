//! Documents whose probabilities are one float are ranked by their logits.

use std::sync::Arc;

use ivy::{Fleet, FleetConfig, GatewayConfig};
use serde_json::{Value, json};
use tulip::config::ServerConfig;
use tulip::engine::Task;
use tulip::fake_engine::FakeEngine;
use tulip::sequence::Sequence;

use crate::support::{TestGateway, info};

/// The number of the last word.
fn row(sequence: &Sequence) -> Vec<f32> {
    let ids = &sequence.token_ids;
    vec![(ids[ids.len() - 2] - 4) as f32]
}

fn gateway(config: ServerConfig) -> TestGateway {
    let engine = FakeEngine::new(info(Task::Score, 1)).with_rows(row);
    TestGateway::with(engine, config, GatewayConfig::default())
}

async fn check(gateway: &TestGateway) {
    let documents = ["w20", "w25", "w30", "w25", "w1"];
    let body = json!({"query": "w0", "documents": documents});
    for path in ["/v1/rerank", "/v2/rerank"] {
        let answer = gateway.post(path, &body).await.json(200);
        let results = answer["results"].as_array().unwrap();
        let field = |name: &str| results.iter().map(|one| one[name].clone()).collect();
        let (indices, scores): (Value, Value) = (field("index"), field("relevance_score"));
        assert_eq!(indices, json!([2, 1, 3, 0, 4]), "ties by index");
        assert_eq!(scores, json!([1.0, 1.0, 1.0, 1.0, 0.7311]));
    }
    let body = json!({"query": "w0", "documents": documents, "top_n": 2});
    let answer = gateway.post("/v1/rerank", &body).await.json(200);
    assert_eq!(answer["results"][0]["index"], 2);
    assert_eq!(answer["results"].as_array().unwrap().len(), 2);
    let body = json!({"query": "w0", "texts": documents});
    let answer = gateway.post("/rerank", &body).await.json(200);
    let indices: Vec<&Value> = answer
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["index"])
        .collect();
    assert_eq!(indices, [2, 1, 3, 0, 4]);
}

#[tokio::test]
async fn in_the_process_and_over_the_network() {
    check(&gateway(ServerConfig::default())).await;
    check(&gateway(ServerConfig::default()).over_the_network().await).await;
}

#[tokio::test]
async fn in_parts() {
    // Replicas take no more than two documents at once.
    let replica = || {
        gateway(ServerConfig {
            max_items_per_request: 2,
            ..ServerConfig::default()
        })
    };
    let (first, second) = (replica(), replica());
    let replicas = [&first, &second].map(|one| one.server.local_addr().to_string());
    let config = FleetConfig {
        replicas: replicas.iter().map(|one| one.parse().unwrap()).collect(),
        ..FleetConfig::default()
    };
    let fleet = Arc::new(Fleet::start(config).unwrap());
    fleet.ready().await;
    check(&first.with_backend(fleet)).await;
}
