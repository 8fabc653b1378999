//! One request from the first chunk out to the last answer in. Dropping it drops its calls.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::future::{BoxFuture, abortable};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use metrics::{counter, histogram};
use rand::seq::SliceRandom as _;
use tokio::sync::watch;
use tokio::time::{Duration, Instant, sleep_until, timeout_at};
use tonic::Status;

use super::chunk::{Chunk, InFlight};
use super::plan::Plan;
use super::{Part, Split, path};
use crate::balancer::{Candidate, candidates, pick};
use crate::fleet::metrics::{CHUNK_TOKENS, HEDGES, REQUEST_CHUNKS, RETRIES, RETRIES_REFUSED};
use crate::fleet::registry::{Group, Registry, unavailable};
use crate::replica::connection::{chain_of, until};
use crate::replica::{Phase, Replica, Ticket};
use crate::retry::{Failure, RetryBudget};

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
        let plan = Plan::new(
            request.weights(max_tokens),
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
                Some((chunk, Some((ticket, result)))) = self.calls.next() => {
                    self.settle(chunk, ticket, result)?;
                }
                () = sleep_until(hedge_at.unwrap_or(self.deadline)), if hedge_at.is_some() => {
                    self.hedge();
                }
                Ok(()) = self.changed.changed(), if unsent => {}
                else => {}
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

    /// Sends all that should be on its way now.
    fn hand_out(&mut self) -> Result<(), Status> {
        if !self.has_unsent() {
            return Ok(());
        }
        self.regroup()?;
        let now = Instant::now();
        for _ in 0..self.again.len() {
            let Some(index) = self.again.pop_front() else {
                break;
            };
            let chunk = &self.chunks[index];
            let mut candidates = candidates(&self.group.replicas, now);
            let untried = |candidate: &Candidate| !chunk.was_tried_at(&candidate.replica);
            if candidates.iter().any(untried) {
                candidates.retain(untried);
            }
            let sent = match pick(&candidates, chunk.tokens) {
                Some(candidate) => self.send(index, candidate, false),
                None => false,
            };
            if !sent {
                self.again.push_back(index);
            }
        }
        while !self.plan.is_empty() {
            let mut candidates = candidates(&self.group.replicas, now);
            let cut = if self.plan.is_small() {
                let tokens = self.plan.total_tokens();
                pick(&candidates, tokens).map(|candidate| (candidate, self.plan.cut_all()))
            } else {
                // Where several are equally good, gateways do not all begin with the same.
                candidates.shuffle(&mut rand::rng());
                let in_flight = self.registry.config.split.chunks_in_flight;
                let chunks = &self.chunks;
                let free = |candidate: &Candidate| {
                    let here = |chunk: &&Chunk<_>| chunk.is_at(&candidate.replica);
                    chunks.iter().filter(here).count() < in_flight
                };
                let next = self.plan.next(&candidates, free);
                next.map(|(index, items)| (&candidates[index], items))
            };
            let Some((candidate, items)) = cut else {
                break;
            };
            let tokens = self.plan.tokens(&items);
            histogram!(CHUNK_TOKENS).record(tokens as f64);
            self.budgets.retries.deposit();
            if let Some(hedges) = &self.budgets.hedges {
                hedges.deposit();
            }
            self.chunks.push(Chunk::new(items, tokens));
            let index = self.chunks.len() - 1;
            if !self.send(index, candidate, false) {
                self.again.push_back(index);
            }
        }
        Ok(())
    }

    /// Sees who serves the model now.
    fn regroup(&mut self) -> Result<(), Status> {
        let model = &self.group.model;
        let Ok(group) = self.registry.group(model.name()) else {
            return Ok(());
        };
        if !Arc::ptr_eq(&group.model, model) {
            let name = model.name();
            let message = format!("the replicas of {name} have changed to another version of it");
            return Err(unavailable(message));
        }
        self.group = group;
        Ok(())
    }

    /// Sends a chunk; `false` when the replica has gone out of use since it was chosen.
    fn send(&mut self, index: usize, candidate: &Candidate, is_hedge: bool) -> bool {
        let chunk = &mut self.chunks[index];
        let bulk = 2 * chunk.tokens >= self.registry.config.split.min_chunk_tokens;
        let Some(ticket) = candidate.replica.begin(chunk.tokens, bulk) else {
            return false;
        };
        let part = self
            .request
            .part(chunk.items.clone(), self.group.model.name());
        let call = R::send(ticket.connection(), until(part, self.deadline));
        let (call, abort) = abortable(async move {
            let result = call.await;
            (ticket, result)
        });
        self.calls
            .push(Box::pin(async move { (index, call.await.ok()) }));
        chunk.attempts += 1;
        let seconds = candidate.completion(chunk.tokens);
        let expected = Duration::try_from_secs_f64(seconds).ok();
        chunk.calls.push(InFlight {
            replica: Arc::clone(&candidate.replica),
            abort,
            sent: Instant::now(),
            expected: expected.filter(|_| candidate.known),
            is_hedge,
        });
        true
    }

    fn settle(
        &mut self,
        index: usize,
        ticket: Ticket,
        result: Result<R::Answer, Status>,
    ) -> Result<(), Status> {
        let replica = Arc::clone(ticket.replica());
        let call = self.chunks[index].ended(&replica);
        let (status, failure) = match result {
            Ok(answer) => {
                let report = R::report(&answer);
                let expected = &self.group.model.info.fingerprint;
                if report.fingerprint.is_empty() || report.fingerprint == expected {
                    let draining = report.load.is_some_and(|load| load.draining);
                    ticket.succeed(report.load, report.timings);
                    if draining {
                        let status = Status::unavailable("it says that it is draining");
                        let registry = self.registry;
                        registry.take_down(&replica, Phase::Draining, "draining", &status);
                    }
                    self.keep(index, answer, call.is_some_and(|call| call.is_hedge));
                    return Ok(());
                }
                drop(ticket);
                self.registry.note_other_model(&replica);
                let message = "the replica answered with another model than before";
                (unavailable(message), Failure::NotServing)
            }
            Err(status) => {
                let failure = self.registry.note_failure(ticket, &status);
                (status, failure)
            }
        };
        let chunk = &mut self.chunks[index];
        if chunk.answer.is_some() || !chunk.calls.is_empty() {
            // The other of two calls answers.
            return Ok(());
        }
        chunk.tried.push(Arc::clone(&replica));
        let reason = match failure {
            Failure::Request | Failure::Step => {
                return Err(path::shift_status(status, R::ITEMS, chunk.items.start));
            }
            Failure::Full => {
                if chunk.refused || !self.has_untried(index) {
                    return Err(status);
                }
                self.chunks[index].refused = true;
                "full"
            }
            Failure::NotServing => "not_serving",
            Failure::Connection => "connection",
        };
        let attempts_left = self.chunks[index].attempts < self.registry.config.max_attempts;
        if attempts_left && self.budgets.retries.withdraw() {
            counter!(RETRIES, "reason" => reason).increment(1);
            self.again.push_back(index);
            return Ok(());
        }
        if attempts_left {
            counter!(RETRIES_REFUSED).increment(1);
        }
        Err(match failure {
            Failure::Full => status,
            _ => unavailable(format!(
                "replica {}: {}",
                replica.label(),
                chain_of(&status)
            )),
        })
    }

    /// The first answer counts; a second call for the same is taken back.
    fn keep(&mut self, index: usize, answer: R::Answer, from_hedge: bool) {
        let chunk = &mut self.chunks[index];
        if chunk.answer.is_some() {
            return;
        }
        chunk.answer = Some(answer);
        for call in chunk.calls.drain(..) {
            call.abort.abort();
        }
        if chunk.hedged {
            let outcome = if from_hedge { "won" } else { "lost" };
            counter!(HEDGES, "outcome" => outcome).increment(1);
        }
    }

    fn has_untried(&self, index: usize) -> bool {
        let chunk = &self.chunks[index];
        let now = Instant::now();
        let mut replicas = self.group.replicas.iter();
        replicas.any(|replica| !chunk.was_tried_at(replica) && replica.standing(now).is_some())
    }

    /// When the next late chunk gets a second call.
    fn next_hedge(&self) -> Option<Instant> {
        let hedge = self.registry.config.hedge?;
        if self.has_unsent() {
            return None;
        }
        let due = |chunk: &Chunk<R::Answer>| match &*chunk.calls {
            [call] if !chunk.hedged => call.sent.checked_add(hedge.delay(call.expected?)),
            _ => None,
        };
        self.chunks.iter().filter_map(due).min()
    }

    /// Makes the second calls that are due.
    fn hedge(&mut self) {
        let (Some(config), Some(budget)) = (self.registry.config.hedge, &self.budgets.hedges)
        else {
            return;
        };
        let now = Instant::now();
        for index in 0..self.chunks.len() {
            let chunk = &self.chunks[index];
            let [call] = &*chunk.calls else { continue };
            let Some(expected) = call.expected.filter(|_| !chunk.hedged) else {
                continue;
            };
            if now.saturating_duration_since(call.sent) < config.delay(expected) {
                continue;
            }
            let others = |replica: &&Arc<Replica>| !Arc::ptr_eq(replica, &call.replica);
            let candidates = candidates(self.group.replicas.iter().filter(others), now);
            let picked = pick(&candidates, chunk.tokens).filter(|_| budget.withdraw());
            let sent = picked.is_some_and(|candidate| self.send(index, candidate, true));
            let chunk = &mut self.chunks[index];
            chunk.hedged = sent;
            if !sent {
                // No second chance: looking again and again costs more than it gives.
                for call in &mut chunk.calls {
                    call.expected = None;
                }
            }
        }
    }

    /// Nothing is on its way and nobody takes what is left.
    async fn wait_for_replica(&mut self) -> Result<(), Status> {
        let name = self.group.model.name();
        if self.group.replicas.iter().any(|replica| replica.is_up()) {
            let limit = self.registry.config.max_calls_per_replica;
            let message = format!(
                "every replica of {name} has as many calls as it may: limit max_calls_per_replica={limit}"
            );
            let mut status = Status::resource_exhausted(message);
            let retry_after_ms = 100_u32.into();
            status
                .metadata_mut()
                .insert("retry-after-ms", retry_after_ms);
            return Err(status);
        }
        let gone = || unavailable(format!("no replica of {name} is in use"));
        let since = self.group.empty_since.unwrap_or_else(Instant::now);
        let until = since + self.registry.config.wait_for_replica;
        if Instant::now() >= until {
            return Err(gone());
        }
        match timeout_at(until, self.changed.changed()).await {
            Ok(_) => Ok(()),
            Err(_) => Err(gone()),
        }
    }
}
