//! Work that nobody waits for never reaches the engine.

use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use tonic::{Code, Request};
use tulip::engine::Task;
use tulip::fake_engine::{FakeEngine, Gate, StepLog};

use crate::raw::score_stalled;
use crate::support::{TestServer, info, score_request, soon};

/// A server whose first step is held at the gate by a call in flight.
async fn held() -> (
    TestServer,
    Gate,
    StepLog,
    tokio::task::JoinHandle<Result<(), tonic::Status>>,
) {
    let (gate, log) = (Gate::default(), StepLog::default());
    let engine = FakeEngine::new(info(Task::Score, 1))
        .with_gate(gate.clone())
        .with_log(log.clone());
    let server = TestServer::start(engine);
    let mut client = server.client().await;
    let first =
        tokio::spawn(async move { client.score(score_request("w1", ["w2"])).await.map(|_| ()) });
    let waiting = gate.clone();
    tokio::task::spawn_blocking(move || waiting.wait_for_step())
        .await
        .unwrap();
    (server, gate, log, first)
}

#[tokio::test]
async fn an_expired_request_is_not_computed() {
    let (server, gate, log, first) = held().await;
    let mut client = server.client().await;
    let mut request = Request::new(score_request("w1", ["w3 w4"]));
    // So many digits that the client lets them pass, or it would give up first.
    request
        .metadata_mut()
        .insert("grpc-timeout", "000000030m".parse().unwrap());
    let status = soon(client.score(request)).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    assert_eq!(
        server.dispatch.load().queued_tokens,
        0,
        "its tokens are given back at once"
    );
    gate.open();
    soon(first).await.unwrap().unwrap();
    soon(client.score(score_request("w1", ["w2"])))
        .await
        .unwrap();
    assert_eq!(
        *log.lock(),
        [[5], [5]],
        "only the two requests of 5 tokens ran"
    );
}

#[tokio::test]
async fn a_cancelled_request_is_not_computed() {
    let (server, gate, log, first) = held().await;
    let mut client = server.client().await;
    let mut other = server.client().await;
    let cancelled = tokio::spawn(async move {
        other
            .score(score_request("w1", ["w3 w4"]))
            .await
            .map(|_| ())
    });
    soon(until(|| server.dispatch.load().queued_tokens == 6)).await;
    cancelled.abort();
    soon(until(|| server.dispatch.load().queued_tokens == 0)).await;
    gate.open();
    soon(first).await.unwrap().unwrap();
    soon(client.score(score_request("w1", ["w2"])))
        .await
        .unwrap();
    assert_eq!(*log.lock(), [[5], [5]]);
}

#[tokio::test]
async fn a_deadline_in_time_is_met() {
    let server = TestServer::start(FakeEngine::new(info(Task::Score, 1)));
    let mut client = server.client().await;
    let mut request = Request::new(score_request("w1", ["w2"]));
    request.set_timeout(Duration::from_secs(20));
    assert_eq!(
        client
            .score(request)
            .await
            .unwrap()
            .into_inner()
            .scores
            .len(),
        1
    );
}

#[tokio::test]
async fn a_request_that_never_ends_has_a_deadline_too() {
    let server = TestServer::start(FakeEngine::new(info(Task::Score, 1)));
    let channel = server.channel().await;
    let whole = Bytes::from(score_request("w1", ["w2"]).encode_to_vec());
    for message in [None, Some(whole)] {
        // So many digits that the client lets them pass, or it would give up first.
        let call = score_stalled(&channel, message, Some("000000030m"));
        let status = soon(call).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    }
}

/// Lets other tasks run until the condition holds.
pub(crate) async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::task::yield_now().await;
    }
}
