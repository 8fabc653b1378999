//! What is wrong with a request before anything is done for it.

use std::time::Duration;

use ivy::GatewayConfig;
use serde_json::json;
use tulip::engine::Task;

use super::{INVALID, path, routes, shapes, shapes_by_path};
use crate::support::{TestGateway, info, request, reranker};

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

/// A typing mistake with a whole document in the wrong field is not sent back whole.
#[tokio::test]
async fn long_values_are_not_repeated_whole() {
    let embedder = TestGateway::start(info(Task::Embed, 4));
    let long = "ä".repeat(100_000);
    let mut bodies = vec![
        (
            "/v1/embeddings",
            json!({"input": "w1", "encoding_format": long}),
        ),
        ("/v1/embeddings", json!({"input": "w1", "dimensions": long})),
        ("/v2/embed", json!({"texts": ["w1"], "truncate": long})),
        ("/v2/embed", json!({"texts": ["w1"], "input_type": long})),
        (
            "/embed",
            json!({"inputs": "w1", "truncation_direction": long}),
        ),
        ("/embed", json!({"inputs": "w1", "prompt_name": long})),
        ("/tokenize", json!({"inputs": "w1", "prompt_name": long})),
    ];
    let unknown = format!("/v1/{}", "x".repeat(50_000));
    bodies.push((&unknown, json!({})));
    for (path, body) in bodies {
        let answer = embedder.post(path, body).await;
        assert!(answer.status.is_client_error(), "{path}");
        // Jina's and OpenAI's families have the message twice.
        assert!(answer.body.len() < 4_500, "{path}: {}", answer.text());
        assert!(answer.text().contains('…'), "{path}: {}", answer.text());
    }
}

#[tokio::test]
async fn a_list_is_no_request() {
    let gateway = reranker();
    // Every field of /score in the order of some struct would be found in it.
    for body in [json!(["w1", "w2"]), json!(["m", "w1", ["w2"], null, null])] {
        for (route, _) in routes() {
            let answer = gateway.post_with(path(route), &[], body.clone()).await;
            assert!((400..=422).contains(&answer.status.as_u16()), "{route}");
            let expected = "the body must be a JSON object, is a list";
            assert!(
                answer.text().contains(expected),
                "{route} {}",
                answer.text()
            );
        }
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
