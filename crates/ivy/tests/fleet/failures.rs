//! A replica dies under load, and returns.

use std::sync::Arc;
use std::time::Duration;

use ivy::Backend as _;
use ivy::backend::ReplicaState;
use tokio::time::{MissedTickBehavior, interval};

use crate::support::{Place, Replica, expected, fleet, late, request, soon, until_ready};

/// Requests a second. Time is counted in them: they come late where this process does.
const LOAD: u64 = 200;

/// Sends requests until `until` says so; what failed.
async fn load(fleet: &Arc<ivy::Fleet>, mut until: impl FnMut(u64) -> bool) -> Vec<tonic::Status> {
    let request = request(20, 16);
    let expected = Arc::new(expected(&request));
    let mut ticks = interval(Duration::from_micros(1_000_000 / LOAD));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut calls = tokio::task::JoinSet::new();
    for number in 0.. {
        ticks.tick().await;
        if until(number) {
            break;
        }
        let (fleet, request) = (Arc::clone(fleet), request.clone());
        let expected = Arc::clone(&expected);
        calls.spawn(async move {
            let answer = fleet.score(request, late()).await?;
            assert!(answer.scores == *expected, "other scores");
            Ok(())
        });
    }
    let ended = soon(calls.join_all()).await;
    ended.into_iter().filter_map(Result::err).collect()
}

async fn dies_and_returns(kill: fn(Replica)) {
    let token = Duration::from_micros(5);
    let stays = Replica::start(token);
    let place = Place::reserve();
    let address = place.address();
    let first = Replica::at(address, token);
    let addresses = [stays.address(), address];
    let fleet = Arc::new(fleet(&addresses, |_| {}).await);
    let mut alive = Some(first);
    let (mut dying, mut reborn, mut used) = (None, None, None);
    let failed = load(&fleet, |number| {
        if let Some(replica) = alive.take_if(|replica| number >= LOAD && replica.tokens() > 0) {
            // Joins threads: not on ours.
            dying = Some((number, std::thread::spawn(move || kill(replica))));
        }
        if let Some((_, killed)) = dying.take_if(|(since, _)| number == *since + LOAD) {
            killed.join().unwrap();
            reborn = Some((number, Replica::at(address, token)));
        }
        let Some((since, replica)) = &reborn else {
            return false;
        };
        if used.is_none() && replica.tokens() > 0 {
            used = Some(number - since);
        }
        number == since + 3 * LOAD
    })
    .await;
    assert!(failed.is_empty(), "{} failed: {}", failed.len(), failed[0]);
    let used = used.expect("the replica was used again");
    assert!(used < 2 * LOAD, "used after {used} requests");
}

#[tokio::test]
async fn a_killed_replica_costs_no_request_and_is_used_within_2_s() {
    dies_and_returns(drop).await;
}

#[tokio::test]
async fn a_stopped_replica_costs_no_request_and_is_used_within_2_s() {
    dies_and_returns(|replica| {
        replica.stop();
        drop(replica);
    })
    .await;
}

#[tokio::test]
async fn a_replica_that_is_not_there_yet_is_found_later() {
    let there = Replica::start(Duration::ZERO);
    let place = Place::reserve();
    let absent = place.address();
    let fleet = ivy::Fleet::start(ivy::FleetConfig {
        replicas: [there.address(), absent]
            .map(|address| address.to_string().parse().unwrap())
            .to_vec(),
        ..ivy::FleetConfig::default()
    })
    .unwrap();
    soon(fleet.ready()).await;
    until_ready(&fleet, 1).await;
    assert_eq!(fleet.load()[1].state, ReplicaState::Connecting);
    fleet.score(request(2, 8), late()).await.unwrap();
    let _absent = Replica::at(absent, Duration::ZERO);
    until_ready(&fleet, 2).await;
}
