//! Accepts connections and speaks HTTP/1.1 or HTTP/2 on them, until told to stop.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use metrics::gauge;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use crate::metrics::CONNECTIONS;

/// Bytes of one HTTP/2 request, and of all of one connection, on their way to us.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// Requests on one HTTP/2 connection at the same time.
const MAX_CONCURRENT_STREAMS: u32 = 1024;
/// Requests that a client may have cancelled before we have noticed; clients that hedge cancel
/// often, and more than this closes the connection.
const MAX_PENDING_RESETS: usize = 1024;
/// A silent HTTP/2 connection is asked for a sign of life, and dropped without one.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// Pause when the system has no more file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// When connections end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop {
    /// Accept no more, take no new requests, end once those in flight have ended.
    pub(crate) gracefully: CancellationToken,
    /// End now.
    pub(crate) now: CancellationToken,
}

/// What every connection needs.
#[derive(Clone)]
pub(crate) struct Listening {
    pub(crate) app: Router,
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) header_timeout: Duration,
    pub(crate) keepalive_timeout: Duration,
    pub(crate) stop: Stop,
}

/// Accepts until `stop.gracefully`; each connection is a task of `connections`, and there are
/// `max_connections` at the most.
pub(crate) async fn accept(
    listener: TcpListener,
    listening: Listening,
    max_connections: usize,
    connections: TaskTracker,
) {
    let places = Arc::new(Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS)));
    let stop = listening.stop.clone();
    loop {
        let place = tokio::select! {
            place = Arc::clone(&places).acquire_owned() => place,
            () = stop.gracefully.cancelled() => return,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.gracefully.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let serving = serve(stream, listening.clone());
                connections.spawn(async move {
                    let _place = place;
                    let _open = Open::new();
                    serving.await;
                });
            }
            // These concern one connection only, which is gone already.
            Err(error) if is_of_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Counts an open connection.
struct Open;

impl Open {
    fn new() -> Self {
        gauge!(CONNECTIONS).increment(1.0);
        Self
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        gauge!(CONNECTIONS).decrement(1.0);
    }
}

fn is_of_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

async fn serve(stream: TcpStream, listening: Listening) {
    // Small answers must not wait for more to send. Without it they are late, not wrong.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY cannot be set");
    }
    let Some(tls) = listening.tls.clone() else {
        return speak(stream, listening).await;
    };
    let greeted = tokio::select! {
        greeted = tokio::time::timeout(listening.header_timeout, tls.accept(stream)) => greeted,
        () = listening.stop.gracefully.cancelled() => return,
    };
    match greeted {
        Ok(Ok(stream)) => speak(stream, listening).await,
        Ok(Err(error)) => tracing::debug!(%error, "TLS failed"),
        Err(_) => tracing::debug!("TLS took too long"),
    }
}

async fn speak(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, listening: Listening) {
    let Listening {
        app,
        header_timeout,
        keepalive_timeout,
        stop,
        ..
    } = listening;
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(keepalive_timeout);
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(MAX_CONCURRENT_STREAMS)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT);
    let asked = Arc::new(AtomicBool::new(false));
    let noted = Arc::clone(&asked);
    let service = service_fn(move |request: http::Request<Incoming>| {
        noted.store(true, Ordering::Relaxed);
        let response = app.clone().oneshot(request.map(Body::new));
        async move { Ok::<_, Infallible>(response.await.unwrap_or_else(|never| match never {})) }
    });
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    // Until the first request nothing else keeps watch: half-open connections would stay.
    let mut greeting = pin!(tokio::time::sleep(header_timeout));
    let mut greeted = false;
    let mut stopping = false;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection ended");
                }
                return;
            }
            () = &mut greeting, if !greeted => {
                if !asked.load(Ordering::Relaxed) {
                    return;
                }
                greeted = true;
            }
            () = stop.now.cancelled() => return,
            () = stop.gracefully.cancelled(), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}
