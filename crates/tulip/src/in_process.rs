//! The service for callers of the same process: no socket, no bytes in between.

use std::sync::Arc;

use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status, Streaming};
use tulip_proto::v1::tulip_server::Tulip;
use tulip_proto::v1::{
    EmbedRequest, EmbedResponse, EmbedStreamResponse, GetModelRequest, GetModelResponse,
    LoadReport, ScoreRequest, ScoreResponse, ScoreStreamResponse, TokenizeRequest,
    TokenizeResponse,
};

use crate::deadline::Deadline;
use crate::service::{Answers, ServiceState, TulipService};

/// Answers as over a connection: the timeout of the request is its deadline, a call that is
/// dropped is cancelled, and a drain waits for calls in flight.
#[derive(Debug, Clone)]
pub struct InProcess {
    service: Arc<TulipService>,
    state: Arc<ServiceState>,
    calls: TaskTracker,
}

impl InProcess {
    pub(crate) fn new(state: Arc<ServiceState>, calls: TaskTracker) -> Self {
        Self {
            service: Arc::new(TulipService::new(Arc::clone(&state))),
            state,
            calls,
        }
    }

    /// The load at this moment, whoever brought it; zeros while nothing is served.
    #[must_use]
    pub fn load(&self) -> LoadReport {
        self.state.load().unwrap_or_default()
    }

    /// The clock runs from here on.
    fn arrived<T>(mut request: Request<T>) -> Request<T> {
        let deadline = Deadline::of_call(request.metadata().as_ref());
        request.extensions_mut().insert(deadline);
        request
    }
}

#[tonic::async_trait]
impl Tulip for InProcess {
    async fn score(
        &self,
        request: Request<ScoreRequest>,
    ) -> Result<Response<ScoreResponse>, Status> {
        let _call = self.calls.token();
        self.service.score(Self::arrived(request)).await
    }

    async fn embed(
        &self,
        request: Request<EmbedRequest>,
    ) -> Result<Response<EmbedResponse>, Status> {
        let _call = self.calls.token();
        self.service.embed(Self::arrived(request)).await
    }

    type ScoreStreamStream = Answers<ScoreStreamResponse>;

    async fn score_stream(
        &self,
        request: Request<Streaming<ScoreRequest>>,
    ) -> Result<Response<Self::ScoreStreamStream>, Status> {
        self.service.score_stream(Self::arrived(request)).await
    }

    type EmbedStreamStream = Answers<EmbedStreamResponse>;

    async fn embed_stream(
        &self,
        request: Request<Streaming<EmbedRequest>>,
    ) -> Result<Response<Self::EmbedStreamStream>, Status> {
        self.service.embed_stream(Self::arrived(request)).await
    }

    async fn tokenize(
        &self,
        request: Request<TokenizeRequest>,
    ) -> Result<Response<TokenizeResponse>, Status> {
        let _call = self.calls.token();
        self.service.tokenize(Self::arrived(request)).await
    }

    async fn get_model(
        &self,
        request: Request<GetModelRequest>,
    ) -> Result<Response<GetModelResponse>, Status> {
        self.service.get_model(Self::arrived(request)).await
    }
}
