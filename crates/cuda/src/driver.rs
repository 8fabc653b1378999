//! What we ask of a driver.

/// A `CUevent`, as an integer: Python's `torch.cuda.Event.cuda_event`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventHandle(pub usize);

/// Code and name of the call that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// The library is not there, or lacks a symbol.
    #[error("the CUDA driver library cannot be used: {0}")]
    Library(String),
    /// A call returned an error. Most are sticky: every later call fails too.
    #[error("{call} failed: {name} ({code})")]
    Call {
        /// Name of the driver function.
        call: &'static str,
        /// Its result.
        code: i32,
        /// The driver's name for it, such as `CUDA_ERROR_ILLEGAL_ADDRESS`.
        name: String,
    },
}

/// Event calls of one device's primary context. Safe to share: the driver is thread-safe.
pub trait Driver: Send + Sync {
    /// Makes the device's primary context current on this thread. Cheap when it already is.
    ///
    /// # Errors
    /// The driver's own.
    fn make_current(&self) -> Result<(), DriverError>;

    /// Whether all work before the event's record has completed.
    ///
    /// # Errors
    /// The driver's own; also that of the work before the event.
    fn event_is_complete(&self, event: EventHandle) -> Result<bool, DriverError>;

    /// Blocks until all work before the event's record has completed.
    ///
    /// # Errors
    /// As [`Driver::event_is_complete`].
    fn event_synchronize(&self, event: EventHandle) -> Result<(), DriverError>;
}
