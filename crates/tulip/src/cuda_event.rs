//! A CUDA event as the completion of a step.

use std::sync::Arc;

use tulip_cuda::{Driver, DriverError, EventHandle};

use crate::engine::StepError;
use crate::lazy_tensor::Event;

/// An event recorded after the copy of a step's output. Whoever made it keeps it alive: the
/// output buffer beside it in the `LazyTensor` owns it.
pub struct CudaEvent {
    driver: Arc<dyn Driver>,
    handle: EventHandle,
}

impl CudaEvent {
    /// Wraps an event that has been recorded.
    #[must_use]
    pub fn new(driver: Arc<dyn Driver>, handle: EventHandle) -> Self {
        Self { driver, handle }
    }
}

/// An error of the device is sticky: the engine cannot go on.
fn fatal(error: &DriverError) -> StepError {
    StepError::Fatal(error.to_string())
}

impl Event for CudaEvent {
    fn is_complete(&self) -> Result<bool, StepError> {
        self.driver.make_current().map_err(|error| fatal(&error))?;
        self.driver
            .event_is_complete(self.handle)
            .map_err(|error| fatal(&error))
    }

    fn wait(&self) -> Result<(), StepError> {
        self.driver.make_current().map_err(|error| fatal(&error))?;
        self.driver
            .event_synchronize(self.handle)
            .map_err(|error| fatal(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tulip_cuda::FakeDriver;

    #[test]
    fn a_device_error_is_fatal() {
        let driver = Arc::new(FakeDriver::default());
        let event = CudaEvent::new(Arc::<FakeDriver>::clone(&driver), EventHandle(5));
        assert_eq!(event.is_complete(), Ok(false));
        driver.fail(EventHandle(5), 700, "CUDA_ERROR_ILLEGAL_ADDRESS");
        let message = "cuEventQuery failed: CUDA_ERROR_ILLEGAL_ADDRESS (700)";
        assert_eq!(event.wait(), Err(StepError::Fatal(message.into())));
    }

    #[test]
    fn completes_with_the_driver() {
        let driver = Arc::new(FakeDriver::default());
        let event = CudaEvent::new(Arc::<FakeDriver>::clone(&driver), EventHandle(5));
        driver.complete(EventHandle(5));
        assert_eq!(event.is_complete(), Ok(true));
    }
}
