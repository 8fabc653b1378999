//! Health follows the model, and reflection tells what is served.

use std::net::TcpListener;

use tokio_stream::StreamExt as _;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};
use tulip::config::ServerConfig;
use tulip::engine::Task;
use tulip::fake_engine::FakeEngine;
use tulip::server::Server;

use crate::support::{TestServer, config, info, score_request, soon};

async fn health(server: &TestServer, service: &str) -> ServingStatus {
    let request = HealthCheckRequest {
        service: service.into(),
    };
    HealthClient::new(server.channel().await)
        .check(request)
        .await
        .unwrap()
        .into_inner()
        .status()
}

async fn assert_health(server: &TestServer, expected: ServingStatus) {
    for service in ["", "tulip.v1.Tulip"] {
        assert_eq!(health(server, service).await, expected, "{service:?}");
    }
}

#[tokio::test]
async fn not_serving_until_loaded_and_from_the_drain_on() {
    let mut server = TestServer::loading(config());
    assert_health(&server, ServingStatus::NotServing).await;
    let mut client = server.client().await;
    let status = client.score(score_request("w1", ["w2"])).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::Unavailable, "unavailable: loading")
    );

    server.load(FakeEngine::new(info(Task::Score, 1)));
    assert_health(&server, ServingStatus::Serving).await;
    client.score(score_request("w1", ["w2"])).await.unwrap();

    server.server.begin_drain();
    assert_health(&server, ServingStatus::NotServing).await;
    let status = client.score(score_request("w1", ["w2"])).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::Unavailable, "unavailable: draining")
    );
}

#[tokio::test]
async fn watchers_are_told() {
    let server = TestServer::start(FakeEngine::new(info(Task::Score, 1)));
    let request = HealthCheckRequest {
        service: "tulip.v1.Tulip".into(),
    };
    let mut watch = HealthClient::new(server.channel().await)
        .watch(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        soon(watch.next()).await.unwrap().unwrap().status(),
        ServingStatus::Serving
    );
    server.server.set_unhealthy("the device is gone");
    assert_eq!(
        soon(watch.next()).await.unwrap().unwrap().status(),
        ServingStatus::NotServing
    );
    let status = server
        .client()
        .await
        .score(score_request("w1", ["w2"]))
        .await
        .unwrap_err();
    assert_eq!(status.message(), "unavailable: the device is gone");
}

#[tokio::test]
async fn reflection_lists_and_describes_the_services() {
    let server = TestServer::start(FakeEngine::new(info(Task::Score, 1)));
    let mut client = ServerReflectionClient::new(server.channel().await);
    let ask = |request| ServerReflectionRequest {
        host: String::new(),
        message_request: Some(request),
    };
    let requests = tokio_stream::iter([
        ask(MessageRequest::ListServices(String::new())),
        ask(MessageRequest::FileContainingSymbol(
            "tulip.v1.Tulip".into(),
        )),
    ]);
    let answers = client
        .server_reflection_info(requests)
        .await
        .unwrap()
        .into_inner();
    let answers: Vec<ServerReflectionResponse> = soon(answers.map(Result::unwrap).collect()).await;
    let Some(MessageResponse::ListServicesResponse(list)) = &answers[0].message_response else {
        panic!("{:?}", answers[0]);
    };
    let names: Vec<&str> = list.service.iter().map(|service| &*service.name).collect();
    for name in [
        "tulip.v1.Tulip",
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
    ] {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
    let Some(MessageResponse::FileDescriptorResponse(files)) = &answers[1].message_response else {
        panic!("{:?}", answers[1]);
    };
    assert!(!files.file_descriptor_proto.is_empty());
}

#[test]
fn a_taken_port_names_option_and_address() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let error = Server::bind(ServerConfig {
        grpc_address: address,
        ..config()
    })
    .unwrap_err();
    let message = error.to_string();
    assert!(
        message.starts_with(&format!("grpc_address: cannot listen on {address}: ")),
        "{message}"
    );
}

#[test]
fn a_wrong_option_is_refused_before_the_port_is_taken() {
    let error = Server::bind(ServerConfig {
        tokenizer_threads: 0,
        ..config()
    })
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "tokenizer_threads: must be at least 1, is 0"
    );
}

#[tokio::test]
async fn a_bad_tokenizer_is_an_error_and_the_server_stays_not_serving() {
    let server = TestServer::loading(config());
    let info = FakeEngine::model_info(Task::Score, 1, b"{}");
    let error = server
        .server
        .set_model(info, server.dispatch.clone())
        .unwrap_err();
    assert!(error.to_string().starts_with("tokenizer.json: "), "{error}");
    assert_health(&server, ServingStatus::NotServing).await;
}
