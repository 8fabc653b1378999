//! Each kind of wrong request: its status, a message that names field, limit and value, and a
//! server that goes on.

mod other_cases;
mod score_cases;

use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tulip::config::ServerConfig;
use tulip::engine::Task;
use tulip::fake_engine::FakeEngine;
use tulip_proto::v1::tulip_client::TulipClient;
use tulip_proto::v1::{EmbedRequest, GetModelRequest, ScoreRequest, TokenizeRequest, Truncation};

use crate::raw::score_bytes;
use crate::support::{SEP, TestServer, config, info, score_request, segment, soon, text, word};

enum Call {
    Score(ScoreRequest),
    Embed(EmbedRequest),
    Tokenize(TokenizeRequest),
    GetModel(GetModelRequest),
    /// These bytes as a `ScoreRequest`.
    Bytes(Vec<u8>),
    /// A right request with this `grpc-timeout`; more than 8 digits, and the client lets it pass.
    Timeout(&'static str),
}

struct Case {
    name: &'static str,
    task: Task,
    call: Call,
    code: Code,
    message: &'static [&'static str],
}

const fn case(
    name: &'static str,
    task: Task,
    call: Call,
    code: Code,
    message: &'static [&'static str],
) -> Case {
    Case {
        name,
        task,
        call,
        code,
        message,
    }
}

fn score(change: impl FnOnce(&mut ScoreRequest)) -> Call {
    let mut request = score_request("w1", ["w2", "w3"]);
    change(&mut request);
    Call::Score(request)
}

fn truncation(change: impl FnOnce(&mut Truncation)) -> Option<Truncation> {
    let mut truncation = Truncation::default();
    change(&mut truncation);
    Some(truncation)
}

fn small_limits() -> ServerConfig {
    let mut config = ServerConfig {
        max_items_per_request: 20,
        max_message_bytes: 65_536,
        strict_model_name: true,
        ..config()
    };
    config.scheduler.max_queued_tokens = 4000;
    config
}

async fn call(client: &mut TulipClient<Channel>, channel: &Channel, call: Call) -> Status {
    match call {
        Call::Score(request) => client.score(request).await.map(drop),
        Call::Embed(request) => client.embed(request).await.map(drop),
        Call::Tokenize(request) => client.tokenize(request).await.map(drop),
        Call::GetModel(request) => client.get_model(request).await.map(drop),
        Call::Bytes(bytes) => score_bytes(channel, bytes).await,
        Call::Timeout(timeout) => {
            let mut request = Request::new(score_request("w1", ["w2"]));
            request
                .metadata_mut()
                .insert("grpc-timeout", timeout.parse().unwrap());
            client.score(request).await.map(drop)
        }
    }
    .unwrap_err()
}

#[tokio::test]
async fn every_bad_request_has_its_status_and_the_server_goes_on() {
    let start =
        |task, width| TestServer::with_config(FakeEngine::new(info(task, width)), small_limits());
    let servers = [
        start(Task::Embed, 8),
        start(Task::Score, 1),
        start(Task::Classify, 2),
    ];
    for Case {
        name,
        task,
        call: bad,
        code,
        message,
    } in score_cases::cases().into_iter().chain(other_cases::cases())
    {
        let server = &servers[task as usize];
        let channel = server.channel().await;
        let mut client = TulipClient::new(channel.clone());
        let status = soon(call(&mut client, &channel, bad)).await;
        assert_eq!(status.code(), code, "{name}: {status}");
        for fragment in message {
            assert!(
                status.message().contains(fragment),
                "{name}: {fragment:?} not in {:?}",
                status.message()
            );
        }
        let answer = soon(client.score(score_request("w1", ["w2"]))).await;
        assert_eq!(answer.unwrap().into_inner().scores.len(), 1, "after {name}");
    }
}

/// A status whose message repeats all of a long value does not fit into the headers that clients
/// take: they see `RESOURCE_EXHAUSTED` instead.
#[tokio::test]
async fn long_values_are_not_repeated_whole() {
    let start =
        |task, width| TestServer::with_config(FakeEngine::new(info(task, width)), small_limits());
    let servers = [start(Task::Classify, 2), start(Task::Embed, 8)];
    for value in ["x".repeat(9_000), "ä".repeat(20_000)] {
        let score = |change: fn(&mut ScoreRequest, String)| {
            let mut request = score_request("w1", ["w2"]);
            change(&mut request, value.clone());
            Call::Score(request)
        };
        let cases = [
            (
                Task::Classify,
                score(|request, value| request.label = value),
                (Code::InvalidArgument, "label: \"", "LABEL_1\"]"),
            ),
            (
                Task::Classify,
                score(|request, value| request.model = value),
                (Code::NotFound, "model: \"", "\"fake\" is"),
            ),
            (
                Task::Embed,
                Call::Embed(EmbedRequest {
                    inputs: vec![text("w1")],
                    prompt_name: value.clone(),
                    ..EmbedRequest::default()
                }),
                (Code::InvalidArgument, "prompt_name: \"", "known are []"),
            ),
        ];
        for (task, bad, (code, begin, end)) in cases {
            let server = &servers[usize::from(task == Task::Embed)];
            let channel = server.channel().await;
            let mut client = TulipClient::new(channel.clone());
            let status = soon(call(&mut client, &channel, bad)).await;
            assert_eq!(status.code(), code, "{status}");
            let message = status.message();
            assert!(message.starts_with(begin), "{message}");
            assert!(message.ends_with(end) && message.contains('…'), "{message}");
            assert!(message.len() < 600, "{message}");
        }
    }
}

#[tokio::test]
async fn absurd_deadlines_are_no_deadlines() {
    let server = TestServer::start(FakeEngine::new(info(Task::Score, 1)));
    let mut client = server.client().await;
    for timeout in ["99999999H", "99999999S", "99999999999999999999999S"] {
        let mut request = Request::new(score_request("w1", ["w2"]));
        request
            .metadata_mut()
            .insert("grpc-timeout", timeout.parse().unwrap());
        let response = soon(client.score(request)).await.unwrap().into_inner();
        assert_eq!(response.scores.len(), 1, "{timeout}");
    }
}

#[tokio::test]
async fn special_tokens_in_a_text_are_what_the_tokenizer_says() {
    let server = TestServer::start(FakeEngine::new(info(Task::Score, 1)));
    let mut client = server.client().await;
    let by_text = client
        .score(score_request("w1", ["[SEP] w2 \0 w3"]))
        .await
        .unwrap()
        .into_inner();
    let request = ScoreRequest {
        documents: vec![segment(&[SEP, word(2), 1, word(3)])],
        ..score_request("w1", [""; 0])
    };
    let by_ids = client.score(request).await.unwrap().into_inner();
    assert_eq!(by_text.scores, by_ids.scores);
}

#[tokio::test]
async fn two_bytes_an_entry_do_not_cost_forty() {
    let server = TestServer::start(FakeEngine::new(info(Task::Score, 1)));
    let channel = server.channel().await;
    // Field 4, documents: two million empty ones.
    let bytes = [0x22, 0x00].repeat(2_000_000);
    let status = soon(score_bytes(&channel, bytes)).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(
        status.message(),
        "message: has 2000000 entries, limit 1048576"
    );
}
