//! Many requests in flight on one stream, answers as they finish.

use std::collections::BTreeMap;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request};
use tulip::config::ServerConfig;
use tulip::engine::Task;
use tulip::fake_engine::{FakeEngine, Gate, StepLog};
use tulip_proto::v1::{
    EmbedRequest, ScoreRequest, embed_stream_response, score_stream_response::Outcome,
};

use crate::deadlines::until;
use crate::support::{
    TestServer, assert_close, config, embed_request, float32, info, pair_row, score_request,
    sigmoid, single_row, soon, word,
};

fn with_id(id: &str, request: ScoreRequest) -> ScoreRequest {
    ScoreRequest {
        request_id: id.into(),
        ..request
    }
}

#[tokio::test]
async fn good_and_bad_requests_each_get_their_answer() {
    let info = info(Task::Score, 1);
    let server = TestServer::start(FakeEngine::new(info.clone()));
    let mut client = server.client().await;
    let requests = tokio_stream::iter([
        with_id("good", score_request("w1", ["w2"])),
        with_id("empty", score_request("w1", [""; 0])),
        with_id(
            "enum",
            ScoreRequest {
                priority: 9,
                ..score_request("w1", ["w2"])
            },
        ),
        with_id("", score_request("w1", ["w3"])),
    ]);
    let mut answers = client.score_stream(requests).await.unwrap().into_inner();
    let mut outcomes = BTreeMap::new();
    while let Some(answer) = soon(answers.message()).await.unwrap() {
        outcomes.insert(answer.request_id, answer.outcome.unwrap());
    }
    assert_eq!(outcomes.len(), 4);
    for (id, document) in [("good", 2), ("", 3)] {
        let Outcome::Response(response) = &outcomes[id] else {
            panic!("{:?}", outcomes[id])
        };
        assert_close(
            &response.scores,
            &[sigmoid(pair_row(&info, &[word(1)], &[word(document)])[0])],
        );
        assert_eq!(response.request_id, id);
    }
    for (id, message) in [("empty", "documents: is empty"), ("enum", "priority: 9")] {
        let Outcome::Error(error) = &outcomes[id] else {
            panic!("{:?}", outcomes[id])
        };
        assert_eq!(error.code, Code::InvalidArgument as i32);
        assert!(error.message.contains(message), "{}", error.message);
    }
}

#[tokio::test]
async fn a_later_answer_overtakes_a_slow_one() {
    let gate = Gate::default();
    let server = TestServer::start(FakeEngine::new(info(Task::Score, 1)).with_gate(gate.clone()));
    let mut client = server.client().await;
    let requests = tokio_stream::iter([
        with_id("slow", score_request("w1", ["w2"])),
        with_id("bad", score_request("w1", [""; 0])),
    ]);
    let mut answers = client.score_stream(requests).await.unwrap().into_inner();
    assert_eq!(
        soon(answers.message()).await.unwrap().unwrap().request_id,
        "bad"
    );
    gate.open();
    assert_eq!(
        soon(answers.message()).await.unwrap().unwrap().request_id,
        "slow"
    );
    assert!(soon(answers.message()).await.unwrap().is_none());
}

#[tokio::test]
async fn no_more_than_the_limit_is_read_ahead() {
    let gate = Gate::default();
    let config = ServerConfig {
        max_requests_per_stream: 3,
        ..config()
    };
    let engine = FakeEngine::new(info(Task::Score, 1)).with_gate(gate.clone());
    let server = TestServer::with_config(engine, config);
    let mut client = server.client().await;
    let requests = (0..10).map(|index| with_id(&index.to_string(), score_request("w1", ["w2"])));
    let requests = tokio_stream::iter(requests.collect::<Vec<_>>());
    let mut answers = client.score_stream(requests).await.unwrap().into_inner();
    let in_flight = || {
        let load = server.dispatch.load();
        load.queued_sequences + load.running_tokens as usize / 5
    };
    soon(until(|| in_flight() == 3)).await;
    // Give a fourth every chance to come.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
        assert!(in_flight() <= 3);
    }
    gate.open();
    let mut count = 0;
    while soon(answers.message()).await.unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, 10);
}

#[tokio::test]
async fn leaving_cancels_what_is_in_flight() {
    let (gate, log) = (Gate::default(), StepLog::default());
    let engine = FakeEngine::new(info(Task::Score, 1))
        .with_gate(gate.clone())
        .with_log(log.clone());
    let server = TestServer::start(engine);
    let mut client = server.client().await;
    let (requests, receiver) = mpsc::channel(8);
    let answers = client
        .score_stream(ReceiverStream::new(receiver))
        .await
        .unwrap()
        .into_inner();
    requests.send(score_request("w1", ["w2"])).await.unwrap();
    let waiting = gate.clone();
    soon(tokio::task::spawn_blocking(move || waiting.wait_for_step()))
        .await
        .unwrap();
    for _ in 0..3 {
        requests.send(score_request("w1", ["w3 w4"])).await.unwrap();
    }
    soon(until(|| server.dispatch.load().queued_sequences == 3)).await;
    drop((answers, requests));
    soon(until(|| server.dispatch.load().queued_sequences == 0)).await;
    gate.open();
    soon(client.score(score_request("w1", ["w2"])))
        .await
        .unwrap();
    assert_eq!(
        *log.lock(),
        [[5], [5]],
        "of the stream only the step that had begun ran"
    );
}

#[tokio::test]
async fn the_deadline_is_the_streams() {
    let gate = Gate::default();
    let server = TestServer::start(FakeEngine::new(info(Task::Score, 1)).with_gate(gate.clone()));
    let mut client = server.client().await;
    let (requests, receiver) = mpsc::channel(8);
    let mut call = Request::new(ReceiverStream::new(receiver));
    call.metadata_mut()
        .insert("grpc-timeout", "000000050m".parse().unwrap());
    let mut answers = client.score_stream(call).await.unwrap().into_inner();
    requests.send(score_request("w1", ["w2"])).await.unwrap();
    let status = loop {
        // The request's own answer may come first.
        match soon(answers.message()).await {
            Ok(answer) => assert!(matches!(answer.unwrap().outcome, Some(Outcome::Error(_)))),
            Err(status) => break status,
        }
    };
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    gate.open();
}

#[tokio::test]
async fn embeddings_stream_too() {
    let info = info(Task::Embed, 4);
    let server = TestServer::start(FakeEngine::new(info.clone()));
    let mut client = server.client().await;
    let requests: Vec<EmbedRequest> = (0..50)
        .map(|index| EmbedRequest {
            request_id: index.to_string(),
            ..embed_request([format!("w{index}")])
        })
        .collect();
    let mut answers = client
        .embed_stream(tokio_stream::iter(requests))
        .await
        .unwrap()
        .into_inner();
    let mut seen = 0;
    while let Some(answer) = soon(answers.message()).await.unwrap() {
        let Some(embed_stream_response::Outcome::Response(response)) = answer.outcome else {
            panic!()
        };
        let number: u32 = answer.request_id.parse().unwrap();
        assert_close(
            &float32(&response.embeddings.unwrap().data),
            &single_row(&info, &[word(number)]),
        );
        seen += 1;
    }
    assert_eq!(seen, 50);
}
