//! One request from the first chunk out to the last answer in. Dropping it drops its calls.
//!
//! What goes out is in `run/hand_out.rs`, what comes in in `run/settle.rs`, second calls for late
//! chunks in `run/hedging.rs`.

mod hand_out;
mod hedging;
mod settle;

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use metrics::histogram;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};
use tonic::Status;

use super::chunk::Chunk;
use super::plan::Plan;
use super::{Part, Split, room};
use crate::fleet::metrics::REQUEST_CHUNKS;
use crate::fleet::registry::{Group, Registry};
use crate::replica::Ticket;
use crate::retry::RetryBudget;

/// What requests share beside the replicas.
#[derive(Debug)]
pub(crate) struct Budgets {
    pub(crate) retries: RetryBudget,
    pub(crate) hedges: Option<RetryBudget>,
}

/// Answers `request` by the replicas of its model.
///
/// # Errors
/// The status of a chunk that failed for good, or ours: no replica, no time.
pub(crate) async fn run<R: Split>(
    registry: &Registry,
    budgets: &Budgets,
    model: &str,
    request: R,
    deadline: Instant,
) -> Result<R::Answer, Status> {
    let started = Instant::now();
    let run = Run::new(registry, budgets, model, request, deadline)?;
    match timeout_at(deadline, run.answer()).await {
        Ok(answered) => answered,
        Err(_) => {
            let waited_ms = started.elapsed().as_millis();
            let message = format!("deadline exceeded after {waited_ms} ms");
            Err(Status::deadline_exceeded(message))
        }
    }
}

/// Which chunk a call was for, and how it ended; `None` when it was taken back.
type Ended<A> = (usize, Option<(Ticket, Result<A, Status>)>);

struct Run<'a, R: Split> {
    registry: &'a Registry,
    budgets: &'a Budgets,
    /// Who serves the model; its identity stays the same while this runs.
    group: Arc<Group>,
    changed: watch::Receiver<u64>,
    request: R,
    plan: Plan,
    chunks: Vec<Chunk<R::Answer>>,
    /// Chunks to be sent again.
    again: VecDeque<usize>,
    calls: FuturesUnordered<BoxFuture<'static, Ended<R::Answer>>>,
    deadline: Instant,
}

impl<'a, R: Split> Run<'a, R> {
    fn new(
        registry: &'a Registry,
        budgets: &'a Budgets,
        model: &str,
        request: R,
        deadline: Instant,
    ) -> Result<Self, Status> {
        let changed = registry.subscribe();
        let group = registry.group(model)?;
        let limits = group.model.limits();
        let max_tokens = limits.max_sequence_tokens as usize;
        let weights = request.weights(max_tokens);
        room::check(
            R::ITEMS,
            &weights,
            &registry.max_queued_tokens(&group.model),
        )?;
        let plan = Plan::new(
            weights,
            request.is_divisible(),
            registry.config.split,
            limits,
        );
        Ok(Self {
            registry,
            budgets,
            group,
            changed,
            request,
            plan,
            chunks: Vec::new(),
            again: VecDeque::new(),
            calls: FuturesUnordered::new(),
            deadline,
        })
    }

    async fn answer(mut self) -> Result<R::Answer, Status> {
        loop {
            self.hand_out()?;
            if self.is_done() {
                break;
            }
            if self.calls.is_empty() {
                self.wait_for_replica().await?;
                continue;
            }
            let hedge_at = self.next_hedge();
            let unsent = self.has_unsent();
            tokio::select! {
                // One that was taken back ends too: what matches nothing would not be looked at again.
                ended = self.calls.next() => {
                    if let Some((chunk, Some((ticket, result)))) = ended {
                        self.settle(chunk, ticket, result)?;
                    }
                }
                () = sleep_until(hedge_at.unwrap_or(self.deadline)), if hedge_at.is_some() => {
                    self.hedge();
                }
                Ok(()) = self.changed.changed(), if unsent => {}
            }
        }
        histogram!(REQUEST_CHUNKS).record(self.chunks.len() as f64);
        self.chunks.sort_unstable_by_key(|chunk| chunk.items.start);
        let answered = |chunk: Chunk<R::Answer>| {
            let items = chunk.items;
            chunk.answer.map(|answer| Part { items, answer })
        };
        let mut parts: Vec<Part<R::Answer>> =
            self.chunks.into_iter().filter_map(answered).collect();
        if parts.len() == 1 {
            return Ok(parts.swap_remove(0).answer);
        }
        let merged = self.request.merge(parts);
        merged.map_err(|error| Status::internal(error.to_string()))
    }

    fn has_unsent(&self) -> bool {
        !self.plan.is_empty() || !self.again.is_empty()
    }

    fn is_done(&self) -> bool {
        !self.has_unsent() && self.chunks.iter().all(|chunk| chunk.answer.is_some())
    }
}
