//! `ScoreStream` and `EmbedStream`: many requests in flight, answers as they finish.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::unfold;
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_stream::Stream;
use tonic::{Code, Status, Streaming};
use tulip_proto::v1::{
    EmbedRequest, EmbedResponse, EmbedStreamResponse, ScoreRequest, ScoreResponse,
    ScoreStreamResponse, embed_stream_response, score_stream_response,
};

use super::serving::Serving;
use super::{ServiceState, embed, score};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::metrics::CallRecord;
use crate::status;

/// A call that can be made many times on one stream.
pub(crate) trait StreamMethod: 'static {
    type Request: Send + 'static;
    type Response: Send + 'static;
    type Answer: Send + 'static;
    const METHOD: &'static str;

    fn request_id(request: &Self::Request) -> String;

    fn call(
        serving: &Serving,
        request: Self::Request,
        deadline: &Deadline,
    ) -> impl Future<Output = Result<Self::Response>> + Send;

    fn answer(request_id: String, result: Result<Self::Response>) -> Self::Answer;
}

/// `ScoreStream`.
#[derive(Debug)]
pub(crate) enum Score {}

impl StreamMethod for Score {
    type Request = ScoreRequest;
    type Response = ScoreResponse;
    type Answer = ScoreStreamResponse;
    const METHOD: &'static str = "ScoreStream";

    fn request_id(request: &ScoreRequest) -> String {
        request.request_id.clone()
    }

    fn call(
        serving: &Serving,
        request: ScoreRequest,
        deadline: &Deadline,
    ) -> impl Future<Output = Result<ScoreResponse>> + Send {
        score::score(serving, request, deadline)
    }

    fn answer(request_id: String, result: Result<ScoreResponse>) -> ScoreStreamResponse {
        use score_stream_response::Outcome;
        let outcome = match result {
            Ok(response) => Outcome::Response(response),
            Err(error) => Outcome::Error(error.into()),
        };
        ScoreStreamResponse {
            request_id,
            outcome: Some(outcome),
        }
    }
}

/// `EmbedStream`.
#[derive(Debug)]
pub(crate) enum Embed {}

impl StreamMethod for Embed {
    type Request = EmbedRequest;
    type Response = EmbedResponse;
    type Answer = EmbedStreamResponse;
    const METHOD: &'static str = "EmbedStream";

    fn request_id(request: &EmbedRequest) -> String {
        request.request_id.clone()
    }

    fn call(
        serving: &Serving,
        request: EmbedRequest,
        deadline: &Deadline,
    ) -> impl Future<Output = Result<EmbedResponse>> + Send {
        embed::embed(serving, request, deadline)
    }

    fn answer(request_id: String, result: Result<EmbedResponse>) -> EmbedStreamResponse {
        use embed_stream_response::Outcome;
        let outcome = match result {
            Ok(response) => Outcome::Response(response),
            Err(error) => Outcome::Error(error.into()),
        };
        EmbedStreamResponse {
            request_id,
            outcome: Some(outcome),
        }
    }
}

/// Reads requests while fewer than `max_requests_per_stream` are in flight, and answers them as
/// they finish. Dropping the stream cancels what is in flight.
pub(crate) fn answers<M: StreamMethod>(
    state: &Arc<ServiceState>,
    requests: Streaming<M::Request>,
    deadline: Deadline,
) -> impl Stream<Item = Result<M::Answer, Status>> + Send + use<M> {
    let call = StreamCall::<M> {
        max_in_flight: state.config.max_requests_per_stream,
        state: Arc::clone(state),
        requests,
        in_flight: JoinSet::new(),
        expiry: deadline.at.map(|at| Box::pin(sleep_until(at))),
        deadline,
        end: None,
    };
    unfold(call, |mut call| async move {
        call.next().await.map(|answer| (answer, call))
    })
}

struct StreamCall<M: StreamMethod> {
    state: Arc<ServiceState>,
    requests: Streaming<M::Request>,
    in_flight: JoinSet<M::Answer>,
    max_in_flight: usize,
    deadline: Deadline,
    expiry: Option<Pin<Box<Sleep>>>,
    /// Set once no more is read: how the stream ends after the last answer.
    end: Option<Result<(), Status>>,
}

impl<M: StreamMethod> StreamCall<M> {
    async fn next(&mut self) -> Option<Result<M::Answer, Status>> {
        loop {
            let reading = self.end.is_none();
            if !reading && self.in_flight.is_empty() {
                // Once the status is given, the stream just ends.
                return self.end.replace(Ok(()))?.err().map(Err);
            }
            tokio::select! {
                biased;
                Some(answer) = self.in_flight.join_next() => match answer {
                    Ok(answer) => return Some(Ok(answer)),
                    Err(error) => {
                        // Its request id went with the task: the caller has to be told by the stream.
                        self.end = Some(Err(Error::Internal(format!("a request was lost: {error}")).into()));
                    }
                },
                () = expired(&mut self.expiry) => {
                    self.in_flight.abort_all();
                    self.in_flight.detach_all();
                    self.expiry = None;
                    self.end = Some(Err(self.deadline.exceeded().into()));
                }
                error = self.state.stopped(), if reading => {
                    self.end = Some(Err(error.into()));
                }
                request = self.requests.message(), if reading && self.in_flight.len() < self.max_in_flight => {
                    match request {
                        Ok(Some(request)) => self.start(request),
                        Ok(None) => self.end = Some(Ok(())),
                        Err(status) => self.end = Some(Err(self.read_failure(status))),
                    }
                }
            }
        }
    }

    fn start(&mut self, request: M::Request) {
        let request_id = M::request_id(&request);
        let state = Arc::clone(&self.state);
        let deadline = Deadline {
            arrived: Instant::now(),
            at: self.deadline.at,
        };
        self.in_flight.spawn(async move {
            let record = CallRecord::start(M::METHOD);
            let result = match state.serving() {
                Ok(serving) => deadline.limit(M::call(&serving, request, &deadline)).await,
                Err(error) => Err(error),
            };
            record.finish(result.as_ref().map_or_else(status::code, |_| Code::Ok));
            M::answer(request_id, result)
        });
    }

    fn read_failure(&self, failure: Status) -> Status {
        match failure.code() {
            Code::OutOfRange => {
                status::message_too_large(&failure, self.state.config.max_message_bytes)
            }
            _ => failure,
        }
    }
}

async fn expired(expiry: &mut Option<Pin<Box<Sleep>>>) {
    match expiry {
        Some(sleep) => sleep.await,
        None => std::future::pending().await,
    }
}
