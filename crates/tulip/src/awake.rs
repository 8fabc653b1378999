//! Staying awake for a while after activity: waking a thread costs 40 to 60 µs on a virtual machine,
//! several times on the way of one request, which is a good part of a short step.

use std::collections::HashMap;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::{Handle, Id};

/// Cores for each thread that may be kept polling.
const CORES_FOR_EACH: usize = 4;

/// When something last happened, and who is kept awake for it.
#[derive(Debug)]
pub(crate) struct Awake {
    spin: Duration,
    born: Instant,
    /// Nanoseconds after `born`.
    last: AtomicU64,
    /// A request or the end of work came in, for the engine thread.
    arrivals: AtomicU64,
    /// Runtimes that are kept polling, and when each last had a call.
    kept: Mutex<HashMap<Id, Arc<AtomicU64>>>,
    /// Threads kept polling at the most: beyond a share of the cores they only take time from others.
    most_kept: usize,
}

impl Awake {
    pub(crate) fn new(spin: Duration) -> Arc<Self> {
        Arc::new(Self {
            spin,
            born: Instant::now(),
            last: AtomicU64::new(0),
            arrivals: AtomicU64::new(0),
            kept: Mutex::default(),
            most_kept: (cores() / CORES_FOR_EACH).max(1),
        })
    }

    /// Something happened: the time begins anew.
    pub(crate) fn touch(&self) {
        if !self.spin.is_zero() {
            self.last.store(self.now(), Ordering::Relaxed);
        }
    }

    /// Nanoseconds after `born`.
    fn now(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Something came in that the engine thread should look at.
    pub(crate) fn arrived(&self) {
        if !self.spin.is_zero() {
            self.touch();
            self.arrivals.fetch_add(1, Ordering::Release);
        }
    }

    /// Arrivals so far, for [`Awake::spin_for_arrival`].
    pub(crate) fn arrivals(&self) -> u64 {
        self.arrivals.load(Ordering::Acquire)
    }

    fn is_over(&self) -> bool {
        self.is_over_since(&self.last)
    }

    fn is_over_since(&self, last: &AtomicU64) -> bool {
        let last = Duration::from_nanos(last.load(Ordering::Relaxed));
        self.born.elapsed().saturating_sub(last) >= self.spin
    }

    /// Spins until something arrives after `seen`, or the time is over.
    pub(crate) fn spin_for_arrival(&self, seen: u64) {
        while self.arrivals() == seen && !self.is_over() {
            std::hint::spin_loop();
        }
    }

    /// Keeps a thread of the current tokio runtime polling until the time after its last call is
    /// over. Called when a call begins and when it ends.
    pub(crate) fn keep_polling(self: &Arc<Self>) {
        if self.spin.is_zero() {
            return;
        }
        let runtime = Handle::current().id();
        let now = self.now();
        let last = {
            let mut kept = self.kept.lock();
            if let Some(last) = kept.get(&runtime) {
                last.store(now, Ordering::Relaxed);
                return;
            }
            if kept.len() >= self.most_kept {
                return;
            }
            let last = Arc::new(AtomicU64::new(now));
            kept.insert(runtime, Arc::clone(&last));
            last
        };
        let kept = Kept {
            awake: Arc::clone(self),
            runtime,
        };
        tokio::spawn(async move {
            while !kept.awake.is_over_since(&last) {
                tokio::task::yield_now().await;
            }
        });
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// A runtime is kept polling for as long as this lives.
struct Kept {
    awake: Arc<Awake>,
    runtime: Id,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.awake.kept.lock().remove(&self.runtime);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_spin_nobody_stays_awake() {
        let awake = Awake::new(Duration::ZERO);
        awake.arrived();
        assert_eq!(awake.arrivals(), 0);
        assert!(awake.is_over());
    }

    #[test]
    fn an_arrival_ends_the_spinning() {
        let awake = Awake::new(Duration::from_secs(3600));
        let seen = awake.arrivals();
        awake.arrived();
        // Would spin for an hour.
        awake.spin_for_arrival(seen);
        assert!(!awake.is_over());
    }

    #[test]
    fn spinning_ends_by_itself() {
        let awake = Awake::new(Duration::from_micros(50));
        awake.touch();
        awake.spin_for_arrival(awake.arrivals());
        assert!(awake.is_over());
    }

    #[tokio::test]
    async fn one_keeper_at_a_time_and_it_ends() {
        let awake = Awake::new(Duration::from_micros(50));
        awake.touch();
        awake.keep_polling();
        awake.keep_polling();
        assert_eq!(awake.kept.lock().len(), 1);
        while !awake.kept.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        assert!(awake.is_over());
    }

    #[test]
    fn a_thread_sleeps_after_its_own_last_call_whatever_others_do() {
        let awake = Awake::new(Duration::from_millis(100));
        let quiet = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        quiet.block_on(async { awake.keep_polling() });
        let began = Instant::now();
        quiet.block_on(async {
            while !awake.kept.lock().is_empty() {
                assert!(began.elapsed() < Duration::from_secs(10));
                // Another thread's calls.
                awake.touch();
                tokio::task::yield_now().await;
            }
        });
    }

    #[test]
    fn no_more_threads_are_kept_than_a_share_of_the_cores() {
        let awake = Awake::new(Duration::from_secs(3600));
        let runtimes: Vec<_> = (0..awake.most_kept + 2)
            .map(|_| {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .build()
                    .unwrap();
                runtime.block_on(async { awake.keep_polling() });
                runtime
            })
            .collect();
        assert_eq!(awake.kept.lock().len(), awake.most_kept);
        drop(runtimes);
        assert!(awake.kept.lock().is_empty());
    }

    #[test]
    fn a_runtime_that_ends_is_kept_no_longer() {
        let awake = Awake::new(Duration::from_secs(3600));
        awake.touch();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async { awake.keep_polling() });
        assert_eq!(awake.kept.lock().len(), 1);
        drop(runtime);
        assert!(awake.kept.lock().is_empty());
    }
}
