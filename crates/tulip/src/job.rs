//! One admitted request: its sequences, the rows that have come back, and who waits for them.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::error::Error;
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
    /// `[sequences, width]` row-major, in the order of the submission.
    pub rows: Vec<f32>,
    /// Values in a row.
    pub width: usize,
    /// Indices of rows that hold NaN or infinity, ascending.
    pub not_finite: Vec<usize>,
    /// Admission to the start of the first step.
    pub queue: Duration,
    /// Start of the first step to the last row.
    pub compute: Duration,
    /// This job's share of padding, by tokens.
    pub padding_tokens: u64,
}

/// One admitted request, shared by the batches that hold its sequences.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) sequences: Vec<Sequence>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) state: Mutex<JobState>,
}

#[derive(Debug)]
pub(crate) struct JobState {
    pub(crate) reply: Option<oneshot::Sender<Result<JobOutput, Error>>>,
}
