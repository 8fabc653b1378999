//! A full queue refuses at once and says when to come back; a failed step fails its batch only.

use tonic::Code;
use tulip::engine::Task;
use tulip::fake_engine::{FakeEngine, FakeStep, Gate};

use crate::deadlines::until;
use crate::support::{TestServer, config, info, score_request, soon};

#[tokio::test]
async fn a_full_queue_says_when_to_retry() {
    let gate = Gate::default();
    let mut config = config();
    config.scheduler.max_queued_tokens = 12;
    let engine = FakeEngine::new(info(Task::Score, 1)).with_gate(gate.clone());
    let server = TestServer::with_config(engine, config);
    let call = || {
        let client = server.client();
        async move { client.await.score(score_request("w1", ["w2"])).await }
    };
    let waiting = gate.clone();
    let running = tokio::spawn(spawned(&server).await);
    soon(tokio::task::spawn_blocking(move || waiting.wait_for_step()))
        .await
        .unwrap();
    let (a, b) = (
        tokio::spawn(spawned(&server).await),
        tokio::spawn(spawned(&server).await),
    );
    soon(until(|| server.dispatch.load().queued_tokens == 10)).await;

    let status = soon(call()).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    for fragment in [
        "10 tokens wait",
        "this request has 5",
        "max_queued_tokens=12",
    ] {
        assert!(status.message().contains(fragment), "{}", status.message());
    }
    for key in ["retry-after-ms", "grpc-retry-pushback-ms"] {
        let value = status.metadata().get(key).unwrap().to_str().unwrap();
        assert!(value.parse::<u64>().unwrap() > 0, "{key}: {value}");
    }
    gate.open();
    for call in [running, a, b] {
        soon(call).await.unwrap().unwrap();
    }
    soon(call()).await.unwrap();
}

/// A call that owns its client.
async fn spawned(
    server: &TestServer,
) -> impl Future<Output = Result<(), tonic::Status>> + Send + 'static {
    let mut client = server.client().await;
    async move { client.score(score_request("w1", ["w2"])).await.map(|_| ()) }
}

#[tokio::test]
async fn a_failed_step_fails_its_batch_and_the_server_goes_on() {
    let script = [FakeStep::Fail("out of memory".into()), FakeStep::TooFewRows];
    let server = TestServer::start(FakeEngine::new(info(Task::Score, 1)).with_script(script));
    let mut client = server.client().await;
    for fragment in ["out of memory", "0 rows"] {
        let status = client.score(score_request("w1", ["w2"])).await.unwrap_err();
        assert_eq!(status.code(), Code::Internal);
        assert!(status.message().contains(fragment), "{}", status.message());
    }
    client.score(score_request("w1", ["w2"])).await.unwrap();
}

#[tokio::test]
async fn a_broken_engine_answers_unavailable() {
    let script = [FakeStep::Fatal("the device is gone".into())];
    let server = TestServer::start(FakeEngine::new(info(Task::Score, 1)).with_script(script));
    let mut client = server.client().await;
    for _ in 0..2 {
        let status = client.score(score_request("w1", ["w2"])).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(
            status.message().contains("the device is gone"),
            "{}",
            status.message()
        );
    }
}
