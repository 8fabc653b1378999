//! What keeps a right request from its answer: nothing served, no room, no time, faults.

use ivy::GatewayConfig;
use serde_json::{Value, json};
use tulip::config::{SchedulerConfig, ServerConfig};
use tulip::engine::Task;
use tulip::fake_engine::{FakeEngine, FakeStep, Gate};

use super::{all, shapes, shapes_by_path};
use crate::support::{TestGateway, info, reranker};

#[tokio::test]
async fn nothing_served_yet() {
    let gateway = TestGateway::loading(ServerConfig::default(), GatewayConfig::default());
    let kinds = [
        Some("server_error"),
        Some("service_unavailable"),
        Some("ServiceUnavailableError"),
        Some("Unhealthy"),
    ];
    let expected = shapes("unavailable: loading", 503, kinds);
    for (answer, expected) in all(&gateway, &[]).await.iter().zip(expected) {
        assert_eq!(answer.json(503), expected);
        assert_eq!(
            (
                answer.header("retry-after"),
                answer.header("retry-after-ms")
            ),
            ("1", "1000")
        );
    }
    let answer = gateway.get("/health").await;
    let unhealthy = json!({"error": "unavailable: loading", "error_type": "Unhealthy"});
    assert_eq!(answer.json(503), unhealthy);
    assert_eq!(gateway.get("/health/live").await.status, 200);
    assert_eq!(gateway.get("/v1/models").await.json(200)["data"], json!([]));
}

#[tokio::test]
async fn draining() {
    let gateway = reranker();
    gateway.server.begin_drain();
    for answer in all(&gateway, &[]).await {
        assert_eq!(answer.status, 503, "{}", answer.text());
    }
    assert_eq!(gateway.get("/health").await.status, 503);
}

#[tokio::test(flavor = "multi_thread")]
async fn full_queue() {
    let gate = Gate::default();
    let engine = FakeEngine::new(info(Task::Score, 1)).with_gate(gate.clone());
    let config = ServerConfig {
        scheduler: SchedulerConfig {
            max_queued_tokens: 6,
            max_steps_in_flight: 1,
            ..SchedulerConfig::default()
        },
        ..ServerConfig::default()
    };
    let gateway = TestGateway::with(engine, config, GatewayConfig::default());
    let body = json!({"query": "w1", "texts": ["w2"]});
    // One waits at the gate, one in the queue: the next finds it full.
    let first = gateway.post("/rerank", &body);
    let second = async {
        tokio::task::block_in_place(|| gate.wait_for_step());
        gateway.post("/rerank", &body).await
    };
    let third = async {
        tokio::task::block_in_place(|| gate.wait_for_step());
        let mut answers = Vec::new();
        // The second takes its place within a moment.
        while answers.is_empty() {
            let found = gateway
                .post_with("/rerank", &[("x-request-timeout-ms", "50")], &body)
                .await;
            if found.status == 429 {
                answers = all(&gateway, &[]).await;
            }
        }
        gate.open();
        answers
    };
    let (first, second, answers) = tokio::join!(first, second, third);
    assert_eq!((first.status.as_u16(), second.status.as_u16()), (200, 200));
    let message = "queue full: 5 tokens wait, this request has 5, limit max_queued_tokens=6";
    let kinds = [
        Some("rate_limit_error"),
        Some("rate_limit_exceeded"),
        Some("RateLimitError"),
        Some("Overloaded"),
    ];
    let expected = shapes(message, 429, kinds);
    // A reranker gives no vectors, however full it is.
    for (answer, expected) in answers.iter().zip(expected).skip(1) {
        assert_eq!(answer.json(429), expected);
        assert!(answer.header("retry-after").parse::<u64>().unwrap() >= 1);
        answer.header("retry-after-ms").parse::<u64>().unwrap();
    }
}

#[tokio::test]
async fn deadlines() {
    let gate = Gate::default();
    let engine = FakeEngine::new(info(Task::Score, 1)).with_gate(gate.clone());
    let gateway = TestGateway::with(engine, ServerConfig::default(), GatewayConfig::default());
    let kinds = [
        Some("server_error"),
        Some("timeout"),
        Some("TimeoutError"),
        Some("Backend"),
    ];
    for name in ["x-request-timeout-ms", "request-timeout-ms"] {
        for (index, answer) in all(&gateway, &[(name, "20")])
            .await
            .iter()
            .enumerate()
            .skip(1)
        {
            let body = answer.json(504).to_string();
            assert!(body.contains("deadline exceeded after "), "{body}");
            let shape = shapes("", 504, kinds)[index].clone();
            let keys = |value: &Value| -> Vec<String> {
                value.as_object().unwrap().keys().cloned().collect()
            };
            assert_eq!(keys(&answer.json(504)), keys(&shape));
        }
    }
    let past = all(&gateway, &[("request-deadline-ms", "1000")]).await;
    let expected = shapes_by_path("deadline exceeded on arrival", 504, kinds);
    for (answer, expected) in past.iter().zip(expected) {
        assert_eq!(answer.json(504), expected);
    }
    let wrong = gateway
        .post_with("/score", &[("x-request-timeout-ms", "soon")], "{}")
        .await;
    let message = "x-request-timeout-ms: must be a whole number of milliseconds, is \"soon\"";
    assert_eq!(wrong.json(400)["error"]["message"], message);
    gate.open();
}

#[tokio::test]
async fn a_failed_step() {
    let steps = std::iter::repeat_n(FakeStep::Fail("boom".into()), 5);
    let engine = FakeEngine::new(info(Task::Score, 1)).with_script(steps);
    let gateway = TestGateway::with(engine, ServerConfig::default(), GatewayConfig::default());
    let kinds = [
        Some("server_error"),
        None,
        Some("InternalServerError"),
        Some("Backend"),
    ];
    let expected = shapes("internal: the step failed: boom", 500, kinds);
    for (index, (answer, expected)) in all(&gateway, &[])
        .await
        .iter()
        .zip(expected)
        .enumerate()
        .skip(1)
    {
        let status = if index == 4 { 424 } else { 500 };
        assert_eq!(answer.json(status), expected);
    }
}

#[tokio::test]
async fn one_bad_document_is_left_out_and_named() {
    let engine = FakeEngine::new(info(Task::Score, 1)).with_script([FakeStep::NotFinite(1)]);
    let gateway = TestGateway::with(engine, ServerConfig::default(), GatewayConfig::default());
    let body = json!({"query": "w1", "documents": ["w2", "w3", "w5"]});
    let answer = gateway.post("/v2/rerank", body).await;
    let found = answer.json(200);
    let expected = json!([
        {"index": 2, "relevance_score": 0.9436},
        {"index": 0, "relevance_score": 0.1528},
    ]);
    assert_eq!(found["results"], expected);
    let warnings = json!(["no result: documents[1]: the model gave NaN or infinity"]);
    assert_eq!(found["meta"]["warnings"], warnings);
    assert_eq!(answer.header("x-item-errors"), "1");
}

#[tokio::test]
async fn unknown_models() {
    let config = ServerConfig {
        strict_model_name: true,
        ..ServerConfig::default()
    };
    let engine = FakeEngine::new(info(Task::Score, 1));
    let gateway = TestGateway::with(engine, config, GatewayConfig::default());
    let body = json!({"model": "other", "query": "w1", "documents": ["w2"]});
    let answer = gateway.post("/v2/rerank", body).await;
    let message = "model: \"other\" is not served here, \"fake\" is";
    assert_eq!(answer.json(404), json!({"id": "r1", "message": message}));
    let answer = gateway
        .post("/v1/embeddings", json!({"model": "other", "input": "w1"}))
        .await;
    let expected = json!({"error": {"message": message, "type": "invalid_request_error",
        "param": "model", "code": "model_not_found"}});
    assert_eq!(answer.json(404), expected);
}

#[tokio::test]
async fn too_many_items_and_requests() {
    let config = GatewayConfig {
        max_items_per_request: 2,
        ..GatewayConfig::default()
    };
    let gateway = TestGateway::with_config(info(Task::Score, 1), config);
    let body = json!({"query": "w1", "texts": ["w2", "w2", "w2"]});
    let answer = gateway.post("/rerank", body).await;
    let error = "`texts` has 3 entries, limit max_items_per_request=2";
    assert_eq!(
        answer.json(422),
        json!({"error": error, "error_type": "Validation"})
    );

    let gate = Gate::default();
    let engine = FakeEngine::new(info(Task::Score, 1)).with_gate(gate.clone());
    let config = GatewayConfig {
        max_requests_in_flight: 1,
        ..GatewayConfig::default()
    };
    let gateway = TestGateway::with(engine, ServerConfig::default(), config);
    let body = json!({"query": "w1", "texts": ["w2"]});
    let held = gateway.post("/rerank", &body);
    let refused = async {
        tokio::task::yield_now().await;
        let answer = gateway.post("/rerank", &body).await;
        gate.open();
        answer
    };
    let (held, refused) = tokio::join!(held, refused);
    assert_eq!(held.status, 200);
    let error = "too many requests at once, limit max_requests_in_flight=1";
    assert_eq!(
        refused.json(429),
        json!({"error": error, "error_type": "Overloaded"})
    );
}
