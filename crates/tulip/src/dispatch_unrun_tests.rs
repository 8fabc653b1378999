//! Work that is not run: its time has passed, its caller has gone, or the engine ends.

use std::time::Duration;

use super::tests::{config, engine, sequence, start, step_waits, submission};
use super::*;
use crate::fake_engine::{Gate, StepLog};

#[tokio::test(start_paused = true)]
async fn a_deadline_that_passes_in_the_queue_never_reaches_the_engine() {
    let (gate, log) = (Gate::default(), StepLog::default());
    let running = start(
        config(8),
        engine().with_gate(gate.clone()).with_log(Arc::clone(&log)),
    );
    let dispatch = running.dispatch.clone();
    let first =
        tokio::spawn(async move { dispatch.submit(submission(vec![sequence(1, 8)])).await });
    step_waits(&gate).await;
    let late = Submission {
        deadline: Some(Instant::now() + Duration::from_millis(20)),
        ..submission(vec![sequence(2, 8)])
    };
    // Time is paused: the timer fires as soon as nothing else can run.
    let error = running.dispatch.submit(late).await.unwrap_err();
    assert_eq!(error, Error::DeadlineExceeded { waited_ms: 20 });
    assert_eq!(
        running.dispatch.load().queued_tokens,
        0,
        "its tokens are given back at once"
    );
    gate.open();
    first.await.unwrap().unwrap();
    assert_eq!(log.lock().len(), 1);
}

#[tokio::test]
async fn a_deadline_in_the_past_is_refused_at_the_door() {
    let log = StepLog::default();
    let running = start(config(8), engine().with_log(Arc::clone(&log)));
    let late = Submission {
        deadline: Some(Instant::now()),
        ..submission(vec![sequence(2, 8)])
    };
    let error = running.dispatch.submit(late).await.unwrap_err();
    assert_eq!(error, Error::DeadlineExceeded { waited_ms: 0 });
    assert!(log.lock().is_empty());
}

#[tokio::test]
async fn a_dropped_request_never_reaches_the_engine() {
    let (gate, log) = (Gate::default(), StepLog::default());
    let running = start(
        config(8),
        engine().with_gate(gate.clone()).with_log(Arc::clone(&log)),
    );
    let dispatch = running.dispatch.clone();
    let first =
        tokio::spawn(async move { dispatch.submit(submission(vec![sequence(1, 8)])).await });
    step_waits(&gate).await;
    let dispatch = running.dispatch.clone();
    let second =
        tokio::spawn(async move { dispatch.submit(submission(vec![sequence(2, 8)])).await });
    while running.dispatch.load().queued_tokens == 0 {
        tokio::task::yield_now().await;
    }
    second.abort();
    assert!(second.await.unwrap_err().is_cancelled());
    assert_eq!(running.dispatch.load().queued_tokens, 0);
    gate.open();
    first.await.unwrap().unwrap();
    running.dispatch.drained().await;
    assert_eq!(log.lock().len(), 1);
}

#[tokio::test]
async fn close_runs_what_waits_and_refuses_the_rest() {
    let gate = Gate::default();
    let mut running = start(config(8), engine().with_gate(gate.clone()));
    let dispatch = running.dispatch.clone();
    let waits: Vec<_> = (0..5)
        .map(|i| {
            let dispatch = dispatch.clone();
            tokio::spawn(async move { dispatch.submit(submission(vec![sequence(i, 8)])).await })
        })
        .collect();
    while running.dispatch.load().queued_tokens + running.dispatch.load().running_tokens < 40 {
        tokio::task::yield_now().await;
    }
    running.dispatch.close();
    let refused = running
        .dispatch
        .submit(submission(vec![sequence(9, 8)]))
        .await
        .unwrap_err();
    assert_eq!(refused, Error::Unavailable("shutting down".into()));
    gate.open();
    for wait in waits {
        wait.await.unwrap().unwrap();
    }
    assert_eq!(running.end(), RunEnd::Closed);
}

#[tokio::test]
async fn abort_fails_what_waits() {
    let gate = Gate::default();
    let running = start(config(8), engine().with_gate(gate.clone()));
    let (first, second) = (sequence(1, 8), sequence(2, 8));
    let first = running.dispatch.submit(submission(vec![first]));
    let second = running.dispatch.submit(submission(vec![second]));
    let abort = async {
        step_waits(&gate).await;
        running.dispatch.abort("drain timed out");
        gate.open();
    };
    let (first, second, ()) = tokio::join!(first, second, abort);
    first.unwrap();
    assert_eq!(
        second.unwrap_err(),
        Error::Unavailable("drain timed out".into())
    );
}
