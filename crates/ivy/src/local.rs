//! The server of this process as a back end: its service is called directly, without a socket.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use parking_lot::RwLock;
use tokio::time::Instant;
use tonic::{Request, Status};
use tulip_proto::v1::tulip_server::Tulip;
use tulip_proto::v1::{
    EmbedRequest, EmbedResponse, GetModelRequest, GetModelResponse, LoadReport, ScoreRequest,
    ScoreResponse, TokenizeRequest, TokenizeResponse,
};

use crate::backend::{Backend, ReplicaLoad, ReplicaState};
use crate::model::Model;

/// Calls `service` in this process. Texts go to it as they are: it tokenizes on threads of its
/// own, so a second tokenizer here would only cost memory.
pub struct Local<T> {
    service: T,
    look: Option<Box<LookAtLoad>>,
    /// Kept while its fingerprint stays the same.
    model: RwLock<Option<Arc<Model>>>,
    report: RwLock<LoadReport>,
}

type LookAtLoad = dyn Fn() -> LoadReport + Send + Sync;

impl<T> std::fmt::Debug for Local<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Local").finish_non_exhaustive()
    }
}

impl<T: Tulip> Local<T> {
    /// A back end of one replica.
    pub fn new(service: T) -> Self {
        Self {
            service,
            look: None,
            model: RwLock::new(None),
            report: RwLock::new(LoadReport::default()),
        }
    }

    /// Asks `look` for the load. Without it, the last answer's load is shown, which is not what is
    /// there later, and says nothing of work that came another way.
    #[must_use]
    pub fn with_load(mut self, look: impl Fn() -> LoadReport + Send + Sync + 'static) -> Self {
        self.look = Some(Box::new(look));
        self
    }

    fn get_model(&self, name: &str, include_tokenizer: bool) -> Result<GetModelResponse, Status> {
        let request = Request::new(GetModelRequest {
            model: name.into(),
            include_tokenizer,
        });
        // The answer is there at once: nothing in this call waits.
        let answered = self.service.get_model(request).now_or_never();
        answered
            .unwrap_or_else(|| Err(Status::unavailable("loading")))
            .map(tonic::Response::into_inner)
    }
}

/// The call with the time that is left as its timeout.
fn call<M>(message: M, deadline: Instant) -> Request<M> {
    let mut request = Request::new(message);
    request.set_timeout(deadline.saturating_duration_since(Instant::now()));
    request
}

impl<T: Tulip> Backend for Local<T> {
    fn score(
        &self,
        request: ScoreRequest,
        deadline: Instant,
    ) -> BoxFuture<'_, Result<ScoreResponse, Status>> {
        Box::pin(async move {
            let answered = self.service.score(call(request, deadline)).await?;
            let answer = answered.into_inner();
            *self.report.write() = answer.load.unwrap_or_default();
            Ok(answer)
        })
    }

    fn embed(
        &self,
        request: EmbedRequest,
        deadline: Instant,
    ) -> BoxFuture<'_, Result<EmbedResponse, Status>> {
        Box::pin(async move {
            let answered = self.service.embed(call(request, deadline)).await?;
            let answer = answered.into_inner();
            *self.report.write() = answer.load.unwrap_or_default();
            Ok(answer)
        })
    }

    fn tokenize(
        &self,
        request: TokenizeRequest,
        deadline: Instant,
    ) -> BoxFuture<'_, Result<TokenizeResponse, Status>> {
        Box::pin(async move {
            let answered = self.service.tokenize(call(request, deadline)).await?;
            Ok(answered.into_inner())
        })
    }

    fn model(&self, name: &str) -> Result<Arc<Model>, Status> {
        let info = self.get_model(name, false)?;
        if let Some(model) = &*self.model.read()
            && model.info.fingerprint == info.fingerprint
            && model.info.model == info.model
        {
            return Ok(Arc::clone(model));
        }
        let info = self.get_model(name, true)?;
        let model = Arc::new(Model::tokenized_elsewhere(info));
        *self.model.write() = Some(Arc::clone(&model));
        Ok(model)
    }

    fn models(&self) -> Vec<Arc<Model>> {
        self.model("").into_iter().collect()
    }

    fn load(&self) -> Vec<ReplicaLoad> {
        let (model, state) = match self.model("") {
            Ok(model) => (model.name().to_owned(), ReplicaState::Ready),
            Err(_) => match &*self.model.read() {
                Some(model) => (model.name().to_owned(), ReplicaState::Draining),
                None => (String::new(), ReplicaState::Connecting),
            },
        };
        let report = match &self.look {
            Some(look) => look(),
            None => *self.report.read(),
        };
        vec![ReplicaLoad {
            address: "local".into(),
            model,
            state,
            outstanding_tokens: report.queued_tokens + report.running_tokens,
            report,
        }]
    }
}
