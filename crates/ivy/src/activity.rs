//! What this gateway has done since its start, as the status page's charts show it.
//!
//! Counts only grow, and whoever looks takes the difference between two looks: so any number of
//! pages can watch, each at its own pace, and none of them changes what another one sees.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::StatusCode;

use crate::metrics::Answered;

/// Classes of latency to a doubling: neighbours are 9 % apart.
const CLASSES_PER_DOUBLING: usize = 8;
/// Doublings above [`SHORTEST_MS`]; the last ends at 70 minutes, past the longest deadline.
const DOUBLINGS: usize = 25;
const SHORTEST_MS: f64 = 0.125;
const CLASSES: usize = DOUBLINGS * CLASSES_PER_DOUBLING + 1;

/// Requests that bring work: those with a body. Looks at the status are not among them.
#[derive(Debug)]
pub(crate) struct Activity {
    in_flight: AtomicU64,
    succeeded: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    abandoned: AtomicU64,
    items: AtomicU64,
    tokens: AtomicU64,
    truncations: AtomicU64,
    item_errors: AtomicU64,
    latency: [AtomicU64; CLASSES],
}

/// The counts at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Worked on now.
    pub(crate) in_flight: u64,
    /// Answered with 2xx.
    pub(crate) succeeded: u64,
    /// Answered with 4xx.
    pub(crate) refused: u64,
    /// Answered with 5xx.
    pub(crate) failed: u64,
    /// The client left before the answer.
    pub(crate) abandoned: u64,
    /// Documents or inputs.
    pub(crate) items: u64,
    /// Tokens read by the model.
    pub(crate) tokens: u64,
    /// Texts that were cut.
    pub(crate) truncations: u64,
    /// Items without a result in requests that were answered.
    pub(crate) item_errors: u64,
}

impl Default for Activity {
    fn default() -> Self {
        Self {
            in_flight: AtomicU64::default(),
            succeeded: AtomicU64::default(),
            refused: AtomicU64::default(),
            failed: AtomicU64::default(),
            abandoned: AtomicU64::default(),
            items: AtomicU64::default(),
            tokens: AtomicU64::default(),
            truncations: AtomicU64::default(),
            item_errors: AtomicU64::default(),
            latency: [const { AtomicU64::new(0) }; CLASSES],
        }
    }
}

impl Activity {
    /// A request has begun.
    pub(crate) fn begin(self: &Arc<Self>) -> Work {
        add(&self.in_flight, 1);
        Work {
            activity: Arc::clone(self),
            began: Instant::now(),
            status: None,
        }
    }

    /// What a request that succeeded took.
    pub(crate) fn answered(&self, answered: &Answered) {
        add(&self.items, answered.items as u64);
        add(&self.tokens, answered.tokens);
        add(&self.truncations, answered.truncations as u64);
        add(&self.item_errors, answered.item_errors as u64);
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            in_flight: read(&self.in_flight),
            succeeded: read(&self.succeeded),
            refused: read(&self.refused),
            failed: read(&self.failed),
            abandoned: read(&self.abandoned),
            items: read(&self.items),
            tokens: read(&self.tokens),
            truncations: read(&self.truncations),
            item_errors: read(&self.item_errors),
        }
    }

    /// Requests that succeeded by the time they took: the upper end of each class in milliseconds,
    /// and its count; classes without requests are left out.
    pub(crate) fn latency(&self) -> impl Iterator<Item = (f64, u64)> {
        let classes = self.latency.iter().map(read).enumerate();
        classes
            .filter(|(_, count)| *count > 0)
            .map(|(class, count)| (upper_ms(class), count))
    }

    fn end(&self, status: Option<StatusCode>, took: Duration) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        match status {
            None => add(&self.abandoned, 1),
            Some(status) if status.is_server_error() => add(&self.failed, 1),
            Some(status) if status.is_client_error() => add(&self.refused, 1),
            Some(_) => {
                add(&self.succeeded, 1);
                if let Some(class) = self.latency.get(class_of(took)) {
                    add(class, 1);
                }
            }
        }
    }
}

/// One request from its headers to its answer; dropped without an answer it counts as abandoned.
#[derive(Debug)]
pub(crate) struct Work {
    activity: Arc<Activity>,
    began: Instant,
    status: Option<StatusCode>,
}

impl Work {
    pub(crate) fn finish(mut self, status: StatusCode) {
        self.status = Some(status);
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.activity.end(self.status, self.began.elapsed());
    }
}

fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

fn read(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between 0 and CLASSES - 1"
)]
fn class_of(took: Duration) -> usize {
    let doublings = (took.as_secs_f64() * 1e3 / SHORTEST_MS).max(1.0).log2();
    let class = (doublings * CLASSES_PER_DOUBLING as f64).ceil() as usize;
    class.min(CLASSES - 1)
}

fn upper_ms(class: usize) -> f64 {
    SHORTEST_MS * (class as f64 / CLASSES_PER_DOUBLING as f64).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_holds_what_is_at_most_its_upper_end() {
        for micros in [
            0, 1, 124, 125, 126, 1_000, 1_090, 1_091, 250_000, 59_999_999,
        ] {
            let class = class_of(Duration::from_micros(micros));
            let ms = micros as f64 / 1e3;
            assert!(ms <= upper_ms(class), "{micros} us in class {class}");
            let lower = if class == 0 { 0.0 } else { upper_ms(class - 1) };
            assert!(ms > lower || class == 0, "{micros} us in class {class}");
        }
        assert_eq!(class_of(Duration::from_secs(1 << 40)), CLASSES - 1);
        assert!(upper_ms(CLASSES - 1) > 3_600_000.0);
    }

    #[test]
    fn requests_count_by_how_they_ended() {
        let activity = Arc::new(Activity::default());
        for status in [200, 204, 400, 429, 503] {
            let status = StatusCode::from_u16(status).unwrap();
            activity.begin().finish(status);
        }
        drop(activity.begin());
        let running = activity.begin();
        let expected = Counts {
            in_flight: 1,
            succeeded: 2,
            refused: 2,
            failed: 1,
            abandoned: 1,
            ..Counts::default()
        };
        assert_eq!(activity.counts(), expected);
        let timed: u64 = activity.latency().map(|(_, count)| count).sum();
        assert_eq!(timed, 2);
        running.finish(StatusCode::OK);
        assert_eq!(activity.counts().in_flight, 0);
    }
}
