//! Chunks out: to whom, how much, and what becomes of work that nobody takes.

use std::sync::Arc;

use futures_util::future::abortable;
use metrics::histogram;
use rand::seq::SliceRandom as _;
use tokio::time::{Duration, Instant, timeout_at};
use tonic::Status;

use super::Run;
use crate::balancer::{Candidate, candidates, pick};
use crate::fleet::metrics::CHUNK_TOKENS;
use crate::fleet::registry::{Identity, unavailable};
use crate::replica::connection::until;
use crate::split::Split;
use crate::split::chunk::{Chunk, InFlight};

impl<R: Split> Run<'_, R> {
    /// Sends all that should be on its way now.
    pub(super) fn hand_out(&mut self) -> Result<(), Status> {
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
                pick(&candidates, tokens).map(|candidate| (candidate, self.plan.cut_all(candidate)))
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
    pub(super) fn regroup(&mut self) -> Result<(), Status> {
        let model = &self.group.model;
        let Ok(group) = self.registry.group(model.name()) else {
            return Ok(());
        };
        if !Arc::ptr_eq(&group.model, model) && !Identity::same(&group.model, model) {
            let name = model.name();
            let message = format!("the replicas of {name} have changed to another version of it");
            return Err(unavailable(message));
        }
        self.group = group;
        Ok(())
    }

    /// Sends a chunk; `false` when the replica has gone out of use since it was chosen.
    pub(super) fn send(&mut self, index: usize, candidate: &Candidate, is_hedge: bool) -> bool {
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

    /// Nothing is on its way and nobody takes what is left.
    pub(super) async fn wait_for_replica(&mut self) -> Result<(), Status> {
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
