//! What all requests share: the back end, the options, and the threads for text.

use std::io;
use std::sync::Arc;

use tokenization::Pool;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::activity::Activity;
use crate::auth::ApiKeys;
use crate::backend::Backend;
use crate::config::GatewayConfig;
use crate::error::{Error, Result};
use crate::fleet::registry::unavailable;
use crate::model::Model;

/// Jobs that may wait for each tokenizer thread; what comes then waits in its own request.
const JOBS_PER_TOKENIZER_THREAD: usize = 64;

/// One for all connections.
pub(crate) struct Gateway {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) config: GatewayConfig,
    pub(crate) keys: ApiKeys,
    pub(crate) pool: Pool,
    pub(crate) started: Instant,
    pub(crate) activity: Arc<Activity>,
    in_flight: Arc<Semaphore>,
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Gateway").finish_non_exhaustive()
    }
}

impl Gateway {
    /// A gateway in front of `backend`; starts the tokenizer threads.
    ///
    /// # Errors
    /// The system gives no threads.
    pub(crate) fn new(config: GatewayConfig, backend: Arc<dyn Backend>) -> io::Result<Self> {
        let threads = config.tokenizer_threads;
        let places = config.max_requests_in_flight.min(Semaphore::MAX_PERMITS);
        Ok(Self {
            keys: ApiKeys::new(&config.api_keys),
            pool: Pool::new(
                threads,
                "ivy-tokenizer",
                threads * JOBS_PER_TOKENIZER_THREAD,
            )?,
            in_flight: Arc::new(Semaphore::new(places)),
            started: Instant::now(),
            activity: Arc::default(),
            backend,
            config,
        })
    }

    /// The model that a request with this name means.
    pub(crate) fn model(&self, name: &str) -> Result<Arc<Model>> {
        Ok(self.backend.model(name)?)
    }

    /// Whether some model can be asked for now. One whose replicas are all gone is known still.
    pub(crate) fn check_serving(&self) -> Result<()> {
        let known = self.model("")?;
        if self.backend.models().is_empty() {
            let message = format!("no replica of {} is in use", known.name());
            return Err(unavailable(message).into());
        }
        Ok(())
    }

    /// A place for one more request, until the permit is dropped.
    pub(crate) fn admit(&self) -> Result<OwnedSemaphorePermit> {
        Arc::clone(&self.in_flight)
            .try_acquire_owned()
            .map_err(|_| Error::Overloaded {
                message: format!(
                    "too many requests at once, limit max_requests_in_flight={}",
                    self.config.max_requests_in_flight
                ),
                retry_after: None,
            })
    }

    /// A list of inputs must hold some, but not too many.
    pub(crate) fn check_count(&self, field: &str, count: usize) -> Result<()> {
        let limit = self.config.max_items_per_request;
        if count == 0 {
            return Err(Error::empty(field));
        }
        if count > limit {
            let message = format!("has {count} entries, limit max_items_per_request={limit}");
            return Err(Error::invalid(field, message));
        }
        Ok(())
    }
}
