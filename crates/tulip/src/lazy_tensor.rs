//! The result of a step before it is there: rows in somebody's buffer, and the event after which they hold.

use std::time::Duration;

use crate::engine::StepError;

/// Memory that holds a step's output, kept alive until this is dropped.
pub trait OutputBuffer: Send {
    /// Row-major float32. Valid only after the step's event.
    fn as_f32(&self) -> &[f32];
}

impl OutputBuffer for Vec<f32> {
    fn as_f32(&self) -> &[f32] {
        self
    }
}

/// Completes when the copy into the output buffer has run.
pub trait Event: Send {
    /// Whether it has completed, without waiting.
    ///
    /// # Errors
    /// The device failed: every later call fails too.
    fn is_complete(&self) -> Result<bool, StepError>;

    /// Blocks until it has completed.
    ///
    /// # Errors
    /// As [`Event::is_complete`].
    fn wait(&self) -> Result<(), StepError>;
}

/// `num_rows` × `width` float32 that will be there once the event completes.
pub struct LazyTensor {
    buffer: Box<dyn OutputBuffer>,
    num_rows: usize,
    width: usize,
    event: Option<Box<dyn Event>>,
    predicted: Option<Duration>,
}

impl LazyTensor {
    /// A tensor that is there already, as on CPU.
    ///
    /// # Errors
    /// The buffer is smaller than `num_rows * width`.
    pub fn ready(
        buffer: Box<dyn OutputBuffer>,
        num_rows: usize,
        width: usize,
    ) -> Result<Self, StepError> {
        let len = buffer.as_f32().len();
        if len < num_rows * width {
            return Err(StepError::Batch(format!(
                "the output buffer holds {len} values, {num_rows} rows of {width} are expected"
            )));
        }
        Ok(Self {
            buffer,
            num_rows,
            width,
            event: None,
            predicted: None,
        })
    }

    /// A tensor that is there once `event` completes, probably `predicted` from now.
    ///
    /// # Errors
    /// The buffer is smaller than `num_rows * width`.
    pub fn pending(
        buffer: Box<dyn OutputBuffer>,
        num_rows: usize,
        width: usize,
        event: Box<dyn Event>,
        predicted: Option<Duration>,
    ) -> Result<Self, StepError> {
        Ok(Self {
            event: Some(event),
            predicted,
            ..Self::ready(buffer, num_rows, width)?
        })
    }

    /// Number of rows.
    #[must_use]
    pub fn num_rows(&self) -> usize {
        self.num_rows
    }

    /// Values in a row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// The event that is still to be waited for, if any.
    #[must_use]
    pub fn event(&self) -> Option<&dyn Event> {
        self.event.as_deref()
    }

    /// Predicted time from the start of the step to the event.
    #[must_use]
    pub fn predicted(&self) -> Option<Duration> {
        self.predicted
    }

    /// The rows. Only to be read once the event has completed.
    #[must_use]
    pub fn rows(&self) -> &[f32] {
        &self.buffer.as_f32()[..self.num_rows * self.width]
    }
}
