//! The end of a server: what is in flight finishes, nothing new begins, nothing hangs.

use std::time::{Duration, Instant};

use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tulip::engine::Task;
use tulip::fake_engine::{FakeEngine, Gate};
use tulip_proto::v1::ScoreRequest;
use tulip_proto::v1::score_stream_response::Outcome;

use crate::deadlines::until;
use crate::raw::score_stalled;
use crate::support::{TestServer, info, score_request, soon};

const LONG: Duration = Duration::from_secs(20);

async fn wait_for_step(gate: &Gate) {
    let gate = gate.clone();
    soon(tokio::task::spawn_blocking(move || gate.wait_for_step()))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_call_in_flight_is_answered_and_the_shutdown_is_clean() {
    let gate = Gate::default();
    let server = TestServer::start(FakeEngine::new(info(Task::Score, 1)).with_gate(gate.clone()));
    let mut client = server.client().await;
    let call = tokio::spawn(async move { client.score(score_request("w1", ["w2"])).await });
    wait_for_step(&gate).await;
    let mut late = server.client().await;
    let address = server.server.local_addr();

    std::thread::scope(|scope| {
        server.server.begin_drain();
        let shutdown = scope.spawn(|| server.server.shutdown(LONG));
        assert!(!shutdown.is_finished());
        gate.open();
        assert!(shutdown.join().unwrap(), "all calls ended by themselves");
    });
    let response = soon(call).await.unwrap().unwrap().into_inner();
    assert_eq!(response.scores.len(), 1);
    assert!(response.load.unwrap().draining);
    assert_eq!(
        soon(late.score(score_request("w1", ["w2"])))
            .await
            .unwrap_err()
            .code(),
        Code::Unavailable
    );
    assert!(
        std::net::TcpStream::connect(address).is_err(),
        "the port is given back"
    );
    assert!(
        server.server.shutdown(LONG),
        "a second shutdown does nothing"
    );
}

#[tokio::test]
async fn a_call_that_does_not_end_is_cut_off() {
    let gate = Gate::default();
    let server = TestServer::start(FakeEngine::new(info(Task::Score, 1)).with_gate(gate.clone()));
    let mut client = server.client().await;
    let call = tokio::spawn(async move { client.score(score_request("w1", ["w2"])).await });
    wait_for_step(&gate).await;
    assert!(
        !server.server.shutdown(Duration::from_millis(30)),
        "one call was still in flight"
    );
    soon(call).await.unwrap().unwrap_err();
    gate.open();
}

#[tokio::test]
async fn who_loses_patience_does_not_wait_for_calls() {
    let gate = Gate::default();
    let server = TestServer::start(FakeEngine::new(info(Task::Score, 1)).with_gate(gate.clone()));
    let mut client = server.client().await;
    let call = tokio::spawn(async move { client.score(score_request("w1", ["w2"])).await });
    wait_for_step(&gate).await;
    let begun = Instant::now();
    let mut asked = 0;
    let clean = server.server.shutdown_while(LONG, &mut || {
        asked += 1;
        asked < 3
    });
    assert!(!clean, "one call was still in flight");
    assert_eq!(asked, 3, "not asked again once it was enough");
    assert!(begun.elapsed() < LONG);
    soon(call).await.unwrap().unwrap_err();
    gate.open();
}

#[tokio::test]
async fn an_idle_stream_and_a_health_watch_do_not_hold_the_server() {
    let server = TestServer::start(FakeEngine::new(info(Task::Score, 1)));
    let request = HealthCheckRequest {
        service: String::new(),
    };
    let _watch = HealthClient::new(server.channel().await)
        .watch(request)
        .await
        .unwrap();

    let (requests, receiver) = tokio::sync::mpsc::channel::<ScoreRequest>(4);
    let mut client = server.client().await;
    requests.send(score_request("w1", ["w2"])).await.unwrap();
    let mut answers = client
        .score_stream(ReceiverStream::new(receiver))
        .await
        .unwrap()
        .into_inner();
    let answer = soon(answers.message()).await.unwrap().unwrap();
    assert!(matches!(answer.outcome, Some(Outcome::Response(_))));

    assert!(server.server.shutdown(LONG));
    let status = soon(answers.message()).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::Unavailable, "unavailable: draining")
    );
}

#[tokio::test]
async fn a_request_that_never_ends_does_not_hold_the_server() {
    let server = TestServer::start(FakeEngine::new(info(Task::Score, 1)));
    let channel = server.channel().await;
    let stalled = tokio::spawn(async move { score_stalled(&channel, None, None).await });
    soon(until(|| server.server.calls_in_flight() == 1)).await;
    assert!(server.server.shutdown(LONG), "nothing was worked on");
    let status = soon(stalled).await.unwrap().unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::Unavailable, "unavailable: draining")
    );
}

#[tokio::test]
async fn a_stream_counts_until_its_last_answer() {
    let gate = Gate::default();
    let server = TestServer::start(FakeEngine::new(info(Task::Score, 1)).with_gate(gate.clone()));
    let mut client = server.client().await;
    let requests = tokio_stream::iter([score_request("w1", ["w2"])]);
    let mut answers = client.score_stream(requests).await.unwrap().into_inner();
    wait_for_step(&gate).await;
    assert!(
        !server.server.shutdown(Duration::from_millis(30)),
        "an answer was still to come"
    );
    soon(answers.message()).await.unwrap_err();
    gate.open();
}
