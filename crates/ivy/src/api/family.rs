//! The one place where errors become HTTP: status, JSON and headers of each family of dialects.

use axum::response::{IntoResponse as _, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;

use crate::error::Error;

/// Dialects whose clients expect the same errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// `{"error": {"message", "type", "param", "code"}}`, codes are words.
    OpenAi,
    /// As OpenAI's, and `detail` for clients of Jina and Voyage, whose path this is too.
    Embeddings,
    /// As OpenAI's, but the type is an exception's name and the code a number.
    Vllm,
    /// `{"message"}`.
    Cohere,
    /// `{"detail"}`, and `message` for clients of Cohere, whose path this is too.
    Jina,
    /// `{"detail"}`.
    Voyage,
    /// `{"error", "error_type"}`, both strings.
    Tei,
}

impl Family {
    /// Whose clients use this path, for errors that come before the body is read.
    #[must_use]
    pub fn of_path(path: &str) -> Self {
        match path {
            "/v1/rerank" => Self::Jina,
            "/score" | "/v1/score" => Self::Vllm,
            "/v1/embeddings" | "/embeddings" => Self::Embeddings,
            "/v1/embed" => Self::Cohere,
            _ if path.starts_with("/v2/") => Self::Cohere,
            _ if path.starts_with("/v1/") => Self::OpenAi,
            _ => Self::Tei,
        }
    }

    /// The HTTP status of an error.
    #[must_use]
    pub fn status(self, error: &Error) -> StatusCode {
        let invalid = match self {
            Self::Jina | Self::Tei => StatusCode::UNPROCESSABLE_ENTITY,
            _ => StatusCode::BAD_REQUEST,
        };
        match error {
            Error::Malformed(_) => match self {
                Self::Jina | Self::Voyage => StatusCode::UNPROCESSABLE_ENTITY,
                _ => StatusCode::BAD_REQUEST,
            },
            Error::Invalid { .. } => invalid,
            Error::Empty { .. } => match self {
                Self::Tei => StatusCode::BAD_REQUEST,
                _ => invalid,
            },
            Error::WrongTask(_) => match self {
                Self::Tei => StatusCode::FAILED_DEPENDENCY,
                _ => invalid,
            },
            Error::NoKey | Error::WrongKey => StatusCode::UNAUTHORIZED,
            Error::UnknownRoute(_) | Error::UnknownModel(_) => StatusCode::NOT_FOUND,
            Error::MethodNotAllowed { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Error::SlowBody(_) => StatusCode::REQUEST_TIMEOUT,
            Error::BrokenBody(_) => StatusCode::BAD_REQUEST,
            Error::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Error::MediaType(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Error::Overloaded { .. } => StatusCode::TOO_MANY_REQUESTS,
            Error::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            Error::DeadlineExceeded(_) => StatusCode::GATEWAY_TIMEOUT,
            Error::Internal(_) => match self {
                Self::Tei => StatusCode::FAILED_DEPENDENCY,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            },
        }
    }

    /// The whole answer; `request_id` goes where the family has a place for it.
    #[must_use]
    pub fn respond(self, error: &Error, request_id: &str) -> Response {
        let error = &error.clone().shortened();
        let status = self.status(error);
        let mut response = match self {
            Self::OpenAi => json(&Wrapped {
                error: openai(error),
                detail: None,
            }),
            Self::Embeddings => json(&Wrapped {
                error: openai(error),
                detail: Some(error.to_string()),
            }),
            Self::Vllm => json(&Wrapped {
                error: vllm(error, status),
                detail: None,
            }),
            Self::Cohere => json(&CohereError {
                id: request_id,
                message: &cohere_message(error),
            }),
            Self::Jina => {
                let text = error.to_string();
                json(&JinaError {
                    detail: &text,
                    message: &text,
                })
            }
            Self::Voyage => json(&VoyageError {
                detail: error.to_string(),
            }),
            Self::Tei => match error {
                Error::NoKey | Error::WrongKey => ().into_response(),
                Error::TooLarge { .. } => error.to_string().into_response(),
                _ => json(&TeiError {
                    error: tei_message(error),
                    error_type: tei_type(error),
                }),
            },
        };
        *response.status_mut() = status;
        if let Some(after_ms) = error.retry_after_ms() {
            // Whole seconds for everybody, milliseconds for those who read them.
            let seconds = after_ms.div_ceil(1000).max(1);
            let headers = response.headers_mut();
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
            headers.insert(RETRY_AFTER_MS, HeaderValue::from(after_ms));
        }
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// An answer of 200 with this JSON; the caller sets the status.
fn json(value: &impl Serialize) -> Response {
    // Strings and numbers: this cannot fail, and an empty object would still be an answer.
    let body = serde_json::to_vec(value).unwrap_or_else(|_| b"{}".to_vec());
    let content_type = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, content_type)], body).into_response()
}

#[derive(Serialize)]
struct Wrapped<T> {
    error: T,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

#[derive(Serialize)]
struct OpenAiError {
    message: String,
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    param: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
}

fn openai(error: &Error) -> OpenAiError {
    let (r#type, code) = match error {
        Error::NoKey | Error::WrongKey => ("invalid_request_error", Some("invalid_api_key")),
        Error::UnknownModel(_) => ("invalid_request_error", Some("model_not_found")),
        Error::UnknownRoute(_) => ("invalid_request_error", Some("unknown_url")),
        Error::MethodNotAllowed { .. } => ("invalid_request_error", Some("method_not_allowed")),
        Error::Overloaded { .. } => ("rate_limit_error", Some("rate_limit_exceeded")),
        Error::Unavailable(_) => ("server_error", Some("service_unavailable")),
        Error::DeadlineExceeded(_) => ("server_error", Some("timeout")),
        Error::Internal(_) => ("server_error", None),
        _ => ("invalid_request_error", None),
    };
    OpenAiError {
        message: error.to_string(),
        r#type,
        param: param(error),
        code,
    }
}

/// The field that is wrong.
fn param(error: &Error) -> Option<String> {
    match error {
        Error::Invalid { field, .. } | Error::Empty { field } if !field.is_empty() => {
            Some(field.clone())
        }
        Error::UnknownModel(_) => Some("model".into()),
        _ => None,
    }
}

#[derive(Serialize)]
struct VllmError {
    message: String,
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    param: Option<String>,
    code: u16,
}

fn vllm(error: &Error, status: StatusCode) -> VllmError {
    let r#type = match status {
        StatusCode::UNAUTHORIZED => "AuthenticationError",
        StatusCode::NOT_FOUND => "NotFoundError",
        StatusCode::TOO_MANY_REQUESTS => "RateLimitError",
        StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailableError",
        StatusCode::GATEWAY_TIMEOUT => "TimeoutError",
        status if status.is_server_error() => "InternalServerError",
        _ => "BadRequestError",
    };
    VllmError {
        message: error.to_string(),
        r#type,
        param: param(error),
        code: status.as_u16(),
    }
}

#[derive(Serialize)]
struct CohereError<'a> {
    id: &'a str,
    message: &'a str,
}

/// In Cohere's words where it has some.
fn cohere_message(error: &Error) -> String {
    match error {
        Error::NoKey => "no api key supplied".into(),
        Error::WrongKey => "invalid api token".into(),
        Error::Empty { field } if field == "query" => {
            "invalid request: query must not be empty or be only whitespace".into()
        }
        Error::Empty { field } => format!("invalid request: list of {field} must not be empty"),
        Error::Malformed(_) | Error::Invalid { .. } | Error::WrongTask(_) => {
            format!("invalid request: {error}")
        }
        _ => error.to_string(),
    }
}

#[derive(Serialize)]
struct JinaError<'a> {
    detail: &'a str,
    message: &'a str,
}

#[derive(Serialize)]
struct VoyageError {
    detail: String,
}

#[derive(Serialize)]
struct TeiError {
    error: String,
    error_type: &'static str,
}

fn tei_message(error: &Error) -> String {
    match error {
        Error::Empty { field } => format!("`{field}` cannot be empty"),
        Error::Invalid { field, message } if !field.is_empty() => format!("`{field}` {message}"),
        _ => error.to_string(),
    }
}

fn tei_type(error: &Error) -> &'static str {
    match error {
        Error::Empty { .. } => "Empty",
        Error::Overloaded { .. } => "Overloaded",
        Error::Unavailable(_) => "Unhealthy",
        Error::DeadlineExceeded(_) | Error::Internal(_) | Error::WrongTask(_) => "Backend",
        _ => "Validation",
    }
}
