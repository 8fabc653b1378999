//! What every HTTP/2 connection talks to: Tulip, health and reflection.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic::{Code, Status};
use tulip_proto::v1::tulip_server::TulipServer;

use crate::service::TulipService;
use crate::status;

/// Full name of the service, as health checks ask for it.
pub(crate) const SERVICE_NAME: &str = <TulipServer<TulipService> as NamedService>::NAME;

/// One for all connections; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    tulip: TulipServer<TulipService>,
    others: Routes,
    calls: TaskTracker,
    max_message_bytes: usize,
}

impl Endpoint {
    /// `calls` counts calls of Tulip until the last byte of the answer is handed over.
    pub(crate) fn new(
        tulip: TulipService,
        others: Routes,
        calls: TaskTracker,
        max_message_bytes: usize,
    ) -> Self {
        let tulip = TulipServer::new(tulip)
            .max_decoding_message_size(max_message_bytes)
            .max_encoding_message_size(usize::MAX);
        Self {
            tulip,
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

    fn call(&self, request: Request<Incoming>) -> Self::Future {
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
