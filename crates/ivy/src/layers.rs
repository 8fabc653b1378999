//! What happens around every route: id, count, key, place, CORS.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use tokio::time::Instant;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer, ExposeHeaders};

use crate::api::family::Family;
use crate::api::{Arrival, is_public, route_name, router};
use crate::config::GatewayConfig;
use crate::error::Result;
use crate::gateway::Gateway;
use crate::metrics::RequestRecord;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longer ones are replaced: they go into logs and answers.
const MAX_REQUEST_ID_BYTES: usize = 128;
/// What scripts of other origins may read of an answer.
const EXPOSED: [&str; 14] = [
    "retry-after",
    "server-timing",
    "x-compute-characters",
    "x-compute-time",
    "x-compute-tokens",
    "x-compute-type",
    "x-inference-time",
    "x-item-errors",
    "x-model-fingerprint",
    "x-queue-time",
    "x-request-id",
    "x-tokenization-time",
    "x-total-time",
    "x-truncated",
];

/// The routes with everything around them.
pub(crate) fn app(gateway: Arc<Gateway>) -> Router {
    let cors = cors(&gateway.config);
    let routes = router().layer(from_fn_with_state(Arc::clone(&gateway), around));
    let routes = match cors {
        Some(cors) => routes.layer(cors),
        None => routes,
    };
    routes.with_state(gateway)
}

async fn around(State(gateway): State<Arc<Gateway>>, mut request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let arrival = Arrival {
        at: Instant::now(),
        request_id: request_id(request.headers()),
        route: route_name(path),
    };
    let route = arrival.route;
    let record = RequestRecord::start(route);
    let work = (request.method() == Method::POST).then(|| gateway.activity.begin());
    let request_id = Arc::clone(&arrival.request_id);
    let mut response = match enter(&gateway, &request) {
        Ok(_place) => {
            request.extensions_mut().insert(arrival);
            next.run(request).await
        }
        Err(error) => Family::of_path(path).respond(&error, &request_id),
    };
    if let Ok(value) = HeaderValue::from_str(&request_id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    let status = response.status();
    // Probes ask again and again; whoever took the replica out of use has said why.
    if status.is_server_error() && route != "/health" {
        tracing::warn!(route, %status, %request_id, "request failed");
    }
    record.finish(status);
    if let Some(work) = work {
        work.finish(status);
    }
    response
}

/// Checks the key and takes a place. Reading is for everybody who has a key, however full it is.
fn enter(
    gateway: &Gateway,
    request: &Request,
) -> Result<Option<tokio::sync::OwnedSemaphorePermit>> {
    // A page is public; what is sent to the same path is work.
    if !(request.method().is_safe() && is_public(request.uri().path())) {
        gateway.keys.check(request.headers())?;
    }
    if request.method() == Method::POST {
        return gateway.admit().map(Some);
    }
    Ok(None)
}

/// The client's own, where it is fit to be repeated.
fn request_id(headers: &HeaderMap) -> Arc<str> {
    let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok());
    match given {
        Some(id) if !id.is_empty() && id.len() <= MAX_REQUEST_ID_BYTES => id.into(),
        _ => format!("{:032x}", rand::random::<u128>()).into(),
    }
}

fn cors(config: &GatewayConfig) -> Option<CorsLayer> {
    if config.cors_origins.is_empty() {
        return None;
    }
    let origin = if config.cors_origins.iter().any(|origin| origin == "*") {
        AllowOrigin::any()
    } else {
        let origins = config.cors_origins.iter();
        AllowOrigin::list(origins.filter_map(|origin| HeaderValue::from_str(origin).ok()))
    };
    let exposed = EXPOSED.map(HeaderName::from_static);
    Some(
        CorsLayer::new()
            .allow_origin(origin)
            .allow_methods([Method::GET, Method::POST])
            .allow_headers(AllowHeaders::mirror_request())
            .expose_headers(ExposeHeaders::list(exposed)),
    )
}
