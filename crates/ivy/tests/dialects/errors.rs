//! Failures that do not depend on the dialect's fields, in the words of each family.

use std::time::Duration;

use ivy::GatewayConfig;
use serde_json::{Value, json};
use tulip::config::{SchedulerConfig, ServerConfig};
use tulip::engine::Task;
use tulip::fake_engine::{FakeEngine, FakeStep, Gate};

use crate::support::{Answer, TestGateway, info, request, reranker};

/// One path of each family, with a body that is right.
fn routes() -> [(&'static str, Value); 6] {
    let pair = json!({"query": "w1", "documents": ["w2"]});
    let mut voyage = pair.clone();
    voyage["truncation"] = true.into();
    [
        ("openai /v1/embeddings", json!({"input": "w1"})),
        ("cohere /v2/rerank", pair.clone()),
        ("jina /v1/rerank", pair),
        ("voyage /v1/rerank", voyage),
        ("tei /rerank", json!({"query": "w1", "texts": ["w2"]})),
        ("vllm /score", json!({"text_1": "w1", "text_2": "w2"})),
    ]
}

fn path(route: &str) -> &str {
    route.split(' ').nth(1).unwrap()
}

/// The same message in the six shapes; `kinds` are OpenAI's type and code, vLLM's type, TEI's.
fn shapes(message: &str, code: u16, kinds: [Option<&str>; 4]) -> [Value; 6] {
    let [openai_type, openai_code, vllm, tei] = kinds;
    let mut openai = json!({"error": {"message": message, "type": openai_type}});
    if let Some(code) = openai_code {
        openai["error"]["code"] = code.into();
    }
    [
        openai,
        json!({"id": "r1", "message": message}),
        json!({"detail": message, "message": message}),
        json!({"detail": message}),
        json!({"error": message, "error_type": tei}),
        json!({"error": {"message": message, "type": vllm, "code": code}}),
    ]
}

/// The same before the body's fields are known: a path that families share answers for all of them.
fn shapes_by_path(message: &str, code: u16, kinds: [Option<&str>; 4]) -> [Value; 6] {
    let mut shapes = shapes(message, code, kinds);
    shapes[0]["detail"] = message.into();
    shapes[3] = shapes[2].clone();
    shapes
}

const INVALID: [Option<&str>; 4] = [
    Some("invalid_request_error"),
    None,
    Some("BadRequestError"),
    Some("Validation"),
];

#[tokio::test]
async fn malformed_json() {
    let gateway = reranker();
    let message = "the body is not valid JSON: EOF while parsing a value at line 1 column 9";
    // Nobody's fields can be seen: the path alone says whose it is.
    let cases = [
        (
            "/v1/embeddings",
            400,
            json!({"error": {"message": message, "type": "invalid_request_error"},
                "detail": message}),
        ),
        (
            "/v2/rerank",
            400,
            json!({"id": "r1", "message": format!("invalid request: {message}")}),
        ),
        (
            "/v1/rerank",
            422,
            json!({"detail": message, "message": message}),
        ),
        (
            "/rerank",
            400,
            json!({"error": message, "error_type": "Validation"}),
        ),
        (
            "/score",
            400,
            json!({"error": {"message": message, "type": "BadRequestError", "code": 400}}),
        ),
    ];
    for (path, status, expected) in cases {
        let answer = gateway.post(path, r#"{"query":"#).await;
        assert_eq!(answer.json(status), expected, "{path}");
    }
}

#[tokio::test]
async fn bodies_that_are_no_utf8_or_too_deep() {
    let gateway = reranker();
    let deep = ["[".repeat(100_000), "]".repeat(100_000)].concat();
    for body in [
        deep,
        format!(r#"{{"query": "w1", "texts": {}}}"#, "[".repeat(5_000)),
    ] {
        let status = gateway.post("/rerank", body).await.status;
        assert!(status.is_client_error(), "{status}");
    }
    let mut wrong = request("POST", "/rerank", &[], String::new());
    *wrong.body_mut() = b"{\"query\": \"\xff\", \"texts\": [\"a\"]}".to_vec().into();
    let answer = gateway.send(wrong).await;
    let message = "the body is not valid JSON: invalid unicode code point at line 1 column 12";
    assert_eq!(
        answer.json(400),
        json!({"error": message, "error_type": "Validation"})
    );
}

#[tokio::test]
async fn wrong_method_and_unknown_route() {
    let gateway = reranker();
    let kinds = [
        Some("invalid_request_error"),
        Some("method_not_allowed"),
        Some("BadRequestError"),
        Some("Validation"),
    ];
    for (index, (route, _)) in routes().into_iter().enumerate() {
        let answer = gateway.get(path(route)).await;
        let message = format!("method GET is not allowed for {}", path(route));
        assert_eq!(
            answer.json(405),
            shapes_by_path(&message, 405, kinds)[index],
            "{route}"
        );
        assert_eq!(answer.header("allow"), "POST");
    }
    let kinds = [
        Some("invalid_request_error"),
        Some("unknown_url"),
        None,
        Some("Validation"),
    ];
    for (path, index) in [
        ("/v1/chat/completions", 0),
        ("/v2/chat", 1),
        ("/nothing", 4),
    ] {
        let answer = gateway.post(path, "{}").await;
        let message = format!("no route {path}");
        assert_eq!(
            answer.json(404),
            shapes(&message, 404, kinds)[index],
            "{path}"
        );
    }
}

#[tokio::test]
async fn keys() {
    let config = GatewayConfig {
        api_keys: vec!["secret".into()],
        ..GatewayConfig::default()
    };
    let gateway = TestGateway::with_config(info(Task::Score, 1), config);
    for (headers, message, cohere) in [
        (
            &[][..],
            "no API key: send it as `Authorization: Bearer KEY`",
            "no api key supplied",
        ),
        (
            &[("authorization", "Bearer wrong")],
            "invalid API key",
            "invalid api token",
        ),
    ] {
        let kinds = [
            Some("invalid_request_error"),
            Some("invalid_api_key"),
            Some("AuthenticationError"),
            None,
        ];
        let mut expected = shapes_by_path(message, 401, kinds);
        expected[1]["message"] = cohere.into();
        for (index, (route, body)) in routes().into_iter().enumerate() {
            let answer = gateway.post_with(path(route), headers, body).await;
            assert_eq!(answer.header("www-authenticate"), "Bearer");
            match index {
                // TEI says nothing.
                4 => assert_eq!(
                    (answer.status.as_u16(), answer.text()),
                    (401, String::new())
                ),
                _ => assert_eq!(answer.json(401), expected[index], "{route}"),
            }
        }
    }
    let key = [("authorization", "Bearer secret")];
    let body = json!({"query": "w1", "texts": ["w2"]});
    for path in ["/rerank", "/"] {
        let answer = gateway.post(path, &body).await;
        assert_eq!(answer.status, 401, "{path}");
        let answer = gateway.post_with(path, &key, &body).await;
        answer.json(200);
    }
    assert_eq!(gateway.get("/info").await.status, 401);
    assert_eq!(gateway.get("/health").await.status, 200);
}

#[tokio::test]
async fn too_large() {
    let config = GatewayConfig {
        max_body_bytes: 100,
        ..GatewayConfig::default()
    };
    let gateway = TestGateway::with_config(info(Task::Score, 1), config);
    let message = "the body is larger than max_body_bytes=100";
    let expected = shapes_by_path(message, 413, INVALID);
    for (index, (route, _)) in routes().into_iter().enumerate() {
        let answer = gateway.post(path(route), " ".repeat(101)).await;
        match index {
            4 => assert_eq!((answer.status.as_u16(), &*answer.text()), (413, message)),
            _ => assert_eq!(answer.json(413), expected[index], "{route}"),
        }
    }
    // What comes without a length is counted as it comes.
    let chunks = (0..30).map(|_| Ok::<_, std::io::Error>("     "));
    let mut request = request("POST", "/rerank", &[], String::new());
    *request.body_mut() = axum::body::Body::from_stream(futures_util::stream::iter(chunks));
    assert_eq!(gateway.send(request).await.status, 413);
}

#[tokio::test]
async fn media_types() {
    let gateway = reranker();
    let message = "content-type \"text/plain\" is not supported, send application/json";
    // The fields are not looked at in what is not JSON.
    let expected = shapes_by_path(message, 415, INVALID);
    for (index, (route, body)) in routes().into_iter().enumerate() {
        let answer = gateway
            .post_with(path(route), &[("content-type", "text/plain")], body)
            .await;
        assert_eq!(answer.json(415), expected[index], "{route}");
    }
    let body = json!({"query": "w1", "texts": ["w2"]});
    for content_type in [
        "application/json; charset=utf-8",
        "Application/JSON",
        "application/x+json",
    ] {
        let answer = gateway
            .post_with("/rerank", &[("content-type", content_type)], &body)
            .await;
        assert_eq!(answer.status, 200, "{content_type}");
    }
    let answer = gateway
        .post_with("/rerank", &[("content-encoding", "gzip")], &body)
        .await;
    assert_eq!(answer.status, 415);
}

/// The answers of all families, Voyage's by its own fields, to right requests.
async fn all(gateway: &TestGateway, headers: &[(&str, &str)]) -> Vec<Answer> {
    let mut answers = Vec::new();
    for (route, body) in routes() {
        answers.push(gateway.post_with(path(route), headers, body).await);
    }
    answers
}

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

#[tokio::test(start_paused = true)]
async fn a_body_that_never_ends() {
    let config = GatewayConfig {
        body_timeout: Duration::from_secs(3),
        ..GatewayConfig::default()
    };
    let gateway = TestGateway::with_config(info(Task::Score, 1), config);
    for (headers, status, error, error_type) in [
        (
            &[][..],
            408,
            "the body did not arrive within 3000 ms",
            "Validation",
        ),
        (
            &[("x-request-timeout-ms", "200")],
            504,
            "deadline exceeded after 200 ms, before the body had arrived",
            "Backend",
        ),
    ] {
        let mut request = request("POST", "/rerank", headers, String::new());
        let stream = futures_util::stream::pending::<Result<&str, std::io::Error>>();
        *request.body_mut() = axum::body::Body::from_stream(stream);
        let answer = gateway.send(request).await;
        assert_eq!(
            answer.json(status),
            json!({"error": error, "error_type": error_type})
        );
    }
}

#[tokio::test]
async fn cors() {
    let config = GatewayConfig {
        cors_origins: vec!["https://app.example".into()],
        api_keys: vec!["secret".into()],
        ..GatewayConfig::default()
    };
    let gateway = TestGateway::with_config(info(Task::Score, 1), config);
    // A preflight carries no key.
    let preflight = [
        ("origin", "https://app.example"),
        ("access-control-request-method", "POST"),
        (
            "access-control-request-headers",
            "authorization,content-type",
        ),
    ];
    let request = request("OPTIONS", "/v2/rerank", &preflight, String::new());
    let answer = gateway.send(request).await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.header("access-control-allow-origin"),
        "https://app.example"
    );
    assert_eq!(
        answer.header("access-control-allow-headers"),
        "authorization,content-type"
    );
    let headers = [
        ("origin", "https://app.example"),
        ("authorization", "Bearer secret"),
    ];
    let body = json!({"query": "w1", "documents": ["w2"]});
    let answer = gateway.post_with("/v2/rerank", &headers, &body).await;
    assert!(
        answer
            .header("access-control-expose-headers")
            .contains("server-timing")
    );
    let headers = [
        ("origin", "https://evil.example"),
        ("authorization", "Bearer secret"),
    ];
    let answer = gateway.post_with("/v2/rerank", &headers, body).await;
    assert_eq!(answer.header("access-control-allow-origin"), "");
}
