//! First come, first served by tokens: two lanes of jobs become batches under a cost budget.
//!
//! Plain data without clock or threads: `dispatch.rs` owns the lock and passes the time in.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::batch::Batch;
use crate::config::SchedulerConfig;
use crate::error::{Error, Result};
use crate::job::{Job, Priority};

/// A job and how far it has been handed out.
#[derive(Debug)]
struct Queued {
    job: Arc<Job>,
    next: usize,
}

impl Queued {
    fn waiting_tokens(&self) -> u64 {
        self.job.sequences[self.next..]
            .iter()
            .map(|sequence| sequence.num_tokens() as u64)
            .sum()
    }

    fn waiting_sequences(&self) -> usize {
        self.job.sequences.len() - self.next
    }
}

/// Waiting jobs. Never holds more than `max_queued_tokens`.
#[derive(Debug)]
pub(crate) struct Scheduler {
    config: SchedulerConfig,
    interactive: VecDeque<Queued>,
    bulk: VecDeque<Queued>,
    queued_tokens: u64,
    queued_sequences: usize,
    /// Cost that bulk work is owed for the interactive steps it has waited through.
    bulk_credit: f64,
}

impl Scheduler {
    pub(crate) fn new(config: SchedulerConfig) -> Self {
        Self {
            config,
            interactive: VecDeque::new(),
            bulk: VecDeque::new(),
            queued_tokens: 0,
            queued_sequences: 0,
            bulk_credit: 0.0,
        }
    }

    pub(crate) fn config(&self) -> &SchedulerConfig {
        &self.config
    }

    pub(crate) fn queued_tokens(&self) -> u64 {
        self.queued_tokens
    }

    pub(crate) fn queued_sequences(&self) -> usize {
        self.queued_sequences
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.interactive.is_empty() && self.bulk.is_empty()
    }

    /// Whether what waits fills a whole batch, so that waiting longer cannot improve it.
    pub(crate) fn fills_a_batch(&self) -> bool {
        self.queued_tokens >= self.config.max_batch_tokens as u64
            || self.queued_sequences >= self.config.max_batch_sequences
    }

    /// Puts a job at the end of its lane, or refuses it.
    pub(crate) fn admit(&mut self, job: Arc<Job>, tokens_per_second: f64) -> Result<()> {
        let max_queued_tokens = self.config.max_queued_tokens;
        if job.num_tokens > max_queued_tokens {
            return Err(Error::invalid(
                "request",
                format!(
                    "has {} tokens, limit max_queued_tokens={max_queued_tokens}",
                    job.num_tokens
                ),
            ));
        }
        if self.queued_tokens + job.num_tokens > max_queued_tokens {
            let excess = self.queued_tokens + job.num_tokens - max_queued_tokens;
            return Err(Error::QueueFull {
                request_tokens: job.num_tokens,
                queued_tokens: self.queued_tokens,
                max_queued_tokens,
                retry_after: retry_after(excess, tokens_per_second),
            });
        }
        self.queued_tokens += job.num_tokens;
        self.queued_sequences += job.sequences.len();
        self.lane(job.priority).push_back(Queued { job, next: 0 });
        Ok(())
    }

    /// Removes what still waits of a job that nobody wants any more.
    pub(crate) fn forget(&mut self, job: &Arc<Job>) {
        let lane = self.lane(job.priority);
        if let Some(at) = lane.iter().position(|queued| Arc::ptr_eq(&queued.job, job))
            && let Some(queued) = lane.remove(at)
        {
            self.release(&queued);
        }
    }

    /// Takes every waiting job out.
    pub(crate) fn take_all(&mut self) -> Vec<Arc<Job>> {
        self.queued_tokens = 0;
        self.queued_sequences = 0;
        let lanes = self.interactive.drain(..).chain(self.bulk.drain(..));
        lanes.map(|queued| queued.job).collect()
    }

    /// The next step's work, or `None` when nothing (wanted) waits. Lanes are not mixed in one
    /// step: bulk rows would stretch the step that somebody is waiting for.
    pub(crate) fn next_batch(&mut self, now: Instant) -> Option<Batch> {
        let priority = self.next_lane(now)?;
        let mut batch = Batch::default();
        while let Some((job, next)) = self.front(priority, now) {
            let whole = batch.num_sequences() == 0 && self.stays_whole(&job, next);
            let mut taken = 0;
            for (index, sequence) in job.sequences.iter().enumerate().skip(next) {
                let cost = self.config.cost.sequence(sequence.num_tokens());
                if !whole && !self.fits(&batch, sequence.num_tokens(), cost) {
                    break;
                }
                batch.push(&job, index, cost);
                self.queued_tokens -= sequence.num_tokens() as u64;
                self.queued_sequences -= 1;
                taken += 1;
            }
            let lane = self.lane(priority);
            if next + taken < job.sequences.len() {
                if let Some(queued) = lane.front_mut() {
                    queued.next += taken;
                }
                break;
            }
            lane.pop_front();
        }
        if batch.num_sequences() == 0 {
            return None;
        }
        self.account_share(priority, batch.cost());
        Some(batch)
    }

    /// Whether one more sequence fits. A sequence above the budget runs alone.
    fn fits(&self, batch: &Batch, num_tokens: usize, cost: u64) -> bool {
        batch.num_sequences() == 0
            || (batch.cost().saturating_add(cost) <= self.config.max_batch_cost
                && batch.num_tokens() + num_tokens <= self.config.max_batch_tokens
                && batch.num_sequences() < self.config.max_batch_sequences)
    }

    /// Whether the rest of a job is one step, larger than a batch. Two steps of which the second is
    /// small take longer, and whoever waits behind them waits for both either way. Bulk work gains
    /// no time that anybody waits for, and would hold interactive work up for longer.
    fn stays_whole(&self, job: &Job, next: usize) -> bool {
        let config = &self.config;
        if job.priority == Priority::Bulk
            || config.max_whole_request_tokens <= config.max_batch_tokens
            || job.sequences.len() - next > config.max_batch_sequences
        {
            return false;
        }
        let max_cost = config.max_step_cost();
        let (mut tokens, mut cost) = (0_usize, 0_u64);
        // Ends early for a rest that is far too large.
        job.sequences[next..].iter().all(|sequence| {
            tokens = tokens.saturating_add(sequence.num_tokens());
            cost = cost.saturating_add(config.cost.sequence(sequence.num_tokens()));
            tokens <= config.max_whole_request_tokens && cost <= max_cost
        })
    }

    /// Which lane runs next: interactive, unless bulk is owed a step.
    fn next_lane(&mut self, now: Instant) -> Option<Priority> {
        let interactive = self.front(Priority::Interactive, now).is_some();
        let bulk = self.front(Priority::Bulk, now);
        match (interactive, bulk) {
            (false, None) => None,
            (true, None) => Some(Priority::Interactive),
            (false, Some(_)) => Some(Priority::Bulk),
            (true, Some((job, next))) => {
                let cost = self.config.cost.sequence(job.sequences[next].num_tokens());
                // What runs alone may cost more than can be owed.
                let owed = self.bulk_credit >= (cost as f64).min(self.max_bulk_credit());
                Some(if owed {
                    Priority::Bulk
                } else {
                    Priority::Interactive
                })
            }
        }
    }

    /// Bulk earns credit while it waits for interactive steps, and pays for its own: with debt, where
    /// what runs alone cost more than it was owed, which is worked off before it earns again.
    fn account_share(&mut self, priority: Priority, cost: u64) {
        let share = self.config.bulk_share;
        match priority {
            Priority::Interactive => {
                let earned = cost as f64 * share / (1.0 - share).max(0.01);
                self.bulk_credit = (self.bulk_credit + earned).min(self.max_bulk_credit());
            }
            // Nobody waits for it: nothing is paid, and no debt is left.
            Priority::Bulk if self.interactive.is_empty() => {
                self.bulk_credit = self.bulk_credit.max(0.0);
            }
            Priority::Bulk => self.bulk_credit -= cost as f64,
        }
        if self.bulk.is_empty() {
            self.bulk_credit = self.bulk_credit.min(0.0);
        }
    }

    /// What bulk is owed at the most, the cost of the largest step: a burst after a long wait is short.
    fn max_bulk_credit(&self) -> f64 {
        self.config.max_step_cost() as f64
    }

    /// The first job of a lane that is still wanted, and its next sequence. Drops those before it.
    fn front(&mut self, priority: Priority, now: Instant) -> Option<(Arc<Job>, usize)> {
        loop {
            let queued = self.lane(priority).front()?;
            if queued.job.is_expired(now) {
                queued.job.expire(now);
            } else if queued.job.is_wanted() {
                return Some((Arc::clone(&queued.job), queued.next));
            }
            if let Some(dropped) = self.lane(priority).pop_front() {
                self.release(&dropped);
            }
        }
    }

    fn release(&mut self, queued: &Queued) {
        self.queued_tokens -= queued.waiting_tokens();
        self.queued_sequences -= queued.waiting_sequences();
    }

    fn lane(&mut self, priority: Priority) -> &mut VecDeque<Queued> {
        match priority {
            Priority::Interactive => &mut self.interactive,
            Priority::Bulk => &mut self.bulk,
        }
    }
}

/// Time to work off `excess` tokens, between 10 ms and 10 s.
fn retry_after(excess: u64, tokens_per_second: f64) -> Duration {
    const UNKNOWN: Duration = Duration::from_millis(100);
    if tokens_per_second <= 0.0 {
        return UNKNOWN;
    }
    Duration::from_secs_f64((excess as f64 / tokens_per_second).clamp(0.01, 10.0))
}

#[cfg(test)]
#[path = "scheduler_tests.rs"]
mod tests;
