//! The remote back end: replicas of one or several models behind one gateway.
//!
//! | file | what |
//! |---|---|
//! | `fleet/config.rs`, `fleet/members.rs`, `resolve.rs` | which replicas there are, by name and by DNS |
//! | `replica.rs`, `replica/keeper.rs` | one replica: connection, probing, ejection and return |
//! | `fleet/registry.rs` | what they serve, and who gets work for which model |
//! | `balancer.rs`, `replica/load.rs` | who gets the next piece of work |
//! | `split.rs`, `retry.rs`, `hedge.rs` | one request: chunks out, answers in |

pub mod config;
mod members;
pub mod metrics;
pub(crate) mod registry;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tulip_proto::v1::{
    EmbedRequest, EmbedResponse, ScoreRequest, ScoreResponse, TokenizeRequest, TokenizeResponse,
};

pub use config::{FleetConfig, FleetConfigError, SplitConfig};

use crate::backend::{Backend, ReplicaLoad};
use crate::fleet::registry::Registry;
use crate::model::Model;
use crate::replica::connection::{Connect, GrpcConnect};
use crate::resolve::{Resolve, SystemResolver};
use crate::retry::RetryBudget;
use crate::split::{Budgets, Split, run};

/// See the module. Dropping it closes the connections.
pub struct Fleet {
    registry: Arc<Registry>,
    budgets: Budgets,
    stop: CancellationToken,
}

impl Fleet {
    /// Begins to look for the replicas, on the runtime that this is called on. Until one has
    /// answered, requests fail with `UNAVAILABLE`; see [`Fleet::ready`].
    ///
    /// # Errors
    /// An option is wrong; names it.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start(config: FleetConfig) -> Result<Self, FleetConfigError> {
        let connect = GrpcConnect {
            tls: config.tls.clone(),
            connect_timeout: config.connect_timeout,
        };
        Self::with(config, Arc::new(connect), Arc::new(SystemResolver))
    }

    /// The same with other ways to connect and to look up names.
    pub(crate) fn with(
        config: FleetConfig,
        connect: Arc<dyn Connect>,
        resolve: Arc<dyn Resolve>,
    ) -> Result<Self, FleetConfigError> {
        config.validate()?;
        let budgets = Budgets {
            retries: RetryBudget::new(config.retry_ratio, config.retry_reserve),
            hedges: config
                .hedge
                .map(|hedge| RetryBudget::new(hedge.ratio, config.retry_reserve)),
        };
        let registry = Arc::new(Registry::new(config, connect));
        let stop = CancellationToken::new();
        let members = members::keep(Arc::clone(&registry), resolve);
        let stopped = stop.clone();
        tokio::spawn(async move {
            stopped.run_until_cancelled(members).await;
        });
        Ok(Self {
            registry,
            budgets,
            stop,
        })
    }

    /// Waits until some model can be asked for.
    pub async fn ready(&self) {
        let mut changed = self.registry.subscribe();
        while self.models().is_empty() {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    async fn run<R: Split>(
        &self,
        model: String,
        request: R,
        deadline: Instant,
    ) -> Result<R::Answer, Status> {
        run(&self.registry, &self.budgets, &model, request, deadline).await
    }
}

impl std::fmt::Debug for Fleet {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = formatter.debug_struct("Fleet");
        debug
            .field("replicas", &self.load())
            .finish_non_exhaustive()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.stop.cancel();
        self.registry.close();
    }
}

impl Backend for Fleet {
    fn score(
        &self,
        request: ScoreRequest,
        deadline: Instant,
    ) -> BoxFuture<'_, Result<ScoreResponse, Status>> {
        Box::pin(self.run(request.model.clone(), request, deadline))
    }

    fn embed(
        &self,
        request: EmbedRequest,
        deadline: Instant,
    ) -> BoxFuture<'_, Result<EmbedResponse, Status>> {
        Box::pin(self.run(request.model.clone(), request, deadline))
    }

    fn tokenize(
        &self,
        request: TokenizeRequest,
        deadline: Instant,
    ) -> BoxFuture<'_, Result<TokenizeResponse, Status>> {
        Box::pin(self.run(request.model.clone(), request, deadline))
    }

    fn model(&self, name: &str) -> Result<Arc<Model>, Status> {
        Ok(Arc::clone(&self.registry.group(name)?.model))
    }

    /// Those with a replica in use.
    fn models(&self) -> Vec<Arc<Model>> {
        let groups = self.registry.groups();
        let served = groups.iter().filter(|group| !group.replicas.is_empty());
        served.map(|group| Arc::clone(&group.model)).collect()
    }

    fn load(&self) -> Vec<ReplicaLoad> {
        let replicas = self.registry.replicas();
        replicas.iter().map(|replica| replica.load()).collect()
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
