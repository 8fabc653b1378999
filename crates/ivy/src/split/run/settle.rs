//! Answers in: kept, thrown away, or asked for again.

use std::sync::Arc;

use metrics::counter;
use tokio::time::Instant;
use tonic::Status;

use super::Run;
use crate::fleet::metrics::{HEDGES, RETRIES, RETRIES_REFUSED};
use crate::fleet::registry::unavailable;
use crate::replica::connection::chain_of;
use crate::replica::{Phase, Ticket};
use crate::retry::Failure;
use crate::split::{Split, path};

impl<R: Split> Run<'_, R> {
    pub(super) fn settle(
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
    pub(super) fn keep(&mut self, index: usize, answer: R::Answer, from_hedge: bool) {
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

    pub(super) fn has_untried(&self, index: usize) -> bool {
        let chunk = &self.chunks[index];
        let now = Instant::now();
        let mut replicas = self.group.replicas.iter();
        replicas.any(|replica| !chunk.was_tried_at(replica) && replica.standing(now).is_some())
    }
}
