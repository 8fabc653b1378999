//! A step between the queue and its results: whatever happens, its requests get an answer and its
//! tokens are given back.

use std::sync::Arc;

use tokio::time::Instant;

use crate::batch::{Batch, BatchLayout};
use crate::dispatch::Shared;
use crate::engine::StepError;
use crate::error::Error;
use crate::lazy_tensor::LazyTensor;
use crate::step_metrics;

/// A step that the engine has; accounts for itself.
pub(crate) struct StepInFlight {
    shared: Arc<Shared>,
    layout: Arc<BatchLayout>,
    batch: Batch,
    started: Instant,
    finished: bool,
}

impl StepInFlight {
    pub(crate) fn new(shared: &Arc<Shared>, layout: &Arc<BatchLayout>, batch: Batch) -> Self {
        Self {
            shared: Arc::clone(shared),
            layout: Arc::clone(layout),
            batch,
            started: Instant::now(),
            finished: false,
        }
    }

    pub(crate) fn batch(&self) -> &Batch {
        &self.batch
    }

    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// Hands the rows to their jobs.
    pub(crate) fn complete(mut self, output: &LazyTensor) {
        step_metrics::step_finished(&self.layout, &self.batch, self.started.elapsed());
        match self.batch.complete(output, &self.layout, self.started) {
            Ok(()) => self.finished = true,
            Err(error) => self.fail(&error),
        }
    }

    /// Fails every job of the step.
    pub(crate) fn fail(mut self, error: &StepError) {
        tracing::error!(%error, sequences = self.batch.num_sequences(), tokens = self.batch.num_tokens(), "step failed");
        step_metrics::step_failed();
        self.batch.fail(&match error {
            StepError::Batch(message) => Error::Internal(format!("the step failed: {message}")),
            StepError::Fatal(message) => {
                Error::Unavailable(format!("the engine has failed: {message}"))
            }
        });
        self.finished = true;
    }
}

impl Drop for StepInFlight {
    fn drop(&mut self) {
        if !self.finished {
            self.batch
                .fail(&Error::Internal("the step was lost".into()));
        }
        self.shared
            .step_finished(self.started, self.batch.num_tokens());
    }
}
