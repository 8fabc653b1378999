//! A device that takes its time for each token and keeps account of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tulip::batch::Batch;
use tulip::engine::{Engine, ModelInfo, StepError};
use tulip::fake_engine::FakeEngine;
use tulip::lazy_tensor::{Event, LazyTensor};

/// What a device has done, for others to look at.
#[derive(Debug, Clone, Default)]
pub(crate) struct Work(Arc<Mutex<Account>>);

#[derive(Debug, Default)]
struct Account {
    started_tokens: usize,
    busy: Duration,
    /// End of the last step, as it was seen.
    free_since: Option<Instant>,
}

impl Work {
    pub(crate) fn started_tokens(&self) -> usize {
        self.0.lock().started_tokens
    }

    /// From the start of each step, or the end of the one before, to its end. Both are seen late
    /// where other processes take their part of the time.
    pub(crate) fn busy(&self) -> Duration {
        self.0.lock().busy
    }
}

/// One step after the other; rows as [`FakeEngine`] has them.
pub(crate) struct Device {
    info: ModelInfo,
    token: Duration,
    busy_until: Option<Instant>,
    work: Work,
}

impl Device {
    /// `token` is the time for each.
    pub(crate) fn new(info: ModelInfo, token: Duration, work: Work) -> Self {
        Self {
            info,
            token,
            busy_until: None,
            work,
        }
    }
}

impl Engine for Device {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn step(&mut self, batch: &Batch) -> Result<LazyTensor, StepError> {
        let started = Instant::now();
        self.work.0.lock().started_tokens += batch.num_tokens();
        let row = |sequence| FakeEngine::row(&self.info, sequence);
        let rows: Vec<f32> = batch.sequences().flat_map(row).collect();
        let duration = self.token * u32::try_from(batch.num_tokens()).unwrap();
        let begin = self.busy_until.map_or(started, |busy| busy.max(started));
        let finish = begin + duration;
        self.busy_until = Some(finish);
        let event = Box::new(Step {
            started,
            finish,
            work: self.work.clone(),
        });
        let (count, width) = (batch.num_sequences(), self.info.output_width);
        LazyTensor::pending(Box::new(rows), count, width, event, Some(duration))
    }
}

/// Waited for until it is complete, then no more.
struct Step {
    started: Instant,
    finish: Instant,
    work: Work,
}

impl Event for Step {
    fn is_complete(&self) -> Result<bool, StepError> {
        let now = Instant::now();
        if now < self.finish {
            return Ok(false);
        }
        let mut account = self.work.0.lock();
        let begin = account
            .free_since
            .map_or(self.started, |free| free.max(self.started));
        account.busy += now.saturating_duration_since(begin);
        account.free_since = Some(now);
        Ok(true)
    }

    fn wait(&self) -> Result<(), StepError> {
        while !self.is_complete()? {
            std::thread::sleep(self.finish.saturating_duration_since(Instant::now()));
        }
        Ok(())
    }
}
