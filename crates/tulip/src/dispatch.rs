//! Jobs in, steps out: the queue that callers and the engine thread share, and the loop that runs it.
//!
//! The engine thread itself takes the next batch, at the moment it can start it: no task in between
//! that would have to be woken, and the batch is formed as late as it can be. While a step runs on
//! the device the next one is enqueued just before the predicted finish.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::awake::Awake;
use crate::batch::Batch;
use crate::config::SchedulerConfig;
use crate::engine::{Engine, GraphCounters, StepError};
use crate::error::{Error, Result};
use crate::job::{Job, JobOutput, Submission};
use crate::load::Load;
use crate::pace::Pace;
use crate::scheduler::Scheduler;
use crate::step_in_flight::StepInFlight;
use crate::step_metrics;
use crate::waiter::{Pending, Waiter};

/// Why [`Dispatch::run`] returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEnd {
    /// Closed, and the queue is empty.
    Closed,
    /// The engine is broken for good.
    Fatal(String),
}

/// Handle of the queue; cheap to clone.
#[derive(Debug, Clone)]
pub struct Dispatch {
    shared: Arc<Shared>,
}

/// What callers, engine thread and waiter share.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    /// The engine thread waits here: for work, for a finished step, for the pace.
    work: Condvar,
    /// Notified whenever nothing waits and nothing runs.
    idle: Notify,
    awake: Arc<Awake>,
}

#[derive(Debug)]
struct State {
    scheduler: Scheduler,
    running_tokens: u64,
    steps_in_flight: usize,
    pace: Pace,
    graphs: Option<GraphCounters>,
    /// Why no more work is taken.
    stopped: Option<String>,
    /// Why the engine is broken for good.
    broken: Option<String>,
}

impl Dispatch {
    /// An empty queue. Nothing runs until [`Dispatch::run`] is called on the engine thread.
    #[must_use]
    pub fn new(config: SchedulerConfig) -> Self {
        let awake = Awake::new(config.spin);
        let state = State {
            scheduler: Scheduler::new(config),
            running_tokens: 0,
            steps_in_flight: 0,
            pace: Pace::default(),
            graphs: None,
            stopped: None,
            broken: None,
        };
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                work: Condvar::new(),
                idle: Notify::new(),
                awake,
            }),
        }
    }

    /// Queues the sequences and waits for their rows. Dropping the future takes back what has not
    /// been handed to the engine; so does the deadline.
    ///
    /// # Errors
    /// [`Error::QueueFull`], [`Error::DeadlineExceeded`], [`Error::Unavailable`] when stopped,
    /// [`Error::Internal`] when the step failed, [`Error::InvalidArgument`] for what can never fit.
    pub async fn submit(&self, submission: Submission) -> Result<JobOutput> {
        let arrived = Instant::now();
        if submission.sequences.is_empty()
            || submission.sequences.iter().any(|s| s.token_ids.is_empty())
        {
            return Err(Error::invalid(
                "sequences",
                "each request needs a sequence, each sequence a token",
            ));
        }
        let deadline = submission.deadline;
        if deadline.is_some_and(|deadline| deadline <= arrived) {
            return Err(Error::DeadlineExceeded { waited_ms: 0 });
        }
        let (job, reply) = Job::new(submission, arrived);
        let job = Arc::new(job);
        self.shared.enqueue(&job)?;
        self.shared.awake.keep_polling();
        let mut cancel = CancelOnDrop {
            shared: &self.shared,
            job: Some(job),
        };
        let result = match deadline {
            None => reply.await,
            Some(deadline) => match tokio::time::timeout_at(deadline, reply).await {
                Ok(result) => result,
                Err(_) => {
                    let waited_ms = arrived.elapsed().as_millis() as u64;
                    return Err(Error::DeadlineExceeded { waited_ms });
                }
            },
        };
        cancel.job = None;
        self.shared.awake.keep_polling();
        result.unwrap_or_else(|_| Err(Error::Unavailable("the engine has stopped".into())))
    }

    /// What waits and what runs.
    #[must_use]
    pub fn load(&self) -> Load {
        let state = self.shared.state.lock();
        Load {
            queued_tokens: state.scheduler.queued_tokens(),
            queued_sequences: state.scheduler.queued_sequences(),
            running_tokens: state.running_tokens,
            steps_in_flight: state.steps_in_flight,
            max_queued_tokens: state.scheduler.config().max_queued_tokens,
            tokens_per_second: state.pace.tokens_per_second(),
            graphs: state.graphs,
        }
    }

    /// Takes no more work; [`Dispatch::run`] returns once what waits has run.
    pub fn close(&self) {
        let mut state = self.shared.state.lock();
        state.stopped.get_or_insert_with(|| "shutting down".into());
        drop(state);
        self.shared.awake.arrived();
        self.shared.work.notify_all();
    }

    /// Takes no more work and fails what waits; steps in flight still finish.
    pub fn abort(&self, reason: &str) {
        self.shared.stop(reason);
    }

    /// Waits until nothing waits and nothing runs.
    pub async fn drained(&self) {
        loop {
            let notified = self.shared.idle.notified();
            if self.shared.is_idle() {
                return;
            }
            notified.await;
        }
    }

    /// Runs batches until closed or broken. Blocks: call it on the thread that owns the engine.
    pub fn run(&self, engine: &mut dyn Engine) -> RunEnd {
        let layout = Arc::new(engine.info().layout.clone());
        let _stop = StopOnDrop {
            shared: &self.shared,
        };
        let mut waiter: Option<Waiter> = None;
        self.shared.note_graphs(engine.graphs());
        loop {
            let mut next = None;
            engine.wait(&mut || next = self.shared.next_batch());
            let Some(batch) = next else { break };
            let step = StepInFlight::new(&self.shared, &layout, batch);
            let result = engine.step(step.batch());
            match result {
                Ok(output) if output.event().is_none() => step.complete(&output),
                Ok(output) => {
                    let expected = self.shared.state.lock().pace.step_enqueued(
                        step.started().into_std(),
                        std::time::Instant::now(),
                        output.predicted(),
                    );
                    let waiter = match &mut waiter {
                        Some(waiter) => waiter,
                        none => {
                            match Waiter::spawn(&self.shared, self.shared.max_steps_in_flight()) {
                                Ok(spawned) => none.insert(spawned),
                                Err(error) => {
                                    self.shared
                                        .break_down(&format!("no waiter thread: {error}"));
                                    break;
                                }
                            }
                        }
                    };
                    waiter.send(Pending {
                        step,
                        output,
                        expected,
                    });
                }
                Err(error) => {
                    step.fail(&error);
                    if let StepError::Fatal(message) = error {
                        self.shared.break_down(&message);
                        break;
                    }
                }
            }
            // While the device computes.
            self.shared.note_graphs(engine.graphs());
        }
        engine.wait(&mut || {
            if let Some(waiter) = waiter.take() {
                waiter.join();
            }
        });
        match self.shared.state.lock().broken.clone() {
            Some(message) => RunEnd::Fatal(message),
            None => RunEnd::Closed,
        }
    }
}

impl Shared {
    fn max_steps_in_flight(&self) -> usize {
        self.state.lock().scheduler.config().max_steps_in_flight
    }

    fn enqueue(&self, job: &Arc<Job>) -> Result<()> {
        let mut state = self.state.lock();
        if let Some(reason) = state.broken.as_ref().or(state.stopped.as_ref()) {
            return Err(Error::Unavailable(reason.clone()));
        }
        let tokens_per_second = state.pace.tokens_per_second();
        state.scheduler.admit(Arc::clone(job), tokens_per_second)?;
        drop(state);
        self.awake.arrived();
        self.work.notify_one();
        Ok(())
    }

    /// Blocks until a batch can start; `None` when there is no more.
    fn next_batch(&self) -> Option<Batch> {
        let mut state = self.state.lock();
        let mut spun = false;
        loop {
            if state.broken.is_some() {
                return None;
            }
            if state.scheduler.is_empty() {
                if state.stopped.is_some() {
                    return None;
                }
                if !spun {
                    spun = true;
                    let seen = self.awake.arrivals();
                    MutexGuard::unlocked(&mut state, || self.awake.spin_for_arrival(seen));
                } else {
                    self.work.wait(&mut state);
                }
                continue;
            }
            if state.steps_in_flight >= state.scheduler.config().max_steps_in_flight {
                self.work.wait(&mut state);
                continue;
            }
            let now = Instant::now();
            if state.steps_in_flight > 0
                && !state.scheduler.fills_a_batch()
                && let Some(start) = state.pace.next_start(now.into_std())
            {
                self.work.wait_until(&mut state, start);
                continue;
            }
            if let Some(batch) = state.scheduler.next_batch(now) {
                state.steps_in_flight += 1;
                state.running_tokens += batch.num_tokens() as u64;
                return Some(batch);
            }
            // All that waited was abandoned or expired.
            self.notify_if_idle(&state);
        }
    }

    fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.scheduler.is_empty() && state.steps_in_flight == 0
    }

    fn notify_if_idle(&self, state: &State) {
        if state.scheduler.is_empty() && state.steps_in_flight == 0 {
            self.idle.notify_waiters();
        }
    }

    fn note_graphs(&self, graphs: Option<GraphCounters>) {
        if let Some(counters) = &graphs {
            step_metrics::graphs(counters);
            self.state.lock().graphs = graphs;
        }
    }

    /// A step has left the engine, for better or worse.
    pub(crate) fn step_finished(&self, started: Instant, num_tokens: usize) {
        let mut state = self.state.lock();
        state.steps_in_flight -= 1;
        state.running_tokens -= num_tokens as u64;
        let now = std::time::Instant::now();
        state
            .pace
            .step_finished(started.into_std(), now, num_tokens);
        self.notify_if_idle(&state);
        drop(state);
        self.awake.touch();
        self.work.notify_one();
    }

    /// Marks the engine as broken for good and fails what waits.
    pub(crate) fn break_down(&self, message: &str) {
        self.state
            .lock()
            .broken
            .get_or_insert_with(|| message.into());
        self.stop(&format!("the engine has failed: {message}"));
    }

    fn stop(&self, reason: &str) {
        let mut state = self.state.lock();
        let reason = state.stopped.get_or_insert_with(|| reason.into()).clone();
        let jobs = state.scheduler.take_all();
        self.notify_if_idle(&state);
        drop(state);
        for job in jobs {
            job.fail(Error::Unavailable(reason.clone()));
        }
        self.awake.arrived();
        self.work.notify_all();
    }
}

/// Takes a job back when its caller goes away.
struct CancelOnDrop<'a> {
    shared: &'a Shared,
    job: Option<Arc<Job>>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(job) = self.job.take() {
            let mut state = self.shared.state.lock();
            state.scheduler.forget(&job);
            self.shared.notify_if_idle(&state);
        }
    }
}

/// Fails what waits when the engine thread ends, however it ends.
struct StopOnDrop<'a> {
    shared: &'a Shared,
}

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.break_down("the engine thread panicked");
        } else {
            self.shared.stop("the engine has stopped");
        }
    }
}

#[cfg(test)]
#[path = "dispatch_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "dispatch_unrun_tests.rs"]
mod unrun_tests;
