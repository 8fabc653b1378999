//! One HTTP request on its way through a dialect: its body read, its time counted, and its answer.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, HeaderValue, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tulip_proto::quoted;

use super::family::Family;
use super::report::Report;
use crate::error::{Error, Result};
use crate::gateway::Gateway;
use crate::job::{EmbedJob, Embedded, ScoreJob, Scored};
use crate::model::Model;
use crate::surrogates::repaired;

/// Larger JSON is read and written on the pool's threads: it would hold up other requests of
/// this worker for milliseconds.
const INLINE_JSON_BYTES: usize = 256 * 1024;

/// What the layers around the router know of a request; an extension of it.
#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    pub(crate) at: Instant,
    pub(crate) request_id: Arc<str>,
    pub(crate) route: &'static str,
}

/// A request whose body has arrived. Being one never fails: what is wrong is told when the body
/// or the deadline is asked for, so that the dialect can say it in its own words.
pub(crate) struct Call {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) headers: HeaderMap,
    pub(crate) arrival: Arrival,
    deadline: Result<Instant>,
    body: Result<Bytes>,
}

impl FromRequest<Arc<Gateway>> for Call {
    type Rejection = Infallible;

    async fn from_request(request: Request, gateway: &Arc<Gateway>) -> Result<Self, Infallible> {
        let (mut parts, body) = request.into_parts();
        let arrival = parts.extensions.remove().unwrap_or_else(|| Arrival {
            at: Instant::now(),
            request_id: "".into(),
            route: "",
        });
        let config = &gateway.config;
        let deadline = crate::deadline::of_request(
            &parts.headers,
            arrival.at,
            config.default_timeout,
            config.max_timeout,
        );
        let body = match (&deadline, check_media_type(&parts.headers)) {
            (_, Err(error)) => Err(error),
            (Err(error), _) => Err(error.clone()),
            (Ok(deadline), Ok(())) => read(gateway, &parts.headers, body, *deadline).await,
        };
        Ok(Self {
            gateway: Arc::clone(gateway),
            headers: parts.headers,
            arrival,
            deadline,
            body,
        })
    }
}

/// Plain JSON, or nothing said.
fn check_media_type(headers: &HeaderMap) -> Result<()> {
    if let Some(encoding) = headers.get(header::CONTENT_ENCODING)
        && encoding != "identity"
    {
        return Err(Error::MediaType(format!(
            "content-encoding {} is not supported, send the body as it is",
            quoted(encoding)
        )));
    }
    let Some(given) = headers.get(header::CONTENT_TYPE) else {
        return Ok(());
    };
    let essence = given.to_str().unwrap_or_default().split(';').next();
    let essence = essence.unwrap_or_default().trim().to_ascii_lowercase();
    let is_json = essence == "application/json"
        || (essence.starts_with("application/") && essence.ends_with("+json"));
    if is_json {
        return Ok(());
    }
    Err(Error::MediaType(format!(
        "content-type {} is not supported, send application/json",
        quoted(given)
    )))
}

/// The whole body, if it is neither too large nor too slow.
async fn read(
    gateway: &Gateway,
    headers: &HeaderMap,
    body: Body,
    deadline: Instant,
) -> Result<Bytes> {
    let limit = gateway.config.max_body_bytes;
    let length = headers.get(header::CONTENT_LENGTH);
    let length = length.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > limit) {
        return Err(Error::TooLarge { limit });
    }
    let patience = gateway.config.body_timeout;
    let begun = Instant::now();
    let until = deadline.min(begun + patience);
    match tokio::time::timeout_at(until, Limited::new(body, limit).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Error::TooLarge { limit }),
        Ok(Err(error)) => Err(Error::BrokenBody(error.to_string())),
        Err(_) if until == deadline => {
            let waited_ms = begun.elapsed().as_millis();
            Err(Error::DeadlineExceeded(format!(
                "deadline exceeded after {waited_ms} ms, before the body had arrived"
            )))
        }
        Err(_) => Err(Error::SlowBody(patience.as_millis())),
    }
}

impl Call {
    /// The model that the request names, or the one that is meant where it names none.
    pub(crate) fn model(&self, name: Option<&str>) -> Result<Arc<Model>> {
        self.gateway.model(name.unwrap_or_default())
    }

    /// Answers a score job within the deadline of the request.
    pub(crate) async fn score(&self, job: ScoreJob) -> Result<Scored> {
        self.gateway.score(job, self.deadline()?).await
    }

    /// The same for several that belong together; see [`Gateway::score_each`].
    pub(crate) async fn score_each(&self, jobs: Vec<ScoreJob>) -> Result<Scored> {
        self.gateway.score_each(jobs, self.deadline()?).await
    }

    /// Answers an embed job within the deadline of the request.
    pub(crate) async fn embed(&self, job: EmbedJob) -> Result<Embedded> {
        self.gateway.embed(job, self.deadline()?).await
    }

    /// Until when somebody waits.
    pub(crate) fn deadline(&self) -> Result<Instant> {
        self.deadline.clone()
    }

    /// The body as what a dialect expects.
    pub(crate) async fn json<T: DeserializeOwned + Send + 'static>(&self) -> Result<T> {
        let body = self.body.clone()?;
        if body.len() <= INLINE_JSON_BYTES {
            return parse(&body);
        }
        let parsed = self.gateway.pool.run(move || parse(&body)).await;
        parsed.map_err(|error| Error::Unavailable(error.to_string()))?
    }

    /// As [`Call::json`], for a look at a body that is wrong; small things only.
    pub(crate) fn peek<T: DeserializeOwned>(&self) -> Option<T> {
        let body = self.body.as_ref().ok()?;
        serde_json::from_slice(&repaired(body)).ok()
    }

    /// The answer that a dialect has made, or its error in the words of the family.
    pub(crate) fn respond(&self, family: Family, outcome: Result<Reply>) -> Response {
        match outcome {
            Ok(reply) => reply.into_response(self),
            Err(error) => family.respond(&error, &self.arrival.request_id),
        }
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    let body = repaired(body);
    // It would be read as the fields in the order in which they happen to stand in our code.
    if body.trim_ascii_start().first() == Some(&b'[') {
        return Err(Error::invalid(
            "",
            "the body must be a JSON object, is a list",
        ));
    }
    let error = match serde_json::from_slice::<T>(&body) {
        Ok(value) => return Ok(value),
        Err(error) if error.is_data() => error,
        Err(error) => return Err(Error::Malformed(error.to_string())),
    };
    // Read again only when it is wrong: to say where.
    let mut deserializer = serde_json::Deserializer::from_slice(&body);
    let path = match serde_path_to_error::deserialize::<_, T>(&mut deserializer) {
        Ok(_) => String::new(),
        Err(located) => located.path().to_string(),
    };
    let path = if path == "." { String::new() } else { path };
    Err(Error::invalid(path, error.to_string()))
}

/// An answer in a dialect's own JSON.
pub(crate) struct Reply {
    body: Vec<u8>,
    report: Option<Report>,
}

impl Reply {
    /// An answer without a job behind it.
    pub(crate) fn plain(value: &impl Serialize) -> Result<Self> {
        Ok(Self {
            body: written(value)?,
            report: None,
        })
    }

    /// An answer with what the job tells of itself.
    pub(crate) fn with_report(value: &impl Serialize, report: Report) -> Result<Self> {
        Ok(Self {
            body: written(value)?,
            report: Some(report),
        })
    }

    /// As [`Reply::with_report`]; written on the pool's threads when `values` numbers are many.
    pub(crate) async fn large<T>(
        gateway: &Gateway,
        value: T,
        values: usize,
        report: Report,
    ) -> Result<Self>
    where
        T: Serialize + Send + 'static,
    {
        // A number takes about twelve characters.
        if values * 12 <= INLINE_JSON_BYTES {
            return Self::with_report(&value, report);
        }
        let body = gateway.pool.run(move || written(&value)).await;
        let body = body.map_err(|error| Error::Unavailable(error.to_string()))??;
        Ok(Self {
            body,
            report: Some(report),
        })
    }

    fn into_response(self, call: &Call) -> Response {
        let content_type = HeaderValue::from_static("application/json");
        let mut response = ([(header::CONTENT_TYPE, content_type)], self.body).into_response();
        if let Some(report) = self.report {
            report.write_headers(response.headers_mut(), call.arrival.at.elapsed());
            let answered = crate::metrics::Answered {
                items: report.items,
                tokens: report.usage.input_tokens,
                truncations: report.truncations.len(),
                item_errors: report.item_errors.len(),
            };
            crate::metrics::answered(call.arrival.route, &answered);
            call.gateway.activity.answered(&answered);
        }
        response
    }
}

fn written(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| Error::Internal(format!("answer: {error}")))
}
