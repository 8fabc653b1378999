//! Second calls for chunks that are late.

use std::sync::Arc;

use tokio::time::Instant;

use super::Run;
use crate::balancer::{candidates, pick};
use crate::replica::Replica;
use crate::split::Split;
use crate::split::chunk::Chunk;

impl<R: Split> Run<'_, R> {
    /// When the next late chunk gets a second call.
    pub(super) fn next_hedge(&self) -> Option<Instant> {
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
    pub(super) fn hedge(&mut self) {
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
}
