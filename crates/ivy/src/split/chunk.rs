//! One chunk on its way: where it was sent, how often, and what came back.

use std::ops::Range;
use std::sync::Arc;

use futures_util::future::AbortHandle;
use tokio::time::{Duration, Instant};

use crate::replica::Replica;

/// See the module.
#[derive(Debug)]
pub(crate) struct Chunk<A> {
    pub(crate) items: Range<usize>,
    pub(crate) tokens: u64,
    /// Times it was sent.
    pub(crate) attempts: u32,
    /// Replicas that failed it.
    pub(crate) tried: Vec<Arc<Replica>>,
    /// A full replica refused it before.
    pub(crate) refused: bool,
    /// Calls in flight: one, or two when hedged.
    pub(crate) calls: Vec<InFlight>,
    pub(crate) hedged: bool,
    pub(crate) answer: Option<A>,
}

#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) replica: Arc<Replica>,
    pub(crate) abort: AbortHandle,
    pub(crate) sent: Instant,
    /// Time it should take, where the replica's rate is known.
    pub(crate) expected: Option<Duration>,
    pub(crate) is_hedge: bool,
}

impl<A> Chunk<A> {
    pub(crate) fn new(items: Range<usize>, tokens: u64) -> Self {
        Self {
            items,
            tokens,
            attempts: 0,
            tried: Vec::new(),
            refused: false,
            calls: Vec::new(),
            hedged: false,
            answer: None,
        }
    }

    pub(crate) fn is_at(&self, replica: &Arc<Replica>) -> bool {
        self.calls
            .iter()
            .any(|call| Arc::ptr_eq(&call.replica, replica))
    }

    pub(crate) fn was_tried_at(&self, replica: &Arc<Replica>) -> bool {
        self.tried.iter().any(|tried| Arc::ptr_eq(tried, replica))
    }

    /// Takes the call at `replica` off the list.
    pub(crate) fn ended(&mut self, replica: &Arc<Replica>) -> Option<InFlight> {
        let at = |call: &InFlight| Arc::ptr_eq(&call.replica, replica);
        let index = self.calls.iter().position(at)?;
        Some(self.calls.swap_remove(index))
    }
}
