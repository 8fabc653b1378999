//! A driver for tests: events complete when the test says so.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::driver::{Driver, DriverError, EventHandle};

/// See the module. Events that were never mentioned are pending.
#[derive(Debug, Default)]
pub struct FakeDriver {
    events: Mutex<HashMap<EventHandle, Result<(), DriverError>>>,
    changed: Condvar,
}

impl FakeDriver {
    /// Completes an event.
    pub fn complete(&self, event: EventHandle) {
        self.set(event, Ok(()));
    }

    /// Makes an event report a device error.
    pub fn fail(&self, event: EventHandle, code: i32, name: &str) {
        self.set(
            event,
            Err(DriverError::Call {
                call: "cuEventQuery",
                code,
                name: name.into(),
            }),
        );
    }

    fn set(&self, event: EventHandle, outcome: Result<(), DriverError>) {
        self.lock().insert(event, outcome);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<EventHandle, Result<(), DriverError>>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Driver for FakeDriver {
    fn make_current(&self) -> Result<(), DriverError> {
        Ok(())
    }

    fn event_is_complete(&self, event: EventHandle) -> Result<bool, DriverError> {
        match self.lock().get(&event) {
            None => Ok(false),
            Some(outcome) => outcome.clone().map(|()| true),
        }
    }

    fn event_synchronize(&self, event: EventHandle) -> Result<(), DriverError> {
        let mut events = self.lock();
        loop {
            if let Some(outcome) = events.get(&event) {
                return outcome.clone();
            }
            events = self
                .changed
                .wait(events)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_completes_or_fails_as_told() {
        let driver = FakeDriver::default();
        let (good, bad) = (EventHandle(1), EventHandle(2));
        assert_eq!(driver.event_is_complete(good), Ok(false));
        driver.complete(good);
        driver.fail(bad, 700, "CUDA_ERROR_ILLEGAL_ADDRESS");
        assert_eq!(driver.event_synchronize(good), Ok(()));
        let error = driver.event_is_complete(bad).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cuEventQuery failed: CUDA_ERROR_ILLEGAL_ADDRESS (700)"
        );
    }
}
