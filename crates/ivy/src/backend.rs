//! Whoever answers the jobs of the gateway: the server in this process, or remote replicas.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tonic::Status;
use tulip_proto::v1::{
    EmbedRequest, EmbedResponse, LoadReport, ScoreRequest, ScoreResponse, TokenizeRequest,
    TokenizeResponse,
};

use crate::model::Model;

/// Answers requests of `tulip.v1`. A future that is dropped cancels its work, wherever that runs.
///
/// Errors are gRPC statuses, with the trailing metadata that Tulip defines (`retry-after-ms`).
/// `deadline` passed means `DEADLINE_EXCEEDED`; nothing waits longer.
pub trait Backend: Send + Sync + 'static {
    /// One score for each document.
    fn score(
        &self,
        request: ScoreRequest,
        deadline: Instant,
    ) -> BoxFuture<'_, Result<ScoreResponse, Status>>;

    /// One vector for each input.
    fn embed(
        &self,
        request: EmbedRequest,
        deadline: Instant,
    ) -> BoxFuture<'_, Result<EmbedResponse, Status>>;

    /// Token ids as the model would read them.
    fn tokenize(
        &self,
        request: TokenizeRequest,
        deadline: Instant,
    ) -> BoxFuture<'_, Result<TokenizeResponse, Status>>;

    /// The model that a request with this name means; an empty name means the only one, or the
    /// first of several.
    ///
    /// # Errors
    /// `NOT_FOUND` where the name is unknown and matters, `UNAVAILABLE` while nothing is served.
    fn model(&self, name: &str) -> Result<Arc<Model>, Status>;

    /// What can be asked for now, by name; empty while nothing is served.
    fn models(&self) -> Vec<Arc<Model>>;

    /// Where the work goes, for the status page and the metrics.
    fn load(&self) -> Vec<ReplicaLoad>;
}

/// One place where work goes.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplicaLoad {
    /// `HOST:PORT`, or `local`.
    pub address: String,
    /// What it serves; empty while that is not known.
    pub model: String,
    /// Whether it gets work.
    pub state: ReplicaState,
    /// Tokens sent to it and not answered.
    pub outstanding_tokens: u64,
    /// What it said of itself last.
    pub report: LoadReport,
}

/// Whether a replica gets work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaState {
    /// Not asked yet what it serves.
    Connecting,
    /// Gets work.
    Ready,
    /// Failed; probed now and then.
    Ejected,
    /// Says that it stops.
    Draining,
    /// Contradicts the other replicas of its model.
    Refused,
}

impl ReplicaState {
    /// As it is shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Ready => "ready",
            Self::Ejected => "ejected",
            Self::Draining => "draining",
            Self::Refused => "refused",
        }
    }
}
