//! Which replicas there are: addresses as given, names looked up again and again.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::fleet::registry::Registry;
use crate::replica::connection::Target;
use crate::replica::{Replica, keeper};
use crate::resolve::{ReplicaName, Resolve};

/// Keeps the list of replicas, and one keeper for each. Dropping it ends the keepers.
pub(crate) async fn keep(registry: Arc<Registry>, resolve: Arc<dyn Resolve>) {
    let mut keepers = JoinSet::new();
    let mut found: HashMap<ReplicaName, Vec<SocketAddr>> = HashMap::new();
    loop {
        let names = registry.config.replicas.iter();
        let time = registry.config.resolve_timeout;
        let looked_up = join_all(names.map(|name| look_up(&*resolve, name, time))).await;
        found.extend(looked_up.into_iter().flatten());
        for replica in update(&registry, &found) {
            let registry = Arc::clone(&registry);
            keepers.spawn(async move { keeper::keep(&registry, &replica).await });
        }
        while keepers.try_join_next().is_some() {}
        if registry
            .config
            .replicas
            .iter()
            .all(|name| name.literal().is_some())
        {
            // Nothing will change; the keepers end with us.
            std::future::pending::<()>().await;
        }
        sleep(registry.config.resolve_interval).await;
    }
}

/// The addresses of a name; none when it cannot be looked up, then it keeps those it had.
async fn look_up(
    resolve: &dyn Resolve,
    name: &ReplicaName,
    time: Duration,
) -> Option<(ReplicaName, Vec<SocketAddr>)> {
    if let Some(address) = name.literal() {
        return Some((name.clone(), vec![address]));
    }
    match timeout(time, resolve.resolve(name)).await {
        Ok(Ok(addresses)) => return Some((name.clone(), addresses)),
        Ok(Err(error)) => tracing::warn!(%name, %error, "name of replicas cannot be looked up"),
        Err(_) => tracing::warn!(%name, ?time, "name of replicas cannot be looked up in time"),
    }
    None
}

/// Brings the registry's list in line; returns the replicas that are new.
fn update(registry: &Registry, found: &HashMap<ReplicaName, Vec<SocketAddr>>) -> Vec<Arc<Replica>> {
    let before = registry.replicas();
    let (mut all, mut new) = (Vec::<Arc<Replica>>::new(), Vec::new());
    let limit = registry.config.max_replicas;
    for name in &registry.config.replicas {
        for &address in found.get(name).into_iter().flatten() {
            if all.iter().any(|replica| replica.address() == address) {
                continue;
            }
            if all.len() == limit {
                tracing::warn!(%address, "replica is not used: limit max_replicas={limit}");
                continue;
            }
            let known = before.iter().find(|replica| replica.address() == address);
            let replica = known.map(Arc::clone).unwrap_or_else(|| {
                let host = name.host().to_owned();
                let target = Target { address, host };
                let replica = Replica::new(target, registry.config.max_calls_per_replica);
                new.push(Arc::clone(&replica));
                replica
            });
            all.push(replica);
        }
    }
    if !new.is_empty() || all.len() != before.len() {
        registry.set_replicas(&all);
    }
    new
}
