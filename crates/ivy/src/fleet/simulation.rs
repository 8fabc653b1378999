//! Replicas without a network, under a paused clock: rates, queues and faults as a test wants them.

mod answers;
mod requests;
mod served;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tulip_proto::v1::*;

use self::answers::Connected;
pub(crate) use self::answers::broken;
pub(crate) use self::requests::{late, score_request, sequence, until_ready};
pub(crate) use self::served::{model, other_tokenizer};
use crate::fleet::{Fleet, FleetConfig};
use crate::replica::connection::{Connect, Connection, Target};
use crate::resolve::{ReplicaName, Resolve};

/// One simulated replica: answers one call after the other, at its rate.
#[derive(Clone)]
pub(crate) struct Host(pub(crate) Arc<Mutex<HostState>>);

pub(crate) struct HostState {
    pub(crate) tokens_per_second: f64,
    pub(crate) model: GetModelResponse,
    /// What the next calls are answered with instead.
    pub(crate) script: VecDeque<Status>,
    /// What every call is answered with instead.
    pub(crate) always: Option<Status>,
    /// Said in every load report.
    pub(crate) draining: bool,
    /// The next call never ends.
    pub(crate) stall: bool,
    /// Documents or inputs of the calls so far.
    pub(crate) calls: Vec<usize>,
    /// Calls dropped before they ended.
    pub(crate) cancelled: usize,
    pub(crate) times_connected: usize,
    busy_until: Option<Instant>,
    queued_tokens: u64,
    alive: bool,
    /// Ends the connections there are.
    killed: CancellationToken,
}

impl Host {
    pub(crate) fn new(tokens_per_second: f64) -> Self {
        Self(Arc::new(Mutex::new(HostState {
            tokens_per_second,
            model: model("model", "one"),
            script: VecDeque::new(),
            always: None,
            draining: false,
            stall: false,
            calls: Vec::new(),
            cancelled: 0,
            times_connected: 0,
            busy_until: None,
            queued_tokens: 0,
            alive: true,
            killed: CancellationToken::new(),
        })))
    }

    /// Serves another model, or another version of it.
    pub(crate) fn serving(self, name: &str, fingerprint: &str) -> Self {
        self.0.lock().model = model(name, fingerprint);
        self
    }

    pub(crate) fn kill(&self) {
        let mut state = self.0.lock();
        state.alive = false;
        state.killed.cancel();
    }

    pub(crate) fn revive(&self) {
        let mut state = self.0.lock();
        state.alive = true;
        state.killed = CancellationToken::new();
        state.busy_until = None;
        state.queued_tokens = 0;
    }

    pub(crate) fn items(&self) -> usize {
        self.0.lock().calls.iter().sum()
    }

    /// Computes for as long as it takes; the state when it is done.
    async fn compute(
        &self,
        killed: &CancellationToken,
        items: usize,
        tokens: u64,
    ) -> Result<(Timings, LoadReport, String), Status> {
        let finish = {
            let mut state = self.0.lock();
            state.calls.push(items);
            let scripted = state.script.pop_front();
            if let Some(status) = scripted.or_else(|| state.always.clone()) {
                return Err(status);
            }
            state.admit(tokens)?;
            let now = Instant::now();
            let seconds = tokens as f64 / state.tokens_per_second;
            let begin = state.busy_until.map_or(now, |busy| busy.max(now));
            let finish = begin + Duration::from_secs_f64(seconds);
            if std::mem::take(&mut state.stall) {
                None
            } else {
                state.busy_until = Some(finish);
                state.queued_tokens += tokens;
                Some(finish)
            }
        };
        let mut leaving = Leaving(Some(self.clone()));
        tokio::select! {
            () = async {
                match finish {
                    Some(finish) => sleep_until(finish).await,
                    None => std::future::pending().await,
                }
            } => {}
            () = killed.cancelled() => {
                leaving.0 = None;
                return Err(broken());
            }
        }
        leaving.0 = None;
        let mut state = self.0.lock();
        state.queued_tokens = state.queued_tokens.saturating_sub(tokens);
        let report = LoadReport {
            queued_tokens: state.queued_tokens,
            tokens_per_second: state.tokens_per_second as u64,
            max_queued_tokens: state
                .model
                .limits
                .map_or(0, |limits| limits.max_queued_tokens),
            draining: state.draining,
            ..LoadReport::default()
        };
        let compute_us = (tokens as f64 / state.tokens_per_second * 1e6) as u64;
        let timings = Timings {
            compute_us,
            ..Timings::default()
        };
        Ok((timings, report, state.model.fingerprint.clone()))
    }
}

impl HostState {
    /// Refuses as Tulip does.
    fn admit(&self, tokens: u64) -> Result<(), Status> {
        let limit = self
            .model
            .limits
            .map_or(0, |limits| limits.max_queued_tokens);
        if limit > 0 && tokens > limit {
            let message = format!("request: has {tokens} tokens, limit max_queued_tokens={limit}");
            return Err(Status::invalid_argument(message));
        }
        if limit > 0 && self.queued_tokens + tokens > limit {
            return Err(Status::resource_exhausted("queue full"));
        }
        Ok(())
    }
}

/// Counts a call that is dropped.
struct Leaving(Option<Host>);

impl Drop for Leaving {
    fn drop(&mut self) {
        if let Some(host) = &self.0 {
            host.0.lock().cancelled += 1;
        }
    }
}

/// All hosts there are, at ports 1, 2, 3 … of one address.
struct Network(HashMap<SocketAddr, Host>);

impl Connect for Network {
    fn connect<'a>(
        &'a self,
        target: &'a Target,
    ) -> BoxFuture<'a, Result<Arc<dyn Connection>, String>> {
        Box::pin(async move {
            let host = self.0.get(&target.address).ok_or("no such host")?;
            let mut state = host.0.lock();
            if !state.alive {
                return Err("connection refused".into());
            }
            state.times_connected += 1;
            let connection: Arc<dyn Connection> = Arc::new(Connected {
                host: host.clone(),
                killed: state.killed.clone(),
            });
            Ok(connection)
        })
    }
}

/// Names as a test wants them.
#[derive(Clone, Default)]
pub(crate) struct Names(pub(crate) Arc<Mutex<Vec<u16>>>);

impl Resolve for Names {
    fn resolve<'a>(
        &'a self,
        _name: &'a ReplicaName,
    ) -> BoxFuture<'a, std::io::Result<Vec<SocketAddr>>> {
        let ports = self.0.lock().clone();
        Box::pin(async move {
            if ports.is_empty() {
                return Err(std::io::Error::from(std::io::ErrorKind::NotFound));
            }
            Ok(ports.into_iter().map(address).collect())
        })
    }
}

fn address(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

fn network(hosts: &[Host]) -> Arc<dyn Connect> {
    let hosts = (1..).map(address).zip(hosts.iter().cloned());
    Arc::new(Network(hosts.collect()))
}

/// A fleet of these hosts, given by address.
pub(crate) fn fleet(hosts: &[Host], change: impl FnOnce(&mut FleetConfig)) -> Fleet {
    let name = |port: usize| format!("127.0.0.1:{port}").parse().unwrap();
    let mut config = FleetConfig {
        replicas: (1..=hosts.len()).map(name).collect(),
        ..FleetConfig::default()
    };
    change(&mut config);
    Fleet::with(config, network(hosts), Arc::new(Names::default())).unwrap()
}

/// A fleet of those hosts that `names` gives.
pub(crate) fn named_fleet(hosts: &[Host], names: &Names) -> Fleet {
    let config = FleetConfig {
        replicas: vec!["replicas:1".parse().unwrap()],
        ..FleetConfig::default()
    };
    Fleet::with(config, network(hosts), Arc::new(names.clone())).unwrap()
}
