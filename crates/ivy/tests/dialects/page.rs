//! The page at `/`, and the status that it shows.

use std::time::Duration;

use ivy::GatewayConfig;
use serde_json::{Value, json};
use tulip::config::ServerConfig;
use tulip::engine::GraphCounters;
use tulip::engine::Task;
use tulip::fake_engine::{FakeEngine, Gate};

use crate::support::{TestGateway, embedder, info, request, reranker};

#[tokio::test]
async fn files_come_with_their_type_and_under_a_strict_policy() {
    let gateway = reranker();
    for (path, content_type, within) in [
        ("/", "text/html; charset=utf-8", "<title>Ivy</title>"),
        (
            "/docs",
            "text/html; charset=utf-8",
            "<title>Ivy API</title>",
        ),
        (
            "/static/page.css",
            "text/css; charset=utf-8",
            "color-scheme",
        ),
        (
            "/static/page.js",
            "text/javascript; charset=utf-8",
            "import",
        ),
        ("/static/icon.svg", "image/svg+xml", "<svg"),
    ] {
        let answer = gateway.get(path).await;
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.header("content-type"), content_type);
        assert_eq!(answer.header("cache-control"), "no-cache");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert_eq!(
            answer.header("content-security-policy"),
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
             connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        );
        assert!(answer.text().contains(within), "{path}");
    }
}

#[tokio::test]
async fn a_browser_that_has_a_file_is_not_sent_it_again() {
    let gateway = reranker();
    for path in ["/", "/static/page.js"] {
        let first = gateway.get(path).await;
        let etag = first.header("etag");
        let known = [("if-none-match", etag)];
        let again = gateway
            .send(request("GET", path, &known, String::new()))
            .await;
        assert_eq!(
            (again.status.as_u16(), again.text().as_str()),
            (304, ""),
            "{path}"
        );
        assert_eq!(again.header("etag"), etag);
        let other = [("if-none-match", "\"other\"")];
        let changed = gateway
            .send(request("GET", path, &other, String::new()))
            .await;
        assert_eq!(changed.text(), first.text());
    }
}

#[tokio::test]
async fn a_file_that_is_not_there() {
    let gateway = reranker();
    for path in [
        "/static/none.js",
        "/static/../Cargo.toml",
        "/static/%2e%2e%2fmain.rs",
    ] {
        let answer = gateway.get(path).await;
        assert_eq!(answer.json(404)["error_type"], "Validation", "{path}");
    }
    let answer = gateway.get("/static/none.js").await;
    let expected = json!({"error": "no route /static/none.js", "error_type": "Validation"});
    assert_eq!(answer.json(404), expected);
}

#[tokio::test]
async fn the_page_is_for_everybody_and_the_status_for_those_with_a_key() {
    let config = GatewayConfig {
        api_keys: vec!["secret".into()],
        ..GatewayConfig::default()
    };
    let gateway = TestGateway::with_config(info(Task::Score, 1), config);
    for path in ["/", "/static/page.js", "/docs", "/openapi.json"] {
        assert_eq!(gateway.get(path).await.status, 200, "{path}");
    }
    assert_eq!(gateway.get("/status").await.status, 401);
    let key = [("authorization", "Bearer secret")];
    let answer = gateway
        .send(request("GET", "/status", &key, String::new()))
        .await;
    assert_eq!(answer.status, 200);
}

/// The status without what differs from run to run.
async fn status(gateway: &TestGateway) -> Value {
    let mut status = gateway.get("/status").await.json(200);
    let fields = status.as_object_mut().unwrap();
    assert!(fields.remove("uptime_seconds").unwrap().as_f64().unwrap() >= 0.0);
    fields.remove("version").unwrap();
    fields["replicas"][0]["tokens_per_second"].take();
    status
}

#[tokio::test]
async fn a_reranker_describes_itself() {
    let gateway = reranker();
    let expected = json!({
        "models": [{
            "name": "fake",
            "task": "score",
            "architecture": "FakeModel",
            "dtype": "float32",
            "device": "fake",
            "fingerprint": "fake-fingerprint",
            "max_sequence_tokens": 512,
            "max_items_per_request": 10_000,
            "max_batch_tokens": 16_384,
            "max_queued_tokens": 4_194_304,
            "vocab_size": 100,
            "pooling": "mean",
            "labels": ["LABEL_0"],
            "positive_label": "LABEL_0",
            "score_activation": "sigmoid",
            "server_version": env!("CARGO_PKG_VERSION"),
        }],
        "replicas": [{
            "address": "local",
            "model": "fake",
            "state": "ready",
            "outstanding_tokens": 0,
            "queued_tokens": 0,
            "running_tokens": 0,
            "max_queued_tokens": 4_194_304,
            "queued_sequences": 0,
            "steps_in_flight": 0,
            "tokens_per_second": null,
        }],
        "totals": {
            "succeeded": 0,
            "refused": 0,
            "failed": 0,
            "abandoned": 0,
            "items": 0,
            "tokens": 0,
            "truncations": 0,
            "item_errors": 0,
        },
        "latency": [],
        "gateway": {
            "requests_in_flight": 0,
            "max_requests_in_flight": 4_096,
            "max_items_per_request": 10_000,
            "max_body_bytes": 64 << 20,
        },
    });
    assert_eq!(status(&gateway).await, expected);
}

#[tokio::test]
async fn an_embedding_model_describes_its_vectors() {
    let status = status(&embedder()).await;
    let model = &status["models"][0];
    let part =
        |names: &[&str]| -> Value { names.iter().map(|&name| model[name].clone()).collect() };
    assert_eq!(
        part(&[
            "task",
            "dimensions",
            "matryoshka_dimensions",
            "normalized",
            "similarity",
            "prompts"
        ]),
        json!([
            "embed",
            4,
            [2],
            true,
            "cosine",
            ["document", "query", "sts"]
        ])
    );
}

#[tokio::test]
async fn totals_count_work_and_how_it_ended() {
    let gateway = reranker();
    let good = json!({"query": "w1", "documents": ["w2", "w3 w4"]});
    for _ in 0..3 {
        assert_eq!(gateway.post("/v2/rerank", &good).await.status, 200);
    }
    assert_eq!(gateway.post("/v2/rerank", "{").await.status, 400);
    assert_eq!(gateway.post("/nowhere", &good).await.status, 404);
    // Looks are no work.
    assert_eq!(gateway.get("/nowhere").await.status, 404);
    gateway.get("/v1/models").await;
    let status = status(&gateway).await;
    // [CLS] w1 [SEP] w2 [SEP] and [CLS] w1 [SEP] w3 w4 [SEP].
    let expected = json!({
        "succeeded": 3,
        "refused": 2,
        "failed": 0,
        "abandoned": 0,
        "items": 6,
        "tokens": 3 * (5 + 6),
        "truncations": 0,
        "item_errors": 0,
    });
    assert_eq!(status["totals"], expected);
    let classes = status["latency"].as_array().unwrap().iter();
    let timed: u64 = classes
        .map(|class| class["requests"].as_u64().unwrap())
        .sum();
    assert_eq!(timed, 3);
}

#[tokio::test]
async fn graphs_of_a_device() {
    let before = GraphCounters {
        eager_steps: 3,
        captures: 2,
        failed_captures: 1,
        bytes: 5 << 20,
        ..GraphCounters::default()
    };
    let engine = FakeEngine::new(info(Task::Score, 1)).with_graphs(before);
    let gateway = TestGateway::with(engine, ServerConfig::default(), GatewayConfig::default());
    let expected = |replayed: u64| {
        json!({"graphs": 2, "failed_captures": 1, "eager_steps": 3,
            "replayed_steps": replayed, "bytes": 5 << 20})
    };
    let job = json!({"query": "w1", "documents": ["w2"]});
    for _ in 0..2 {
        assert_eq!(gateway.post("/v2/rerank", &job).await.status, 200);
    }
    // The last step is counted just after its answer.
    let counted = async {
        while status(&gateway).await["replicas"][0]["graphs"] != expected(2) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), counted)
        .await
        .unwrap();
    let remote = gateway.over_the_network().await;
    remote.post("/v2/rerank", &job).await;
    remote.post("/v2/rerank", &job).await;
    let seen = status(&remote).await["replicas"][0]["graphs"]["replayed_steps"].clone();
    assert!(seen == 3 || seen == 4, "{seen}");
}

#[tokio::test]
async fn the_load_is_what_is_there_now() {
    let gate = Gate::default();
    let engine = FakeEngine::new(info(Task::Score, 1)).with_gate(gate.clone());
    let gateway = TestGateway::with(engine, ServerConfig::default(), GatewayConfig::default());
    let job = json!({"query": "w1", "documents": ["w2"]});
    let (answer, ()) = tokio::join!(gateway.post("/v2/rerank", &job), async {
        let waits = gate.clone();
        tokio::task::spawn_blocking(move || waits.wait_for_step())
            .await
            .unwrap();
        let busy = status(&gateway).await;
        assert_eq!(busy["replicas"][0]["outstanding_tokens"], 5, "{busy}");
        assert_eq!(busy["gateway"]["requests_in_flight"], 1);
        gate.open();
    });
    assert_eq!(answer.status, 200);
    let idle = async {
        // The step's tokens are given back just after its answer.
        while status(&gateway).await["replicas"][0]["outstanding_tokens"] != 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), idle)
        .await
        .unwrap();
    assert_eq!(status(&gateway).await["gateway"]["requests_in_flight"], 0);
}
