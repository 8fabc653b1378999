//! Threads that serve connections, each with a runtime of its own.
//!
//! A connection and its calls stay on one thread. Among workers that share their tasks, each one that
//! finds work wakes another to look for more, and whichever looked last sleeps on the sockets: a call
//! that meets a sleeping thread waits 50 µs for it, several times on its way.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc as blocking;
use std::thread;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use crate::connection::{Stop, serve};
use crate::endpoint::Endpoint;

/// Connections on their way to a thread; more wait in the system's own queue.
const WAITING_CONNECTIONS: usize = 64;

/// One thread.
#[derive(Debug)]
struct Front {
    connections: mpsc::Sender<(std::net::TcpStream, Open)>,
    open: Arc<AtomicUsize>,
}

/// Counts a connection for as long as it lives.
#[derive(Debug)]
struct Open(Arc<AtomicUsize>);

impl Open {
    fn new(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(open))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All threads. They end once this is dropped and their connections have ended, or when told to.
#[derive(Debug)]
pub(crate) struct Fronts {
    fronts: Vec<Front>,
}

/// Tells when the threads of [`Fronts`] have ended.
#[derive(Debug)]
pub(crate) struct Ended(blocking::Receiver<()>);

impl Ended {
    /// Waits until they have, up to `timeout`.
    pub(crate) fn wait(&self, timeout: Duration) {
        // Nothing is ever sent: the last thread to end drops the other side.
        let _ = self.0.recv_timeout(timeout);
    }
}

impl Fronts {
    /// Starts `threads` of them.
    ///
    /// # Errors
    /// The system gives no threads.
    pub(crate) fn spawn(
        threads: usize,
        endpoint: &Endpoint,
        stop: &Stop,
        tracker: &TaskTracker,
    ) -> io::Result<(Self, Ended)> {
        let (alive, ended) = blocking::sync_channel(1);
        let fronts = (0..threads)
            .map(|_| {
                let runtime = Builder::new_current_thread().enable_all().build()?;
                let (sender, receiver) = mpsc::channel(WAITING_CONNECTIONS);
                let (endpoint, stop) = (endpoint.clone(), stop.clone());
                let (tracker, alive) = (tracker.clone(), alive.clone());
                thread::Builder::new()
                    .name("tulip-front".into())
                    .spawn(move || {
                        run(runtime, receiver, &endpoint, &stop, &tracker);
                        drop(alive);
                    })?;
                Ok(Front {
                    connections: sender,
                    open: Arc::default(),
                })
            })
            .collect::<io::Result<_>>()?;
        Ok((Self { fronts }, Ended(ended)))
    }

    /// Gives a connection to the thread that has the fewest.
    ///
    /// # Errors
    /// The connection is broken, or the threads have ended.
    pub(crate) async fn serve(&self, stream: TcpStream) -> io::Result<()> {
        let front = self
            .fronts
            .iter()
            .min_by_key(|front| front.open.load(Ordering::Relaxed))
            .ok_or(io::ErrorKind::NotConnected)?;
        let connection = (stream.into_std()?, Open::new(&front.open));
        front
            .connections
            .send(connection)
            .await
            .map_err(|_| io::ErrorKind::NotConnected.into())
    }
}

fn run(
    runtime: Runtime,
    mut connections: mpsc::Receiver<(std::net::TcpStream, Open)>,
    endpoint: &Endpoint,
    stop: &Stop,
    tracker: &TaskTracker,
) {
    runtime.block_on(async {
        let own = TaskTracker::new();
        let serving = async {
            while let Some((stream, open)) = connections.recv().await {
                let stream = match TcpStream::from_std(stream) {
                    Ok(stream) => stream,
                    Err(error) => {
                        tracing::warn!(%error, "a connection cannot be watched");
                        continue;
                    }
                };
                let served = serve(stream, endpoint.clone(), stop.clone());
                own.spawn(tracker.track_future(async move {
                    served.await;
                    drop(open);
                }));
            }
            own.close();
            own.wait().await;
        };
        tokio::select! {
            () = serving => {}
            () = stop.now.cancelled() => {}
        }
    });
    // What a call still computes elsewhere is not waited for.
    runtime.shutdown_background();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_connections_are_counted() {
        let open = Arc::default();
        let first = Open::new(&open);
        let second = Open::new(&open);
        assert_eq!(open.load(Ordering::Relaxed), 2);
        drop(first);
        assert_eq!(open.load(Ordering::Relaxed), 1);
        drop(second);
        assert_eq!(open.load(Ordering::Relaxed), 0);
    }
}
