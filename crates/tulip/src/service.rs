//! The service `tulip.v1.Tulip`: each call is admitted, timed, answered, counted.
//!
//! One file for each method; what they share is reading inputs ([`item`]), options ([`options`])
//! and the way to sequences ([`encode`]).

mod answer;
mod best_chunk;
mod embed;
mod encode;
mod forms;
mod item;
mod model;
mod options;
mod parts;
mod score;
mod serving;
mod stream;
mod tokenize;

use std::pin::Pin;
use std::sync::Arc;

use parking_lot::RwLock;
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Response, Status, Streaming};
use tulip_proto::v1::tulip_server::Tulip;
use tulip_proto::v1::{
    EmbedRequest, EmbedResponse, EmbedStreamResponse, GetModelRequest, GetModelResponse,
    LoadReport, ScoreRequest, ScoreResponse, ScoreStreamResponse, TokenizeRequest,
    TokenizeResponse,
};

use crate::config::ServerConfig;
use crate::deadline::Deadline;
use crate::dispatch::Dispatch;
use crate::engine::ModelInfo;
use crate::error::{Error, Result};
use crate::metrics::CallRecord;
use crate::status;
pub use serving::ModelError;
use serving::Serving;

/// Whether requests can be answered, and with what.
#[derive(Debug)]
enum Phase {
    Loading,
    Serving(Arc<Serving>),
    /// For good; the reason is what callers are told.
    Stopped(String),
}

/// What the service and the server share.
#[derive(Debug)]
pub(crate) struct ServiceState {
    config: Arc<ServerConfig>,
    phase: RwLock<Phase>,
    stopping: CancellationToken,
}

impl ServiceState {
    pub(crate) fn new(config: Arc<ServerConfig>) -> Self {
        Self {
            config,
            phase: RwLock::new(Phase::Loading),
            stopping: CancellationToken::new(),
        }
    }

    /// Serves this model from now on; whether that came in time, before [`ServiceState::stop`].
    pub(crate) fn set_model(
        &self,
        info: ModelInfo,
        dispatch: Dispatch,
    ) -> Result<bool, ModelError> {
        let serving = Serving::new(
            info,
            dispatch,
            Arc::clone(&self.config),
            self.stopping.clone(),
        )?;
        let mut phase = self.phase.write();
        if matches!(*phase, Phase::Stopped(_)) {
            return Ok(false);
        }
        *phase = Phase::Serving(Arc::new(serving));
        Ok(true)
    }

    /// Takes no more requests. The first reason stays.
    pub(crate) fn stop(&self, reason: &str) {
        let mut phase = self.phase.write();
        if !matches!(*phase, Phase::Stopped(_)) {
            *phase = Phase::Stopped(reason.into());
        }
        drop(phase);
        self.stopping.cancel();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopping.is_cancelled()
    }

    /// Waits until no more requests are taken; what those are told that come too late.
    pub(crate) async fn stopped(&self) -> Error {
        self.stopping.cancelled().await;
        match self.serving() {
            Err(error) => error,
            // Not reached: `stop` sets the phase before it cancels.
            Ok(_) => Error::Unavailable("stopping".into()),
        }
    }

    fn serving(&self) -> Result<Arc<Serving>> {
        match &*self.phase.read() {
            Phase::Serving(serving) => Ok(Arc::clone(serving)),
            Phase::Loading => Err(Error::Unavailable("loading".into())),
            Phase::Stopped(reason) => Err(Error::Unavailable(reason.clone())),
        }
    }

    /// The load at this moment; `None` while nothing is served.
    pub(crate) fn load(&self) -> Option<LoadReport> {
        self.serving().ok().map(|serving| serving.load())
    }

    /// What a call needs, if it may be worked on.
    fn admit<T>(&self, request: &Request<T>) -> Result<(Arc<Serving>, Deadline)> {
        let serving = self.serving()?;
        let deadline = request.extensions().get::<Result<Deadline>>();
        let missing = || Error::Internal("the call has no time of arrival".into());
        Ok((serving, deadline.ok_or_else(missing)?.clone()?))
    }
}

/// Implements the generated service trait.
#[derive(Debug)]
pub(crate) struct TulipService {
    state: Arc<ServiceState>,
}

impl TulipService {
    pub(crate) fn new(state: Arc<ServiceState>) -> Self {
        Self { state }
    }
}

/// Counts a call and turns its end into a status.
async fn recorded<T>(
    method: &'static str,
    call: impl Future<Output = Result<T>>,
) -> Result<Response<T>, Status> {
    let record = CallRecord::start(method);
    match call.await {
        Ok(response) => {
            record.finish(Code::Ok);
            Ok(Response::new(response))
        }
        Err(error) => {
            record.finish(status::code(&error));
            Err(error.into())
        }
    }
}

/// Answers of a stream.
pub(crate) type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Tulip for TulipService {
    async fn score(
        &self,
        request: Request<ScoreRequest>,
    ) -> Result<Response<ScoreResponse>, Status> {
        recorded(score::METHOD, async {
            let (serving, deadline) = self.state.admit(&request)?;
            deadline
                .limit(score::score(&serving, request.into_inner(), &deadline))
                .await
        })
        .await
    }

    async fn embed(
        &self,
        request: Request<EmbedRequest>,
    ) -> Result<Response<EmbedResponse>, Status> {
        recorded(embed::METHOD, async {
            let (serving, deadline) = self.state.admit(&request)?;
            deadline
                .limit(embed::embed(&serving, request.into_inner(), &deadline))
                .await
        })
        .await
    }

    type ScoreStreamStream = Answers<ScoreStreamResponse>;

    async fn score_stream(
        &self,
        request: Request<Streaming<ScoreRequest>>,
    ) -> Result<Response<Self::ScoreStreamStream>, Status> {
        let (_, deadline) = self.state.admit(&request)?;
        let answers = stream::answers::<stream::Score>(&self.state, request.into_inner(), deadline);
        Ok(Response::new(Box::pin(answers)))
    }

    type EmbedStreamStream = Answers<EmbedStreamResponse>;

    async fn embed_stream(
        &self,
        request: Request<Streaming<EmbedRequest>>,
    ) -> Result<Response<Self::EmbedStreamStream>, Status> {
        let (_, deadline) = self.state.admit(&request)?;
        let answers = stream::answers::<stream::Embed>(&self.state, request.into_inner(), deadline);
        Ok(Response::new(Box::pin(answers)))
    }

    async fn tokenize(
        &self,
        request: Request<TokenizeRequest>,
    ) -> Result<Response<TokenizeResponse>, Status> {
        recorded(tokenize::METHOD, async {
            let (serving, deadline) = self.state.admit(&request)?;
            deadline
                .limit(tokenize::tokenize(&serving, request.into_inner()))
                .await
        })
        .await
    }

    async fn get_model(
        &self,
        request: Request<GetModelRequest>,
    ) -> Result<Response<GetModelResponse>, Status> {
        recorded(model::METHOD, async {
            let (serving, _) = self.state.admit(&request)?;
            model::get_model(&serving, request.get_ref())
        })
        .await
    }
}
