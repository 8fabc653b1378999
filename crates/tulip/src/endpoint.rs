//! What every HTTP/2 connection talks to: Tulip, health and reflection.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tonic::body::Body;
use tonic::codegen::{Service as _, StdError};
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic::{Code, Status};
use tulip_proto::v1::tulip_server::TulipServer;

use crate::deadline::Deadline;
use crate::error::Error;
use crate::service::{ServiceState, TulipService};
use crate::status;

/// Full name of the service, as health checks ask for it.
pub(crate) const SERVICE_NAME: &str = <TulipServer<TulipService> as NamedService>::NAME;

/// One for all connections; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    tulip: TulipServer<TulipService>,
    state: Arc<ServiceState>,
    others: Routes,
    calls: TaskTracker,
    max_message_bytes: usize,
}

impl Endpoint {
    /// `calls` counts calls of Tulip until the last byte of the answer is handed over.
    pub(crate) fn new(
        state: Arc<ServiceState>,
        others: Routes,
        calls: TaskTracker,
        max_message_bytes: usize,
    ) -> Self {
        let tulip = TulipServer::new(TulipService::new(Arc::clone(&state)))
            .max_decoding_message_size(max_message_bytes)
            .max_encoding_message_size(usize::MAX);
        Self {
            tulip,
            state,
            others,
            calls,
            max_message_bytes,
        }
    }
}

type EndpointFuture =
    Pin<Box<dyn Future<Output = Result<Response<CountedBody>, Infallible>> + Send>>;

impl hyper::service::Service<Request<Incoming>> for Endpoint {
    type Response = Response<CountedBody>;
    type Error = Infallible;
    type Future = EndpointFuture;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let path = request.uri().path();
        let is_tulip = path
            .strip_prefix('/')
            .and_then(|path| path.strip_prefix(SERVICE_NAME))
            .is_some_and(|rest| rest.starts_with('/'));
        if !is_tulip {
            let response = self.others.clone().call(request);
            return Box::pin(async move {
                Ok(response
                    .await?
                    .map(|body| CountedBody { body, _call: None }))
            });
        }
        let call = self.calls.token();
        let max_message_bytes = self.max_message_bytes;
        // The clock runs from the headers on, however long the message takes.
        let deadline = Deadline::of_call(request.headers());
        request.extensions_mut().insert(deadline.clone());
        let request = request.map(|body| ArrivingBody {
            body,
            state: Arc::clone(&self.state),
            deadline: deadline.ok(),
            cut: None,
        });
        let response = self.tulip.clone().call(request);
        Box::pin(async move {
            let mut response = response.await?;
            if let Some(status) = Status::from_header_map(response.headers())
                && status.code() == Code::OutOfRange
            {
                response = status::message_too_large(&status, max_message_bytes).into_http();
            }
            Ok(response.map(|body| CountedBody {
                body,
                _call: Some(call),
            }))
        })
    }
}

/// A request on its way to us. Neither the deadline nor a drain waits for a client that has begun
/// a message and does not end it.
struct ArrivingBody {
    body: Incoming,
    state: Arc<ServiceState>,
    deadline: Option<Deadline>,
    /// Made when the client lets us wait for the first time: most requests are there at once.
    cut: Option<Pin<Box<dyn Future<Output = Error> + Send>>>,
}

impl http_body::Body for ArrivingBody {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let Self {
            state,
            deadline,
            cut,
            ..
        } = &mut *self;
        let cut = cut.get_or_insert_with(|| {
            let (state, deadline) = (Arc::clone(state), *deadline);
            Box::pin(async move {
                let stopped = state.stopped();
                match deadline {
                    None => stopped.await,
                    Some(deadline) => tokio::select! {
                        error = stopped => error,
                        error = deadline.passed() => error,
                    },
                }
            })
        });
        let error = std::task::ready!(cut.as_mut().poll(context));
        // Whoever asks again hears it again.
        self.cut = Some(Box::pin(std::future::ready(error.clone())));
        Poll::Ready(Some(Err(Status::from(error).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A body that counts as a call until it is dropped.
#[derive(Debug)]
pub(crate) struct CountedBody {
    body: Body,
    _call: Option<TaskTrackerToken>,
}

impl http_body::Body for CountedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
