//! The thread that waits for a device's events, in order, and completes batches.
//!
//! It touches no Python. Blocking on an event alone wakes late, spinning alone burns a core: so it
//! sleeps until the predicted finish, spins for a while, then blocks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;

use crate::dispatch::Shared;
use crate::engine::StepError;
use crate::lazy_tensor::{Event, LazyTensor};
use crate::step_in_flight::StepInFlight;

/// A sleep ends up to this much late.
const SLEEP_OVERSHOOT: Duration = Duration::from_micros(120);
/// Spinning goes on this long past the predicted finish before it blocks.
const SPIN_AFTER: Duration = Duration::from_micros(400);

/// A step that runs on the device.
pub(crate) struct Pending {
    pub(crate) step: StepInFlight,
    pub(crate) output: LazyTensor,
    /// When the device is expected to finish it.
    pub(crate) expected: Option<Instant>,
}

/// The waiter thread and the way to it.
pub(crate) struct Waiter {
    pending: crossbeam_channel::Sender<Pending>,
    done: crossbeam_channel::Receiver<()>,
}

impl Waiter {
    pub(crate) fn spawn(shared: &Arc<Shared>, max_steps_in_flight: usize) -> std::io::Result<Self> {
        let (pending, receiver) = crossbeam_channel::bounded(max_steps_in_flight + 1);
        let (finished, done) = crossbeam_channel::bounded::<()>(1);
        let shared = Arc::clone(shared);
        std::thread::Builder::new()
            .name("tulip-waiter".into())
            .spawn(move || {
                run(&receiver, &shared);
                drop(finished);
            })?;
        Ok(Self { pending, done })
    }

    /// Hands a step over. The channel holds more than may be in flight, so this does not block; a
    /// lost waiter drops the step, which fails its requests.
    pub(crate) fn send(&self, pending: Pending) {
        let _ = self.pending.send(pending);
    }

    /// Waits until every step handed over is complete.
    pub(crate) fn join(self) {
        drop(self.pending);
        // Nothing is ever sent: the receiver wakes when the thread drops its end.
        let _ = self.done.recv();
    }
}

/// Completes steps in order until the sender is gone.
fn run(pending: &Receiver<Pending>, shared: &Arc<Shared>) {
    while let Ok(Pending {
        step,
        output,
        expected,
    }) = pending.recv()
    {
        let waited = output
            .event()
            .map_or(Ok(()), |event| wait_for(event, expected));
        match waited {
            Ok(()) => step.complete(&output),
            Err(error) => {
                step.fail(&error);
                if let StepError::Fatal(message) = error {
                    shared.break_down(&message);
                }
            }
        }
    }
}

/// How to wait from `now` on: sleep, then spin, then block.
#[derive(Debug, PartialEq, Eq)]
struct WaitPlan {
    sleep: Duration,
    spin_until: Option<Instant>,
}

impl WaitPlan {
    fn new(now: Instant, expected: Option<Instant>) -> Self {
        let Some(expected) = expected else {
            return Self {
                sleep: Duration::ZERO,
                spin_until: None,
            };
        };
        let left = expected.saturating_duration_since(now);
        Self {
            sleep: left.saturating_sub(SLEEP_OVERSHOOT),
            spin_until: Some(now.max(expected) + SPIN_AFTER),
        }
    }
}

fn wait_for(event: &dyn Event, expected: Option<Instant>) -> Result<(), StepError> {
    let plan = WaitPlan::new(Instant::now(), expected);
    if !plan.sleep.is_zero() {
        std::thread::sleep(plan.sleep);
    }
    if let Some(spin_until) = plan.spin_until {
        while Instant::now() < spin_until {
            if event.is_complete()? {
                return Ok(());
            }
            std::hint::spin_loop();
        }
    }
    event.wait()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Counted {
        complete_after: usize,
        polls: AtomicUsize,
        blocks: AtomicUsize,
    }

    impl Event for Counted {
        fn is_complete(&self) -> Result<bool, StepError> {
            Ok(self.polls.fetch_add(1, Ordering::Relaxed) >= self.complete_after)
        }

        fn wait(&self) -> Result<(), StepError> {
            self.blocks.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    fn counted(complete_after: usize) -> Counted {
        Counted {
            complete_after,
            polls: AtomicUsize::new(0),
            blocks: AtomicUsize::new(0),
        }
    }

    #[test]
    fn sleeps_short_of_the_prediction_then_spins_past_it() {
        let now = Instant::now();
        let expected = now + Duration::from_millis(2);
        let plan = WaitPlan::new(now, Some(expected));
        assert_eq!(plan.sleep, Duration::from_millis(2) - SLEEP_OVERSHOOT);
        assert_eq!(plan.spin_until, Some(expected + SPIN_AFTER));
    }

    #[test]
    fn a_short_step_is_spun_for_without_sleep() {
        let now = Instant::now();
        let plan = WaitPlan::new(now, Some(now + Duration::from_micros(50)));
        assert_eq!(plan.sleep, Duration::ZERO);
    }

    #[test]
    fn without_a_prediction_it_blocks_at_once() {
        let event = counted(0);
        wait_for(&event, None).unwrap();
        assert_eq!(event.blocks.into_inner(), 1);
        assert_eq!(event.polls.into_inner(), 0);
    }

    #[test]
    fn spinning_ends_with_the_event() {
        let event = counted(3);
        wait_for(&event, Some(Instant::now())).unwrap();
        assert_eq!(event.polls.into_inner(), 4);
        assert_eq!(event.blocks.into_inner(), 0);
    }

    #[test]
    fn a_late_event_is_blocked_on() {
        let event = counted(usize::MAX);
        wait_for(&event, Some(Instant::now())).unwrap();
        assert_eq!(event.blocks.into_inner(), 1);
    }
}
