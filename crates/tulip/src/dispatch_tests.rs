use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;
use crate::engine::Task;
use crate::fake_engine::{FakeEngine, FakeLatency, FakeStep, Gate, StepLog};
use crate::job::Priority;
use crate::lazy_tensor::LazyTensor;
use crate::sequence::Sequence;

const WIDTH: usize = 4;

pub(super) fn config(max_batch_tokens: usize) -> SchedulerConfig {
    SchedulerConfig {
        max_batch_cost: max_batch_tokens as u64,
        max_batch_tokens,
        max_queued_tokens: 10_000,
        ..SchedulerConfig::default()
    }
}

pub(super) fn engine() -> FakeEngine {
    FakeEngine::new(FakeEngine::model_info(Task::Embed, WIDTH, b"{}"))
}

/// Runs `engine` on its own thread; joined (and checked) when dropped.
pub(super) struct Running {
    pub(super) dispatch: Dispatch,
    thread: Option<std::thread::JoinHandle<RunEnd>>,
}

pub(super) fn start(config: SchedulerConfig, engine: FakeEngine) -> Running {
    let dispatch = Dispatch::new(config);
    let handle = dispatch.clone();
    let mut engine = engine;
    let thread = std::thread::spawn(move || handle.run(&mut engine));
    Running {
        dispatch,
        thread: Some(thread),
    }
}

impl Running {
    pub(super) fn end(&mut self) -> RunEnd {
        self.dispatch.close();
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.end();
        }
    }
}

pub(super) fn sequence(seed: u32, length: usize) -> Sequence {
    (0..length as u32)
        .map(|i| 100 + seed * 31 + i)
        .collect::<Vec<_>>()
        .into()
}

pub(super) fn submission(sequences: Vec<Sequence>) -> Submission {
    Submission {
        sequences,
        priority: Priority::Interactive,
        deadline: None,
    }
}

/// Until a step waits at the gate.
pub(super) async fn step_waits(gate: &Gate) {
    let gate = gate.clone();
    tokio::task::spawn_blocking(move || gate.wait_for_step())
        .await
        .unwrap();
}

fn expected_rows(sequences: &[Sequence]) -> Vec<f32> {
    let info = FakeEngine::model_info(Task::Embed, WIDTH, b"{}");
    sequences
        .iter()
        .flat_map(|sequence| FakeEngine::row(&info, sequence))
        .collect()
}

#[tokio::test]
async fn a_split_request_is_merged_in_order() {
    let log = StepLog::default();
    let running = start(config(64), engine().with_log(Arc::clone(&log)));
    let sequences: Vec<_> = (0..100).map(|i| sequence(i, 1 + i as usize % 30)).collect();
    let output = running
        .dispatch
        .submit(submission(sequences.clone()))
        .await
        .unwrap();
    assert_eq!(output.rows, expected_rows(&sequences));
    assert!(log.lock().len() > 10, "the request was split over steps");
    assert!(
        log.lock()
            .iter()
            .all(|step| step.iter().sum::<usize>() <= 64)
    );
}

#[tokio::test]
async fn concurrent_requests_share_a_step() {
    let (gate, log) = (Gate::default(), StepLog::default());
    let running = start(
        config(1000),
        engine().with_gate(gate.clone()).with_log(Arc::clone(&log)),
    );
    let first = running.dispatch.submit(submission(vec![sequence(0, 3)]));
    let others: Vec<_> = (1..20)
        .map(|i| running.dispatch.submit(submission(vec![sequence(i, 3)])))
        .collect();
    let release = async {
        step_waits(&gate).await;
        // The first step is held; all others have been polled once, so they wait in the queue.
        gate.open();
    };
    let (first, others, ()) = tokio::join!(first, futures_util::future::join_all(others), release);
    assert_eq!(first.unwrap().rows, expected_rows(&[sequence(0, 3)]));
    for (i, output) in (1..20).zip(others) {
        assert_eq!(output.unwrap().rows, expected_rows(&[sequence(i, 3)]));
    }
    let steps: Vec<usize> = log.lock().iter().map(Vec::len).collect();
    assert_eq!(steps.iter().sum::<usize>(), 20);
    assert!(steps.len() <= 3, "20 requests in steps of {steps:?}");
}

#[tokio::test]
async fn a_failed_step_fails_its_requests_only() {
    let script = [FakeStep::Fail("boom".into()), FakeStep::TooFewRows];
    let running = start(config(64), engine().with_script(script));
    let error = running
        .dispatch
        .submit(submission(vec![sequence(1, 5)]))
        .await
        .unwrap_err();
    assert_eq!(error, Error::Internal("the step failed: boom".into()));
    let error = running
        .dispatch
        .submit(submission(vec![sequence(1, 5)]))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Internal(message) if message.contains("0 rows")));
    let output = running
        .dispatch
        .submit(submission(vec![sequence(1, 5)]))
        .await
        .unwrap();
    assert_eq!(output.rows, expected_rows(&[sequence(1, 5)]));
}

#[tokio::test]
async fn a_row_that_is_not_finite_is_named_and_its_neighbours_hold() {
    let running = start(config(64), engine().with_script([FakeStep::NotFinite(1)]));
    let sequences = vec![sequence(1, 5), sequence(2, 5), sequence(3, 5)];
    let output = running
        .dispatch
        .submit(submission(sequences.clone()))
        .await
        .unwrap();
    assert_eq!(output.not_finite, [1]);
    let mut expected = expected_rows(&sequences);
    expected[WIDTH..2 * WIDTH].fill(0.0);
    assert_eq!(output.rows, expected);
}

#[tokio::test]
async fn a_broken_engine_fails_everything_as_unavailable() {
    for fault in [
        FakeStep::Fatal("sticky".into()),
        FakeStep::FatalEvent("sticky".into()),
    ] {
        let gate = Gate::default();
        // Once broken, a device fails whatever is enqueued behind.
        let script = [fault.clone(), fault];
        let mut running = start(
            config(8),
            engine().with_script(script).with_gate(gate.clone()),
        );
        let in_flight = running.dispatch.submit(submission(vec![sequence(1, 8)]));
        let queued = running.dispatch.submit(submission(vec![sequence(2, 8)]));
        let release = async {
            step_waits(&gate).await;
            gate.open();
        };
        let (in_flight, queued, ()) = tokio::join!(in_flight, queued, release);
        for result in [in_flight, queued] {
            let error = result.unwrap_err();
            assert!(
                matches!(&error, Error::Unavailable(m) if m.contains("sticky")),
                "{error:?}"
            );
        }
        let later = running
            .dispatch
            .submit(submission(vec![sequence(3, 8)]))
            .await
            .unwrap_err();
        assert!(matches!(later, Error::Unavailable(_)));
        assert_eq!(running.end(), RunEnd::Fatal("sticky".into()));
    }
}

/// Counts how many steps it holds at once, as a device would.
struct Overlapping {
    inner: FakeEngine,
    dispatch: Dispatch,
    most: Arc<AtomicUsize>,
}

impl Engine for Overlapping {
    fn info(&self) -> &crate::engine::ModelInfo {
        self.inner.info()
    }

    fn step(&mut self, batch: &Batch) -> Result<LazyTensor, StepError> {
        self.most
            .fetch_max(self.dispatch.load().steps_in_flight, Ordering::Relaxed);
        self.inner.step(batch)
    }
}

#[tokio::test]
async fn two_steps_are_in_flight_on_a_device_and_never_three() {
    let dispatch = Dispatch::new(config(8));
    let most = Arc::new(AtomicUsize::new(0));
    let latency = FakeLatency {
        step: Duration::from_micros(200),
        token: Duration::ZERO,
    };
    let mut engine = Overlapping {
        inner: engine().with_latency(latency),
        dispatch: dispatch.clone(),
        most: Arc::clone(&most),
    };
    let handle = dispatch.clone();
    let thread = std::thread::spawn(move || handle.run(&mut engine));
    let sequences: Vec<_> = (0..40).map(|i| sequence(i, 8)).collect();
    let output = dispatch
        .submit(submission(sequences.clone()))
        .await
        .unwrap();
    assert_eq!(output.rows, expected_rows(&sequences));
    assert_eq!(most.load(Ordering::Relaxed), 2);
    assert!(
        output.compute >= Duration::from_micros(200 * 40),
        "{:?}",
        output.compute
    );
    dispatch.close();
    assert_eq!(thread.join().unwrap(), RunEnd::Closed);
}

struct Panicking(FakeEngine);

impl Engine for Panicking {
    fn info(&self) -> &crate::engine::ModelInfo {
        self.0.info()
    }

    fn step(&mut self, _batch: &Batch) -> Result<LazyTensor, StepError> {
        panic!("bug in the engine");
    }
}

#[tokio::test]
async fn a_panic_on_the_engine_thread_loses_no_request() {
    let dispatch = Dispatch::new(config(8));
    let handle = dispatch.clone();
    let first = dispatch.submit(submission(vec![sequence(1, 8)]));
    let second = dispatch.submit(submission(vec![sequence(2, 8)]));
    let thread = async {
        tokio::task::spawn_blocking(move || {
            let engine = &mut Panicking(engine());
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| handle.run(engine))).is_err()
        })
        .await
        .unwrap()
    };
    let (first, second, panicked) = tokio::join!(first, second, thread);
    assert!(panicked);
    assert_eq!(
        first.unwrap_err(),
        Error::Internal("the step was lost".into())
    );
    assert!(matches!(second.unwrap_err(), Error::Unavailable(m) if m.contains("panicked")));
}
