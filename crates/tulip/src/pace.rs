//! When the next step should be enqueued behind the running one, and how fast steps go.

use std::time::{Duration, Instant};

/// Enqueue that much before the running step is expected to end, beyond the host's own time.
const MARGIN: Duration = Duration::from_micros(300);
/// Weight of what was seen before, at each step.
const DECAY: f64 = 0.9;

/// Learned from the steps so far.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// When the device is expected to have finished all that was enqueued.
    device_free_at: Option<Instant>,
    /// Decayed mean of the host's time in `step`, seconds.
    host_seconds: f64,
    last_finish: Option<Instant>,
    /// Decayed sums.
    tokens: f64,
    seconds: f64,
}

impl Pace {
    /// Notes a step that now runs on the device, and says when it should finish.
    pub(crate) fn step_enqueued(
        &mut self,
        started: Instant,
        returned: Instant,
        predicted: Option<Duration>,
    ) -> Option<Instant> {
        let host_seconds = returned.duration_since(started).as_secs_f64();
        self.host_seconds = if self.host_seconds == 0.0 {
            host_seconds
        } else {
            self.host_seconds * DECAY + host_seconds * (1.0 - DECAY)
        };
        let begin = self
            .device_free_at
            .map_or(started, |free| free.max(started));
        self.device_free_at = predicted.map(|predicted| begin + predicted);
        self.device_free_at
    }

    /// When to form the next batch while a step runs; `None` = now.
    pub(crate) fn next_start(&self, now: Instant) -> Option<Instant> {
        let lead = Duration::from_secs_f64(self.host_seconds * 1.5) + MARGIN;
        self.device_free_at?
            .checked_sub(lead)
            .filter(|&start| start > now)
    }

    pub(crate) fn step_finished(&mut self, started: Instant, now: Instant, num_tokens: usize) {
        // Steps overlap: the device worked on this one since the one before ended.
        let begin = self.last_finish.map_or(started, |last| last.max(started));
        self.last_finish = Some(now);
        self.tokens = self.tokens * DECAY + num_tokens as f64;
        self.seconds = self.seconds * DECAY + now.duration_since(begin).as_secs_f64();
    }

    /// Recent throughput; 0 = not known yet.
    pub(crate) fn tokens_per_second(&self) -> f64 {
        if self.seconds > 0.0 {
            self.tokens / self.seconds
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_next_batch_is_formed_just_before_the_device_is_free() {
        let mut pace = Pace::default();
        let start = Instant::now();
        let expected = pace
            .step_enqueued(start, start + MS, Some(10 * MS))
            .unwrap();
        assert_eq!(expected, start + 10 * MS);
        let next = pace.next_start(start + MS).unwrap();
        assert_eq!(next, start + 10 * MS - (MS + MS / 2) - MARGIN);
        assert_eq!(pace.next_start(next), None, "at that moment it starts");
    }

    #[test]
    fn steps_queue_up_on_the_device() {
        let mut pace = Pace::default();
        let start = Instant::now();
        pace.step_enqueued(start, start, Some(10 * MS));
        let expected = pace.step_enqueued(start + 2 * MS, start + 2 * MS, Some(5 * MS));
        assert_eq!(expected, Some(start + 15 * MS));
    }

    #[test]
    fn without_a_prediction_nothing_is_held_back() {
        let mut pace = Pace::default();
        let start = Instant::now();
        assert_eq!(pace.step_enqueued(start, start, None), None);
        assert_eq!(pace.next_start(start), None);
    }

    #[test]
    fn throughput_counts_overlapping_steps_once() {
        let mut pace = Pace::default();
        let start = Instant::now();
        pace.step_finished(start, start + 10 * MS, 1000);
        pace.step_finished(start, start + 20 * MS, 1000);
        assert!(
            (pace.tokens_per_second() - 100_000.0).abs() < 1.0,
            "{}",
            pace.tokens_per_second()
        );
    }
}
