//! Which replicas there are: addresses as given, names looked up again and again.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::fleet::registry::Registry;
use crate::replica::connection::Target;
use crate::replica::{Replica, keeper};
use crate::resolve::{ReplicaName, Resolve};

/// Keeps the list of replicas, and one keeper for each. Dropping it ends the keepers.
pub(crate) async fn keep(registry: Arc<Registry>, resolve: Arc<dyn Resolve>) {
    let mut keepers = JoinSet::new();
    let mut found: HashMap<ReplicaName, Vec<SocketAddr>> = HashMap::new();
    loop {
        for name in &registry.config.replicas {
            look_up(&*resolve, name, &mut found).await;
        }
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

/// A name that cannot be looked up keeps the addresses it had.
async fn look_up(
    resolve: &dyn Resolve,
    name: &ReplicaName,
    found: &mut HashMap<ReplicaName, Vec<SocketAddr>>,
) {
    if let Some(address) = name.literal() {
        found.insert(name.clone(), vec![address]);
        return;
    }
    match resolve.resolve(name).await {
        Ok(addresses) => {
            found.insert(name.clone(), addresses);
        }
        Err(error) => {
            tracing::warn!(%name, %error, "name of replicas cannot be looked up");
        }
    }
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
        registry.set_replicas(all);
    }
    new
}
