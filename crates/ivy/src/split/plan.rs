//! How much of a request goes out next, and to whom.

use std::ops::Range;

use tulip_proto::v1::Limits;

use crate::balancer::{Candidate, level};
use crate::fleet::config::SplitConfig;
use crate::split::Weight;

/// Share of what a replica should still get that goes out at once: the rest corrects errors.
const AT_ONCE: f64 = 0.5;
/// A chunk that would end that much later than the whole is not worth its replica.
const LATE: f64 = 1.05;
/// Room in a message for what is not items.
const HEADER_BYTES: u64 = 64 << 10;

/// Items of one request that have not been handed out.
#[derive(Debug)]
pub(crate) struct Plan {
    weights: Vec<Weight>,
    next: usize,
    remaining_tokens: u64,
    total_tokens: u64,
    config: SplitConfig,
    max_items: usize,
    max_bytes: u64,
    divisible: bool,
}

impl Plan {
    pub(crate) fn new(
        weights: Vec<Weight>,
        divisible: bool,
        config: SplitConfig,
        limits: Limits,
    ) -> Self {
        let tokens = weights.iter().map(|weight| weight.tokens).sum();
        let limit = |value: u64| if value == 0 { u64::MAX } else { value };
        let max_items = limit(limits.max_items_per_request.into());
        Self {
            weights,
            next: 0,
            remaining_tokens: tokens,
            total_tokens: tokens,
            config,
            max_items: usize::try_from(max_items).unwrap_or(usize::MAX),
            max_bytes: limit(limits.max_message_bytes).saturating_sub(HEADER_BYTES),
            divisible,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.next > 0 && self.next >= self.weights.len()
    }

    pub(crate) fn tokens(&self, items: &Range<usize>) -> u64 {
        let weights = &self.weights[items.clone()];
        weights.iter().map(|weight| weight.tokens).sum()
    }

    pub(crate) fn total_tokens(&self) -> u64 {
        self.total_tokens
    }

    /// Whether the request is too small to gain by more replicas than one.
    pub(crate) fn is_small(&self) -> bool {
        !self.divisible || self.total_tokens < 2 * self.config.min_chunk_tokens
    }

    /// The next chunk: index of the replica among `candidates`, and the items. `free` says which
    /// of them may get one more chunk of this request. `None` while it is better to wait.
    pub(crate) fn next(
        &mut self,
        candidates: &[Candidate],
        free: impl Fn(&Candidate) -> bool,
    ) -> Option<(usize, Range<usize>)> {
        let min = self.config.min_chunk_tokens.min(self.remaining_tokens);
        let soonest = |a: &(usize, &Candidate), b: &(usize, &Candidate)| {
            a.1.completion(min).total_cmp(&b.1.completion(min))
        };
        let (best, _) = candidates.iter().enumerate().min_by(soonest)?;
        let level = level(candidates, self.remaining_tokens);
        let share = |candidate: &Candidate| (level - candidate.wait).max(0.0) * candidate.rate;
        let worth = |(index, candidate): &(usize, &Candidate)| {
            *index == best
                || share(candidate) >= min as f64
                || candidate.completion(min) <= level * LATE
        };
        let chosen = candidates.iter().enumerate().filter(worth);
        let chosen = chosen.filter(|(_, candidate)| free(candidate));
        let (index, chosen) = chosen.min_by(soonest)?;
        let tokens = if candidates.len() == 1 {
            // Nobody to share with.
            self.remaining_tokens
        } else if chosen.known {
            self.in_bounds(share(chosen) * AT_ONCE)
        } else {
            // It may be slow: a small piece tells.
            min
        };
        Some((index, self.cut(tokens, self.most(chosen))))
    }

    /// The whole request, or as much of it as one message and the queue of `candidate` hold.
    pub(crate) fn cut_all(&mut self, candidate: &Candidate) -> Range<usize> {
        self.cut(self.remaining_tokens, self.most(candidate))
    }

    /// Tokens of a chunk at the most: as many chunks as may be there fit its queue.
    fn most(&self, candidate: &Candidate) -> u64 {
        candidate.max_queued_tokens / self.config.chunks_in_flight as u64
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of what remains"
    )]
    fn in_bounds(&self, tokens: f64) -> u64 {
        let SplitConfig {
            min_chunk_tokens,
            max_chunk_tokens,
            ..
        } = self.config;
        let tokens = (tokens as u64).clamp(min_chunk_tokens, max_chunk_tokens);
        // No crumbs: what would be left alone goes along.
        if self.remaining_tokens < tokens + min_chunk_tokens / 2 {
            self.remaining_tokens
        } else {
            tokens
        }
    }

    /// Takes items until they have `tokens` tokens, and no more than `most`; at least one.
    fn cut(&mut self, tokens: u64, most: u64) -> Range<usize> {
        let start = self.next;
        let rest = &self.weights[start..];
        if !self.divisible {
            self.next = self.weights.len().max(1);
            self.remaining_tokens = 0;
            return start..self.weights.len();
        }
        let (mut taken, mut taken_tokens, mut bytes) = (0, 0, 0);
        for weight in rest.iter().take(self.max_items) {
            let full = taken_tokens + weight.tokens > most || bytes + weight.bytes > self.max_bytes;
            if taken > 0 && (taken_tokens >= tokens || full) {
                break;
            }
            taken += 1;
            taken_tokens += weight.tokens;
            bytes += weight.bytes;
        }
        // A request without items is sent as it is, once, to be refused by the replica.
        self.next = start + taken.max(1);
        self.remaining_tokens -= taken_tokens;
        start..start + taken
    }
}
