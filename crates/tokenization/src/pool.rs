//! Tokenizer threads of our own: a long batch of one caller never holds up the async workers,
//! nor anybody else who uses rayon's global pool.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::{io, thread};

use crossbeam_channel::{Receiver, Sender};
use tokio::sync::{Semaphore, oneshot};

use crate::error::PoolError;

type Job = Box<dyn FnOnce() + Send>;

/// A fixed number of threads behind one bounded queue, first come, first served.
///
/// Dropping the pool, or [`Pool::close`], ends the threads once they have done, or found
/// abandoned, what is queued; nobody waits for them.
#[derive(Debug)]
pub struct Pool {
    /// One permit for each free place in the queue: `jobs` itself is unbounded, this bounds it.
    places: Arc<Semaphore>,
    jobs: Sender<Job>,
    threads: usize,
}

impl Pool {
    /// Starts `threads` threads called `{name}-{index}`; at most `queue_capacity` jobs wait.
    ///
    /// # Errors
    /// Either number is 0, or the system gives no thread.
    pub fn new(threads: usize, name: &str, queue_capacity: usize) -> io::Result<Self> {
        for (option, value) in [("threads", threads), ("queue_capacity", queue_capacity)] {
            if value == 0 {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("{option} of pool {name:?} must be at least 1, got 0"),
                ));
            }
        }
        let (jobs, queue) = crossbeam_channel::unbounded();
        for index in 0..threads {
            let queue = queue.clone();
            thread::Builder::new()
                .name(format!("{name}-{index}"))
                .spawn(move || work(&queue))?;
        }
        let places = Arc::new(Semaphore::new(queue_capacity.min(Semaphore::MAX_PERMITS)));
        Ok(Self {
            places,
            jobs,
            threads,
        })
    }

    /// Number of threads.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Runs `job` on one of the threads; waits for a place in the queue, then for the result.
    /// A job whose future is dropped before its turn does not run.
    ///
    /// # Errors
    /// The pool is closed, or the job panicked.
    pub async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PoolError> {
        let place = Arc::clone(&self.places)
            .acquire_owned()
            .await
            .map_err(|_| PoolError::Closed)?;
        let (reply, result) = oneshot::channel();
        let closed = Arc::clone(&self.places);
        let job = move || {
            drop(place);
            if reply.is_closed() || closed.is_closed() {
                return;
            }
            // The job owns all it touches and is gone after a panic: nothing half-done is seen.
            let outcome = catch_unwind(AssertUnwindSafe(job));
            // The caller may have left meanwhile.
            let _ = reply.send(outcome.map_err(|panic| PoolError::Panicked(message(&*panic))));
        };
        self.jobs
            .send(Box::new(job))
            .map_err(|_| PoolError::Closed)?;
        result.await.unwrap_or(Err(PoolError::Closed))
    }

    /// Refuses what comes from now on and what waits; running jobs end normally.
    pub fn close(&self) {
        self.places.close();
    }
}

fn work(queue: &Receiver<Job>) {
    while let Ok(job) = queue.recv() {
        job();
    }
}

/// The text of a panic.
pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "no message".to_owned()
    }
}

/// Runs code of the `tokenizers` crate: its error, or the text of its panic, becomes ours.
pub(crate) fn caught<T>(call: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    // What is shared, the tokenizer, is only read; its caches cope with a poisoned lock.
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(outcome) => outcome.map_err(|error| error.to_string()),
        Err(panic) => Err(format!("panic: {}", message(&*panic))),
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
