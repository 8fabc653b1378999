//! Accepts TCP connections and speaks HTTP/2 on them, until told to stop.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::endpoint::Endpoint;
use crate::front::Fronts;

/// Bytes of one request, and of all requests of one connection, on their way to us: with the
/// protocol's own 64 KiB a message of megabytes waits for many round trips.
const STREAM_WINDOW: u32 = 2 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// Bytes of one frame: with the protocol's own 16 KiB a message of 100 KB comes in seven pieces.
const MAX_FRAME_SIZE: u32 = 1 << 20;
/// Calls on one connection at the same time; a gateway has few connections.
const MAX_CONCURRENT_STREAMS: u32 = 4096;
/// Calls that a client may have cancelled before we have noticed, more closes the connection.
/// The protocol library's own 20 is less than what a gateway cancels when its own client leaves.
const MAX_PENDING_RESETS: usize = 4096;
/// A silent connection is asked for a sign of life, and dropped without one.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// What every HTTP/2 client sends first, and at once.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Until then nothing keeps watch over the connection: half-open ones would stay for good.
const PREFACE_TIMEOUT: Duration = Duration::from_secs(20);
/// Once the calls have ended: a connection that sends nothing for so long has nothing left to send.
/// One that only watches health would never end by itself.
const FLUSH_TIME: Duration = Duration::from_secs(1);
/// Pause when the system has no more file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// When connections end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop {
    /// Accept no more, open no new calls, end once the calls in flight have ended.
    pub(crate) gracefully: CancellationToken,
    /// End now.
    pub(crate) now: CancellationToken,
}

/// Accepts until `stop.gracefully`, for the threads of `fronts`.
pub(crate) async fn accept(listener: TcpListener, fronts: Fronts, stop: Stop) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.gracefully.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                if let Err(error) = fronts.serve(stream).await {
                    tracing::debug!(%error, "a connection has found no thread");
                }
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

fn is_of_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

/// Counts the bytes that the system has taken.
struct CountedWriter<W> {
    writer: W,
    written: Arc<AtomicU64>,
}

impl<W> CountedWriter<W> {
    fn counted(&self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = result {
            self.written.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        result
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for CountedWriter<W> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.writer).poll_write(context, bytes);
        self.counted(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.writer).poll_write_vectored(context, slices);
        self.counted(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.writer.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_shutdown(context)
    }
}

/// Reads the preface.
async fn read_preface(reader: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
    let reading = async {
        let mut bytes = [0; PREFACE.len()];
        let mut filled = 0;
        while filled < bytes.len() {
            let read = reader.read(&mut bytes[filled..]).await?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            filled += read;
            if bytes[..filled] != PREFACE[..filled] {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "not HTTP/2"));
            }
        }
        Ok(())
    };
    timeout(PREFACE_TIMEOUT, reading).await?
}

/// Serves one connection to its end.
pub(crate) async fn serve(stream: TcpStream, endpoint: Endpoint, stop: Stop) {
    // Small answers must not wait for more to send. Without it they are late, not wrong.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY cannot be set");
    }
    let (mut reader, writer) = stream.into_split();
    let greeted = tokio::select! {
        greeted = read_preface(&mut reader) => greeted,
        () = stop.gracefully.cancelled() => return,
    };
    if let Err(error) = greeted {
        tracing::debug!(%error, "no HTTP/2 connection");
        return;
    }
    let written = Arc::new(AtomicU64::new(0));
    let writer = CountedWriter {
        writer,
        written: Arc::clone(&written),
    };
    let stream = tokio::io::join(PREFACE.chain(reader), writer);
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(MAX_FRAME_SIZE)
        .max_concurrent_streams(MAX_CONCURRENT_STREAMS)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .auto_date_header(false)
        .keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .serve_connection(TokioIo::new(stream), endpoint);
    let mut connection = std::pin::pin!(connection);
    let mut stopping = false;
    let mut seen = 0;
    loop {
        tokio::select! {
            result = connection.as_mut() => {
                if let Err(error) = result {
                    // Clients come and go as they like.
                    tracing::debug!(%error, "connection ended");
                }
                return;
            }
            () = stop.now.cancelled() => return,
            () = stop.gracefully.cancelled(), if !stopping => {
                stopping = true;
                seen = written.load(Ordering::Relaxed);
                connection.as_mut().graceful_shutdown();
            }
            // Answers may still be on their way to a slow reader.
            () = tokio::time::sleep(FLUSH_TIME), if stopping => {
                let now = written.load(Ordering::Relaxed);
                if now == seen {
                    return;
                }
                seen = now;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    /// How the reading of these pieces ends; the client stays connected.
    async fn kind_of(pieces: &[&[u8]]) -> Option<io::ErrorKind> {
        let (mut client, mut server) = tokio::io::duplex(64);
        let reading = tokio::spawn(async move { read_preface(&mut server).await });
        for piece in pieces {
            client.write_all(piece).await.unwrap();
            tokio::task::yield_now().await;
        }
        let result = reading.await.unwrap();
        result.err().map(|error| error.kind())
    }

    #[tokio::test]
    async fn only_what_the_system_has_taken_is_counted() {
        let (mut client, server) = tokio::io::duplex(8);
        let written = Arc::new(AtomicU64::new(0));
        let mut writer = CountedWriter {
            writer: server,
            written: Arc::clone(&written),
        };
        let sending = tokio::spawn(async move { writer.write_all(&[7; 20]).await });
        while written.load(Ordering::Relaxed) < 8 {
            tokio::task::yield_now().await;
        }
        tokio::task::yield_now().await;
        assert_eq!(written.load(Ordering::Relaxed), 8);
        client.read_exact(&mut [0; 20]).await.unwrap();
        sending.await.unwrap().unwrap();
        assert_eq!(written.load(Ordering::Relaxed), 20);
    }

    #[tokio::test(start_paused = true)]
    async fn a_preface_may_come_in_pieces() {
        assert_eq!(kind_of(&[PREFACE]).await, None);
        assert_eq!(kind_of(&[&PREFACE[..5], &PREFACE[5..]]).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_http2_ends_at_its_first_wrong_byte() {
        for bytes in [
            b"GET / HTTP/1.1".as_slice(),
            b"\x16\x03\x01",
            b"PRI * HTTP/1",
        ] {
            assert_eq!(kind_of(&[bytes]).await, Some(io::ErrorKind::InvalidData));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_the_connection() {
        for pieces in [&[][..], &[&PREFACE[..10]]] {
            assert_eq!(kind_of(pieces).await, Some(io::ErrorKind::TimedOut));
        }
    }
}
