//! Which replicas there are, what they serve, and who gets work for which model.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};
use tokio::sync::{OnceCell, watch};
use tokio::time::Instant;
use tonic::Status;
use tulip_proto::v1::GetModelResponse;
use tulip_proto::{quoted, shortened};

use crate::fleet::config::FleetConfig;
use crate::fleet::metrics;
use crate::model::Model;
use crate::replica::connection::{Connect, text_of};
use crate::replica::{Failed, Phase, Replica, Ticket};
use crate::retry::Failure;

/// What replicas of one model must agree in: else their answers, or their token ids, differ.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub(crate) model: String,
    pub(crate) fingerprint: String,
    pub(crate) tokenizer_sha256: String,
}

impl Identity {
    pub(crate) fn of(info: &GetModelResponse) -> Self {
        let tokenizer = info.tokenizer.as_ref();
        Self {
            model: info.model.clone(),
            fingerprint: info.fingerprint.clone(),
            tokenizer_sha256: tokenizer.map_or_else(String::new, |t| t.sha256.clone()),
        }
    }

    /// Whether two models are one, perhaps loaded twice.
    pub(crate) fn same(a: &Model, b: &Model) -> bool {
        Self::of(&a.info) == Self::of(&b.info)
    }

    /// How it differs from `other`, for the operator.
    fn difference(&self, other: &Self) -> String {
        if self.tokenizer_sha256 == other.tokenizer_sha256 {
            let (ours, others) = (&self.fingerprint, &other.fingerprint);
            format!("fingerprint is {ours:?}, the others have {others:?}")
        } else {
            let (ours, others) = (&self.tokenizer_sha256, &other.tokenizer_sha256);
            format!("tokenizer is {ours:?}, the others have {others:?}")
        }
    }
}

/// A model and the replicas that get its work now.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) model: Arc<Model>,
    pub(crate) replicas: Vec<Arc<Replica>>,
    /// Since when there is none.
    pub(crate) empty_since: Option<Instant>,
    /// Whether a request has been given this model; shared by the group's later versions.
    in_use: Arc<AtomicBool>,
}

impl Group {
    fn used(self: &Arc<Self>) -> Arc<Self> {
        self.in_use.store(true, Ordering::Relaxed);
        Arc::clone(self)
    }
}

/// A replica and what it serves, or served last.
type Member<'a> = (&'a Arc<Replica>, Arc<Model>);

/// See the module.
pub(crate) struct Registry {
    pub(crate) config: FleetConfig,
    pub(crate) connect: Arc<dyn Connect>,
    replicas: Mutex<Vec<Arc<Replica>>>,
    /// By name of the model. Replaced as a whole when anything changes.
    groups: RwLock<Arc<[Arc<Group>]>>,
    models: Mutex<HashMap<Identity, Arc<OnceCell<Arc<Model>>>>>,
    changed: watch::Sender<u64>,
}

impl Registry {
    pub(crate) fn new(config: FleetConfig, connect: Arc<dyn Connect>) -> Self {
        Self {
            config,
            connect,
            replicas: Mutex::default(),
            groups: RwLock::new(Arc::new([])),
            models: Mutex::default(),
            changed: watch::Sender::new(0),
        }
    }

    /// Hears of every change of the groups.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(crate) fn groups(&self) -> Arc<[Arc<Group>]> {
        Arc::clone(&self.groups.read())
    }

    pub(crate) fn replicas(&self) -> Vec<Arc<Replica>> {
        self.replicas.lock().clone()
    }

    /// Tokens that may wait at each replica of this model, in use or not.
    pub(crate) fn max_queued_tokens(&self, model: &Model) -> Vec<u64> {
        let replicas = self.replicas.lock();
        let limits = replicas.iter();
        limits
            .filter_map(|replica| replica.max_queued_tokens(model))
            .collect()
    }

    /// The group that a request with this name means.
    ///
    /// # Errors
    /// `NOT_FOUND` where the name is unknown and matters, `UNAVAILABLE` while nothing is served.
    pub(crate) fn group(&self, name: &str) -> Result<Arc<Group>, Status> {
        let groups = self.groups.read();
        let named = groups.iter().find(|group| group.model.name() == name);
        if let Some(group) = named {
            return Ok(group.used());
        }
        match &**groups {
            [] => Err(unavailable("no replica has answered yet")),
            [first, ..] if name.is_empty() => Ok(first.used()),
            [only] if !self.config.strict_model_name => Ok(only.used()),
            groups => {
                let served: Vec<&str> = groups.iter().map(|group| group.model.name()).collect();
                let name = quoted(name);
                let message = format!("model: {name} is not served here, served are {served:?}");
                Err(Status::not_found(shortened(message)))
            }
        }
    }

    /// The model of this identity, loaded by `load` if no replica has brought it before.
    pub(crate) async fn model<E>(
        &self,
        identity: &Identity,
        load: impl AsyncFnOnce() -> Result<Model, E>,
    ) -> Result<Arc<Model>, E> {
        let cell = {
            let mut models = self.models.lock();
            Arc::clone(models.entry(identity.clone()).or_default())
        };
        let model = cell.get_or_try_init(async || load().await.map(Arc::new));
        model.await.map(Arc::clone)
    }

    /// Replaces the replicas; those that are in both lists stay as they are.
    pub(crate) fn set_replicas(&self, replicas: &[Arc<Replica>]) {
        let before = std::mem::replace(&mut *self.replicas.lock(), replicas.to_vec());
        for gone in before {
            if !replicas.iter().any(|replica| Arc::ptr_eq(replica, &gone)) {
                tracing::info!(replica = &**gone.label(), "replica is gone from its name");
                metrics::up(gone.label(), false);
                gone.removed.cancel();
            }
        }
        self.rebuild();
    }

    /// Lets go of all replicas: nothing is sent any more.
    pub(crate) fn close(&self) {
        for replica in std::mem::take(&mut *self.replicas.lock()) {
            metrics::up(replica.label(), false);
            replica.removed.cancel();
        }
        self.rebuild();
    }

    /// Draws the consequences of a failed call.
    pub(crate) fn note_failure(&self, ticket: Ticket, status: &Status) -> Failure {
        let current = ticket.is_current();
        let replica = Arc::clone(ticket.replica());
        let Failed { failure, in_a_row } = ticket.fail(status);
        // What failed on an earlier connection says nothing of this one.
        if current {
            match failure {
                Failure::Connection => {
                    self.take_down(&replica, Phase::Ejected, "connection", status);
                }
                Failure::NotServing => {
                    self.take_down(&replica, Phase::Draining, "not_serving", status);
                }
                Failure::Step if in_a_row >= self.config.eject_after => {
                    if self.can_spare(&replica) {
                        self.take_down(&replica, Phase::Ejected, "step", status);
                    }
                }
                Failure::Step | Failure::Full | Failure::Request => {}
            }
        }
        failure
    }

    /// A replica answered for another model than the one it was asked for.
    pub(crate) fn note_other_model(&self, replica: &Arc<Replica>) {
        let status = Status::unavailable("it answers with another fingerprint than before");
        self.take_down(replica, Phase::Connecting, "fingerprint", &status);
    }

    pub(crate) fn take_down(
        &self,
        replica: &Arc<Replica>,
        phase: Phase,
        reason: &'static str,
        status: &Status,
    ) {
        let keep = reason != "connection";
        if replica.set_down(phase, keep) {
            let (label, status) = (&**replica.label(), text_of(status));
            tracing::warn!(replica = label, reason, status, "replica is out of use");
            metrics::ejected(replica.label(), reason);
            metrics::up(replica.label(), false);
            self.rebuild();
        }
    }

    /// Steps also fail for what is in the request: those never take away more than half of a group.
    fn can_spare(&self, replica: &Arc<Replica>) -> bool {
        // Not under their lock: `rebuild` takes it while it holds the one of the replicas.
        let groups = self.groups();
        let mut groups = groups.iter();
        groups
            .find(|group| {
                group
                    .replicas
                    .iter()
                    .any(|member| Arc::ptr_eq(member, replica))
            })
            .is_some_and(|group| {
                let known = self.replicas.lock();
                let same = |other: &&Arc<Replica>| {
                    let model = other.model();
                    model.is_some_and(|model| model.name() == group.model.name())
                };
                2 * (group.replicas.len() - 1) >= known.iter().filter(same).count()
            })
    }

    /// Draws up the groups anew, from what each replica serves.
    pub(crate) fn rebuild(&self) {
        // Held to the end: of two at the same time the later one sees more.
        let replicas = self.replicas.lock();
        let before = self.groups();
        let mut by_name: BTreeMap<String, Vec<Member<'_>>> = BTreeMap::new();
        for replica in &*replicas {
            if let Some(model) = replica.model() {
                let members = by_name.entry(model.name().to_owned()).or_default();
                members.push((replica, model));
            }
        }
        let groups = by_name.into_iter().map(|(name, members)| {
            let before = before.iter().find(|group| group.model.name() == name);
            let model = agreed(before, &members);
            let identity = Identity::of(&model.info);
            let mut agreeing = Vec::new();
            for (replica, theirs) in members {
                let theirs = Identity::of(&theirs.info);
                let up = replica.is_up();
                let refused = up && theirs != identity;
                if replica.set_refused(refused) && refused {
                    let difference = theirs.difference(&identity);
                    tracing::error!(
                        replica = &**replica.label(),
                        model = name,
                        "replica contradicts the others and gets no work: {difference}"
                    );
                }
                metrics::up(replica.label(), up && !refused);
                if up && !refused {
                    agreeing.push(Arc::clone(replica));
                }
            }
            let empty_since = agreeing.is_empty().then(|| {
                let before = before.and_then(|group| group.empty_since);
                before.unwrap_or_else(Instant::now)
            });
            let in_use = before.map_or_else(Arc::default, |group| Arc::clone(&group.in_use));
            Arc::new(Group {
                model,
                replicas: agreeing,
                empty_since,
                in_use,
            })
        });
        *self.groups.write() = groups.collect();
        let used: Vec<Identity> = replicas
            .iter()
            .filter_map(|replica| Some(Identity::of(&replica.model()?.info)))
            .collect();
        // A model that is being loaded has no replica yet.
        self.models
            .lock()
            .retain(|identity, cell| !cell.initialized() || used.contains(identity));
        self.changed.send_modify(|version| *version += 1);
    }
}

/// The model that a group serves: the one it served before as long as any replica has it, so that
/// nothing changes below requests that are half done; else the one that most replicas have. Before
/// the first request the majority decides too: which replica answered first is chance.
fn agreed(before: Option<&Arc<Group>>, members: &[Member<'_>]) -> Arc<Model> {
    let identity = |model: &Arc<Model>| Identity::of(&model.info);
    let votes = |candidate: &Arc<Model>| {
        let candidate = identity(candidate);
        let agreeing = members
            .iter()
            .filter(|(replica, model)| replica.is_up() && identity(model) == candidate);
        agreeing.count()
    };
    let mut chosen = before.map_or(&members[0].1, |group| &group.model);
    let mut most = votes(chosen);
    let in_use = before.is_some_and(|group| group.in_use.load(Ordering::Relaxed));
    if most == 0 || !in_use {
        for (_, candidate) in members {
            let count = votes(candidate);
            if count > most {
                (chosen, most) = (candidate, count);
            }
        }
    }
    Arc::clone(chosen)
}

/// `UNAVAILABLE` with a time to come back.
pub(crate) fn unavailable(message: impl Into<String>) -> Status {
    let mut status = Status::unavailable(message);
    status
        .metadata_mut()
        .insert("retry-after-ms", 1000_u32.into());
    status
}
