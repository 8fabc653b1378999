//! Keeps one replica connected: asks what it serves, probes it, and gets it back when it failed.

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep, timeout};
use tonic::Status;
use tulip_proto::v1::{GetModelRequest, GetModelResponse};

use crate::fleet::registry::{Identity, Registry};
use crate::model::Model;
use crate::replica::connection::{Connection, text_of, until};
use crate::replica::{Phase, Replica};
use crate::retry::Failure;

/// Pause before the second attempt; it doubles from there.
const FIRST_BACKOFF: Duration = Duration::from_millis(50);

/// Runs until the replica is removed.
pub(crate) async fn keep(registry: &Registry, replica: &Arc<Replica>) {
    tokio::select! {
        () = replica.removed.cancelled() => {}
        () = keep_for_ever(registry, replica) => {}
    }
}

async fn keep_for_ever(registry: &Registry, replica: &Arc<Replica>) {
    loop {
        get_back(registry, replica).await;
        watch(registry, replica).await;
    }
}

/// Tries until the replica can be used.
async fn get_back(registry: &Registry, replica: &Arc<Replica>) {
    let label = &**replica.label();
    let mut attempts = 0;
    let mut said = String::new();
    loop {
        sleep(backoff(registry, replica, attempts)).await;
        attempts += 1;
        match take_up(registry, replica).await {
            Ok(model) => {
                let (name, fingerprint) = (model.name(), &model.info.fingerprint);
                tracing::info!(
                    replica = label,
                    model = name,
                    fingerprint,
                    "replica is in use"
                );
                return;
            }
            Err(reason) => {
                if reason != said {
                    tracing::warn!(replica = label, reason, "replica cannot be used");
                    said = reason;
                }
            }
        }
    }
}

/// Connects where there is no connection, asks what is served, and hands the replica to the groups.
async fn take_up(registry: &Registry, replica: &Arc<Replica>) -> Result<Arc<Model>, String> {
    let connection = match replica.connection() {
        Some(connection) => connection,
        None => registry.connect.connect(replica.target()).await?,
    };
    let info = match probe(registry, &*connection).await {
        Ok(info) => info,
        Err(status) => {
            let failure = Failure::of(&status);
            let phase = match failure {
                Failure::NotServing if replica.phase() != Phase::Connecting => Phase::Draining,
                _ => replica.phase(),
            };
            replica.set_down(phase, false);
            return Err(text_of(&status));
        }
    };
    let model = model(registry, &*connection, info).await?;
    replica.set_up(connection, Arc::clone(&model));
    registry.rebuild();
    Ok(model)
}

/// Returns when the replica is out of use.
async fn watch(registry: &Registry, replica: &Arc<Replica>) {
    loop {
        tokio::select! {
            () = replica.wake.notified() => {}
            () = sleep(registry.config.probe_interval) => probe_in_use(registry, replica).await,
        }
        if replica.phase() != Phase::Up {
            return;
        }
    }
}

async fn probe_in_use(registry: &Registry, replica: &Arc<Replica>) {
    let (Some(connection), Some(model)) = (replica.connection(), replica.model()) else {
        return;
    };
    match probe(registry, &*connection).await {
        Ok(info) if Identity::of(&info) == Identity::of(&model.info) => {}
        Ok(_) => registry.note_other_model(replica),
        Err(status) => {
            let (phase, reason) = match Failure::of(&status) {
                Failure::NotServing => (Phase::Draining, "not_serving"),
                _ => (Phase::Ejected, "connection"),
            };
            registry.take_down(replica, phase, reason, &status);
        }
    }
}

/// What the replica serves, without the bytes of its tokenizer.
async fn probe(
    registry: &Registry,
    connection: &dyn Connection,
) -> Result<GetModelResponse, Status> {
    get_model(connection, false, registry.config.probe_timeout).await
}

async fn get_model(
    connection: &dyn Connection,
    include_tokenizer: bool,
    time: Duration,
) -> Result<GetModelResponse, Status> {
    let request = GetModelRequest {
        model: String::new(),
        include_tokenizer,
    };
    let call = connection.get_model(until(request, Instant::now() + time));
    timeout(time, call).await.unwrap_or_else(|_| {
        let time_ms = time.as_millis();
        let message = format!("no answer to GetModel within {time_ms} ms");
        Err(Status::deadline_exceeded(message))
    })
}

/// The model with its tokenizer, fetched if no replica has brought it before.
async fn model(
    registry: &Registry,
    connection: &dyn Connection,
    info: GetModelResponse,
) -> Result<Arc<Model>, String> {
    let identity = Identity::of(&info);
    let fetch = async || {
        let time = registry.config.model_timeout;
        let info = get_model(connection, true, time).await;
        let info = info.map_err(|status| text_of(&status))?;
        if Identity::of(&info) != identity {
            return Err("it changed its model while it was asked".into());
        }
        // Some tenths of a second of computing.
        let loading = tokio::task::spawn_blocking(move || load(info));
        loading.await.map_err(|error| error.to_string())?
    };
    registry.model(&identity, fetch).await
}

fn load(info: GetModelResponse) -> Result<Model, String> {
    let tokenizer = info.tokenizer.as_ref();
    let tokenizer = tokenizer.filter(|tokenizer| !tokenizer.tokenizer_json.is_empty());
    let tokenizer = tokenizer.ok_or("it sent no tokenizer")?;
    let found = hexadecimal(&Sha256::digest(&tokenizer.tokenizer_json));
    if found != tokenizer.sha256 {
        let said = &tokenizer.sha256;
        return Err(format!("its tokenizer has SHA-256 {found}, it says {said}"));
    }
    Model::new(info).map_err(|error| error.to_string())
}

fn hexadecimal(digest: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(2 * digest.len());
    for byte in digest {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// At once after the first failure; longer the more attempts and ejections there were.
fn backoff(registry: &Registry, replica: &Replica, attempts: u32) -> Duration {
    let failures = attempts + replica.ejections().saturating_sub(1);
    if failures == 0 {
        // A connection that is kept is not what failed: steps did, and probes do not see those.
        let steps_failed = replica.phase() == Phase::Ejected && replica.connection().is_some();
        return if steps_failed {
            registry.config.max_backoff
        } else {
            Duration::ZERO
        };
    }
    let doubled = FIRST_BACKOFF.saturating_mul(1 << (failures - 1).min(16));
    // Gateways that lost a replica at the same time do not come back at the same time.
    doubled
        .min(registry.config.max_backoff)
        .mul_f64(rand::random_range(0.5..1.0))
}
