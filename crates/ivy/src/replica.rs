//! One replica: its connection, whether it gets work, and the account of what it was sent.

pub(crate) mod connection;
pub(crate) mod keeper;
pub(crate) mod load;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tulip_proto::v1::{LoadReport, Timings};

use crate::backend::{ReplicaLoad, ReplicaState};
use crate::error::retry_after;
use crate::fleet::metrics;
use crate::fleet::registry::Identity;
use crate::model::Model;
use crate::replica::connection::{Connection, Target};
use crate::replica::load::Load;
use crate::retry::Failure;

/// A full replica that does not say when to come back is left alone for that long.
const DEFAULT_PAUSE: Duration = Duration::from_millis(100);

/// See the module. Shared by its keeper, which connects and probes, and the calls.
pub(crate) struct Replica {
    target: Target,
    /// `HOST:PORT` for logs, metrics and the status page.
    label: Arc<str>,
    max_calls: usize,
    state: Mutex<State>,
    /// The keeper is to look at `state`.
    pub(crate) wake: Notify,
    /// Nothing is sent to it any more; its keeper ends.
    pub(crate) removed: CancellationToken,
}

#[derive(Default)]
struct State {
    connection: Option<Arc<dyn Connection>>,
    /// What it serves, or served before it was ejected.
    model: Option<Arc<Model>>,
    phase: Phase,
    /// Whether it contradicts the others of its model.
    refused: bool,
    /// Failed calls since the last good one.
    failures: u32,
    /// How often it was ejected since the last good call.
    ejections: u32,
    load: Load,
}

impl State {
    /// Tokens that may wait there, by its last answer, else as its model came; `MAX` if it never
    /// said.
    fn max_queued_tokens(&self) -> u64 {
        let of_model = || {
            self.model
                .as_ref()
                .map_or(0, |m| m.limits().max_queued_tokens)
        };
        match self.load.report().max_queued_tokens {
            0 => match of_model() {
                0 => u64::MAX,
                limit => limit,
            },
            limit => limit,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Phase {
    #[default]
    Connecting,
    Up,
    /// The connection is kept where it is not what failed.
    Ejected,
    Draining,
}

/// A replica as one who hands out work sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Standing {
    /// Tokens before a new call.
    pub(crate) ahead: f64,
    /// Tokens per second, if known.
    pub(crate) rate: Option<f64>,
    /// Tokens that may wait there.
    pub(crate) max_queued_tokens: u64,
    /// Its queue was full a moment ago.
    pub(crate) full: bool,
}

impl Replica {
    pub(crate) fn new(target: Target, max_calls: usize) -> Arc<Self> {
        let label = target.address.to_string().into();
        Arc::new(Self {
            target,
            label,
            max_calls,
            state: Mutex::default(),
            wake: Notify::new(),
            removed: CancellationToken::new(),
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.target.address
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    pub(crate) fn label(&self) -> &Arc<str> {
        &self.label
    }

    /// The state for those who hand out work; `None` when it gets none.
    pub(crate) fn standing(&self, now: Instant) -> Option<Standing> {
        let state = self.state.lock();
        if !self.takes_work(&state) {
            return None;
        }
        Some(Standing {
            ahead: state.load.ahead(now),
            rate: state.load.rate(now),
            max_queued_tokens: state.max_queued_tokens(),
            full: state.load.is_full(now),
        })
    }

    fn takes_work(&self, state: &State) -> bool {
        state.phase == Phase::Up
            && !state.refused
            && state.load.calls() < self.max_calls
            && !self.removed.is_cancelled()
    }

    /// Reserves room for a call; `None` when it gets no work any more.
    pub(crate) fn begin(self: &Arc<Self>, tokens: u64, bulk: bool) -> Option<Ticket> {
        let mut state = self.state.lock();
        if !self.takes_work(&state) {
            return None;
        }
        let connection = Arc::clone(state.connection.as_ref()?);
        state.load.sent(Instant::now(), tokens);
        let outstanding = state.load.outstanding_tokens();
        drop(state);
        metrics::outstanding(&self.label, outstanding);
        Some(Ticket {
            replica: Arc::clone(self),
            connection,
            tokens,
            bulk,
            started: Instant::now(),
        })
    }

    /// The model that it serves, or served last.
    pub(crate) fn model(&self) -> Option<Arc<Model>> {
        self.state.lock().model.clone()
    }

    /// Whether it would get work if it agrees with the others.
    pub(crate) fn is_up(&self) -> bool {
        self.state.lock().phase == Phase::Up && !self.removed.is_cancelled()
    }

    /// Tokens that may wait there; `None` where it serves another model.
    pub(crate) fn max_queued_tokens(&self, model: &Model) -> Option<u64> {
        let state = self.state.lock();
        let serves = state.model.as_ref()?;
        Identity::same(serves, model).then(|| state.max_queued_tokens())
    }

    pub(crate) fn phase(&self) -> Phase {
        self.state.lock().phase
    }

    /// How often it was ejected since the last good call.
    pub(crate) fn ejections(&self) -> u32 {
        self.state.lock().ejections
    }

    pub(crate) fn connection(&self) -> Option<Arc<dyn Connection>> {
        self.state.lock().connection.clone()
    }

    /// Says whether it contradicts the others of its model; returns whether that is new.
    pub(crate) fn set_refused(&self, refused: bool) -> bool {
        std::mem::replace(&mut self.state.lock().refused, refused) != refused
    }

    /// Takes it into use.
    pub(crate) fn set_up(&self, connection: Arc<dyn Connection>, model: Arc<Model>) {
        let mut state = self.state.lock();
        let same = state
            .connection
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(known, &connection));
        if !same {
            state.load.forget();
        }
        state.connection = Some(connection);
        state.model = Some(model);
        state.phase = Phase::Up;
        state.failures = 0;
    }

    /// Takes it out of use; `keep` the connection where it is not what failed. Returns whether it
    /// was in use.
    pub(crate) fn set_down(&self, phase: Phase, keep: bool) -> bool {
        let mut state = self.state.lock();
        let was_up = state.phase == Phase::Up;
        state.phase = phase;
        if was_up {
            state.ejections = state.ejections.saturating_add(1);
        }
        if !keep {
            state.connection = None;
        }
        drop(state);
        self.wake.notify_one();
        was_up
    }

    /// For the status page.
    pub(crate) fn load(&self) -> ReplicaLoad {
        let state = self.state.lock();
        ReplicaLoad {
            address: self.label.to_string(),
            model: state
                .model
                .as_ref()
                .map_or_else(String::new, |model| model.name().into()),
            state: match state.phase {
                Phase::Connecting => ReplicaState::Connecting,
                Phase::Up if state.refused => ReplicaState::Refused,
                Phase::Up => ReplicaState::Ready,
                Phase::Ejected => ReplicaState::Ejected,
                Phase::Draining => ReplicaState::Draining,
            },
            outstanding_tokens: state.load.outstanding_tokens(),
            report: state.load.report(),
        }
    }

    /// A good answer of `tokens`, which are off the account already.
    fn succeeded(&self, tokens: u64, bulk: bool, report: Option<LoadReport>, timings: Timings) {
        let mut state = self.state.lock();
        state.failures = 0;
        state.ejections = 0;
        if let Some(report) = report {
            let now = Instant::now();
            state.load.answered(now, tokens, report, timings, bulk);
        }
    }
}

impl std::fmt::Debug for Replica {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = formatter.debug_struct("Replica");
        debug.field("label", &self.label).finish_non_exhaustive()
    }
}

/// What a failed call asks of the one who owns the replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) failure: Failure,
    /// Calls of this replica that failed one after the other.
    pub(crate) in_a_row: u32,
}

/// A call at a replica. Dropping it takes its tokens off the account.
#[derive(Debug)]
pub(crate) struct Ticket {
    replica: Arc<Replica>,
    connection: Arc<dyn Connection>,
    tokens: u64,
    bulk: bool,
    started: Instant,
}

impl std::fmt::Debug for dyn Connection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Connection")
    }
}

impl Ticket {
    pub(crate) fn connection(&self) -> &dyn Connection {
        &*self.connection
    }

    pub(crate) fn replica(&self) -> &Arc<Replica> {
        &self.replica
    }

    /// Whether the replica still has the connection that this call was made on.
    pub(crate) fn is_current(&self) -> bool {
        let state = self.replica.state.lock();
        let current = state.connection.as_ref();
        current.is_some_and(|current| Arc::ptr_eq(current, &self.connection))
    }

    /// The answer came.
    pub(crate) fn succeed(self, report: Option<LoadReport>, timings: Option<Timings>) {
        let (replica, tokens, bulk) = (Arc::clone(&self.replica), self.tokens, self.bulk);
        metrics::call(&replica.label, tonic::Code::Ok, self.started.elapsed());
        // First off the account: what is reported does not hold this call any more.
        drop(self);
        replica.succeeded(tokens, bulk, report, timings.unwrap_or_default());
    }

    /// The call failed.
    pub(crate) fn fail(self, status: &Status) -> Failed {
        let failure = Failure::of(status);
        metrics::call(&self.replica.label, status.code(), self.started.elapsed());
        let mut state = self.replica.state.lock();
        match failure {
            Failure::Full => {
                let pause = retry_after(status).unwrap_or(DEFAULT_PAUSE);
                state.load.full(Instant::now(), pause);
            }
            Failure::Request => {}
            Failure::Connection | Failure::NotServing | Failure::Step => {
                state.failures = state.failures.saturating_add(1);
            }
        }
        Failed {
            failure,
            in_a_row: state.failures,
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let outstanding = {
            let mut state = self.replica.state.lock();
            state.load.ended(self.tokens);
            state.load.outstanding_tokens()
        };
        metrics::outstanding(&self.replica.label, outstanding);
    }
}
