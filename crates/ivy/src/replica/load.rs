//! How busy a replica is and how fast, from what it was sent and from what it says with each answer.

use std::time::Duration;

use tokio::time::Instant;
use tulip_proto::v1::{LoadReport, Timings};

/// What other gateways had sent when the replica last answered counts for that long, less and less.
const REPORT_AGE: Duration = Duration::from_millis(500);
/// A rate that was not seen for that long is not known any more: the replica is tried again.
const RATE_AGE: Duration = Duration::from_secs(10);
/// Of what was sent so much may be done without our having heard of it. Not more: a replica that
/// stands still must not look idle.
const MAX_PROGRESS: f64 = 0.5;
/// Weight of the newest rate.
const NEW: f64 = 0.3;

/// Kept by each replica, under its lock.
#[derive(Debug, Default)]
pub(crate) struct Load {
    outstanding_tokens: u64,
    calls: usize,
    /// When it last answered, or began to have work.
    progress: Option<Instant>,
    report: LoadReport,
    /// Tokens of others, and when it was said.
    foreign: Option<(u64, Instant)>,
    /// Tokens per second in bulk, and when it was seen.
    rate: Option<(f64, Instant)>,
    full_until: Option<Instant>,
}

impl Load {
    pub(crate) fn sent(&mut self, now: Instant, tokens: u64) {
        if self.calls == 0 {
            self.progress = Some(now);
        }
        self.outstanding_tokens += tokens;
        self.calls += 1;
    }

    /// An answer came, or nobody waits for it any more.
    pub(crate) fn ended(&mut self, tokens: u64) {
        self.outstanding_tokens = self.outstanding_tokens.saturating_sub(tokens);
        self.calls = self.calls.saturating_sub(1);
    }

    /// Learns from an answer. `tokens` of [`Load::sent`] have been taken back by then; `bulk` says
    /// that the call was large enough for its pace to mean something.
    pub(crate) fn answered(
        &mut self,
        now: Instant,
        tokens: u64,
        report: LoadReport,
        timings: Timings,
        bulk: bool,
    ) {
        self.progress = Some(now);
        let there = report.queued_tokens + report.running_tokens;
        self.foreign = Some((there.saturating_sub(self.outstanding_tokens), now));
        self.report = report;
        self.full_until = None;
        if !bulk {
            return;
        }
        // Both are at most what the replica can do: the first counts steps too small to use the
        // device, the second others' tokens in the same steps.
        let own = match timings.compute_us {
            0 => 0.0,
            compute_us => tokens as f64 * 1e6 / compute_us as f64,
        };
        let seen = own.max(report.tokens_per_second as f64);
        if seen > 0.0 {
            let rate = match self.rate(now) {
                Some(known) => known + NEW * (seen - known),
                None => seen,
            };
            self.rate = Some((rate, now));
        }
    }

    /// The queue was full; `pause` as the replica asked for.
    pub(crate) fn full(&mut self, now: Instant, pause: Duration) {
        self.full_until = now.checked_add(pause);
    }

    pub(crate) fn is_full(&self, now: Instant) -> bool {
        self.full_until.is_some_and(|until| now < until)
    }

    /// A new connection, perhaps to another process.
    pub(crate) fn forget(&mut self) {
        self.report = LoadReport::default();
        self.foreign = None;
        self.rate = None;
        self.full_until = None;
    }

    /// Tokens that a new call would have before it.
    pub(crate) fn ahead(&self, now: Instant) -> f64 {
        let foreign = self.foreign.map_or(0.0, |(tokens, said)| {
            let age = now.saturating_duration_since(said).as_secs_f64() / REPORT_AGE.as_secs_f64();
            tokens as f64 * (1.0 - age).max(0.0)
        });
        let outstanding = self.outstanding_tokens as f64;
        let done = match (self.progress, self.rate(now)) {
            (Some(since), Some(rate)) => rate * now.saturating_duration_since(since).as_secs_f64(),
            _ => 0.0,
        };
        outstanding - done.min(outstanding * MAX_PROGRESS) + foreign
    }

    /// Tokens per second, if known.
    pub(crate) fn rate(&self, now: Instant) -> Option<f64> {
        let (rate, seen) = self.rate?;
        (now.saturating_duration_since(seen) < RATE_AGE).then_some(rate)
    }

    pub(crate) fn outstanding_tokens(&self) -> u64 {
        self.outstanding_tokens
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls
    }

    pub(crate) fn report(&self) -> LoadReport {
        self.report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(tokens: u64, tokens_per_second: u64) -> LoadReport {
        LoadReport {
            queued_tokens: tokens,
            tokens_per_second,
            ..LoadReport::default()
        }
    }

    fn timings(compute_us: u64) -> Timings {
        Timings {
            compute_us,
            ..Timings::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_of_others_count_less_and_less() {
        let mut load = Load::default();
        let now = Instant::now();
        load.sent(now, 100);
        load.sent(now, 50);
        load.ended(100);
        load.answered(now, 100, report(450, 0), timings(0), true);
        // 50 of the 450 are our own.
        assert_eq!(load.ahead(now), 50.0 + 400.0);
        assert_eq!(load.ahead(now + REPORT_AGE / 2), 50.0 + 200.0);
        assert_eq!(load.ahead(now + 2 * REPORT_AGE), 50.0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_rate_is_of_bulk_and_is_forgotten() {
        let mut load = Load::default();
        let now = Instant::now();
        load.answered(now, 10, report(0, 900), timings(1_000_000), false);
        assert_eq!(load.rate(now), None, "a small call says nothing");
        load.answered(now, 1000, report(0, 500), timings(1_000_000), true);
        assert_eq!(load.rate(now), Some(1000.0), "its own pace was higher");
        load.answered(now, 1000, report(0, 2000), timings(1_000_000), true);
        assert_eq!(load.rate(now), Some(1300.0));
        assert_eq!(load.rate(now + RATE_AGE), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_should_be_done_by_now_counts_half_at_the_most() {
        let mut load = Load::default();
        let now = Instant::now();
        load.answered(now, 1000, report(0, 1000), timings(0), true);
        load.sent(now, 400);
        let after = |ms| now + Duration::from_millis(ms);
        assert_eq!(load.ahead(after(0)), 400.0);
        assert_eq!(load.ahead(after(100)), 300.0);
        assert_eq!(load.ahead(after(5000)), 200.0);
        // An answer tells where it is.
        load.sent(after(150), 300);
        load.ended(400);
        load.answered(after(200), 400, report(0, 1000), timings(0), true);
        assert_eq!(load.ahead(after(200)), 300.0);
        assert_eq!(load.ahead(after(250)), 250.0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_replica_is_left_alone_until_it_answers() {
        let mut load = Load::default();
        let now = Instant::now();
        load.full(now, Duration::from_millis(20));
        assert!(load.is_full(now));
        assert!(!load.is_full(now + Duration::from_millis(20)));
        load.answered(now, 1, report(0, 0), timings(0), false);
        assert!(!load.is_full(now));
    }
}
