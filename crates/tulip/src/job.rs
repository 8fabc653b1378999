//! One admitted request: its sequences, the rows that have come back, and who waits for them.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::sequence::Sequence;

/// Which lane a job waits in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Priority {
    /// Somebody is waiting.
    #[default]
    Interactive,
    /// Throughput work; keeps a guaranteed share.
    Bulk,
}

/// What a caller hands over.
#[derive(Debug)]
pub struct Submission {
    /// At least one; each no longer than the model allows.
    pub sequences: Vec<Sequence>,
    /// Lane.
    pub priority: Priority,
    /// After this nobody waits any more.
    pub deadline: Option<Instant>,
}

/// What a caller gets back.
#[derive(Debug, Clone, PartialEq)]
pub struct JobOutput {
    /// `[sequences, width]` row-major, in the order of the submission; of a model with a row for
    /// each token `[tokens, width]`.
    pub rows: Vec<f32>,
    /// Where the rows of each sequence begin in `rows`, and where the last ones end.
    pub starts: Vec<usize>,
    /// Values in a row.
    pub width: usize,
    /// Indices of sequences whose rows hold NaN or infinity, ascending; theirs are zeros.
    pub not_finite: Vec<usize>,
    /// Admission to the start of the first step.
    pub queue: Duration,
    /// Start of the first step to the last row.
    pub compute: Duration,
    /// This job's share of padding, by tokens.
    pub padding_tokens: u64,
}

impl JobOutput {
    /// The row of a sequence, or the rows of its tokens.
    #[must_use]
    pub fn of(&self, sequence: usize) -> &[f32] {
        &self.rows[self.starts[sequence]..self.starts[sequence + 1]]
    }
}

/// One admitted request, shared by the batches that hold its sequences.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) sequences: Vec<Sequence>,
    pub(crate) priority: Priority,
    pub(crate) deadline: Option<Instant>,
    pub(crate) arrived: Instant,
    pub(crate) num_tokens: u64,
    state: Mutex<JobState>,
}

/// What changes while the job's sequences come back, in any order of steps.
#[derive(Debug)]
struct JobState {
    /// Taken by whatever ends the job first: last row, failure or expiry.
    reply: Option<oneshot::Sender<Result<JobOutput>>>,
    rows: Vec<f32>,
    starts: Vec<usize>,
    remaining: usize,
    not_finite: Vec<usize>,
    first_step: Option<Instant>,
    padding_tokens: u64,
}

impl Job {
    pub(crate) fn new(
        submission: Submission,
        arrived: Instant,
    ) -> (Self, oneshot::Receiver<Result<JobOutput>>) {
        let (reply, receiver) = oneshot::channel();
        let num_tokens = submission
            .sequences
            .iter()
            .map(|sequence| sequence.num_tokens() as u64)
            .sum();
        let state = JobState {
            reply: Some(reply),
            rows: Vec::new(),
            starts: Vec::new(),
            remaining: submission.sequences.len(),
            not_finite: Vec::new(),
            first_step: None,
            padding_tokens: 0,
        };
        let job = Self {
            sequences: submission.sequences,
            priority: submission.priority,
            deadline: submission.deadline,
            arrived,
            num_tokens,
            state: Mutex::new(state),
        };
        (job, receiver)
    }

    /// Whether somebody still waits for the result.
    pub(crate) fn is_wanted(&self) -> bool {
        self.state
            .lock()
            .reply
            .as_ref()
            .is_some_and(|reply| !reply.is_closed())
    }

    pub(crate) fn is_expired(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Ends the job with an error, unless it has ended.
    pub(crate) fn fail(&self, error: Error) {
        let reply = self.state.lock().reply.take();
        if let Some(reply) = reply {
            // The caller may have gone: then nobody needs the error.
            let _ = reply.send(Err(error));
        }
    }

    pub(crate) fn expire(&self, now: Instant) {
        let waited_ms = now.duration_since(self.arrived).as_millis() as u64;
        self.fail(Error::DeadlineExceeded { waited_ms });
    }

    /// Takes rows that one step has computed: `(index of the sequence, its row or rows)`. Sends the
    /// result once the last one is there.
    pub(crate) fn deliver<'a>(
        &self,
        width: usize,
        token_rows: bool,
        rows: impl Iterator<Item = (usize, &'a [f32])>,
        step_started: Instant,
        padding_tokens: u64,
    ) {
        let mut state = self.state.lock();
        if state.reply.is_none() {
            return;
        }
        if state.starts.is_empty() {
            state.starts.push(0);
            let mut end = 0;
            for sequence in &self.sequences {
                end += width * if token_rows { sequence.num_tokens() } else { 1 };
                state.starts.push(end);
            }
            state.rows = vec![0.0; end];
        }
        state.first_step.get_or_insert(step_started);
        state.padding_tokens += padding_tokens;
        for (index, row) in rows {
            if row.iter().all(|value| value.is_finite()) {
                let start = state.starts[index];
                state.rows[start..start + row.len()].copy_from_slice(row);
            } else {
                state.not_finite.push(index);
            }
            state.remaining -= 1;
        }
        if state.remaining > 0 {
            return;
        }
        let first_step = state.first_step.unwrap_or(step_started);
        let mut output = JobOutput {
            rows: std::mem::take(&mut state.rows),
            starts: std::mem::take(&mut state.starts),
            width,
            not_finite: std::mem::take(&mut state.not_finite),
            queue: first_step.duration_since(self.arrived),
            compute: first_step.elapsed(),
            padding_tokens: state.padding_tokens,
        };
        output.not_finite.sort_unstable();
        let reply = state.reply.take();
        drop(state);
        if let Some(reply) = reply {
            let _ = reply.send(Ok(output));
        }
    }
}
