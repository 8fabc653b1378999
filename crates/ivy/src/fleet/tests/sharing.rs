//! Every replica gets its share and no more.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::time::Instant;

use crate::backend::Backend as _;
use crate::fleet::SplitConfig;
use crate::fleet::simulation::{Host, fleet, late, score_request, sequence, until_ready};

fn split(config: &mut crate::FleetConfig) {
    config.split = SplitConfig {
        min_chunk_tokens: 512,
        ..SplitConfig::default()
    };
}

/// Times of 200 requests of 1,000 documents, in shares of the ideal, sorted.
async fn shares_of_ideal(rates: &[f64]) -> Vec<f64> {
    let hosts: Vec<Host> = rates.iter().map(|rate| Host::new(*rate)).collect();
    let fleet = fleet(&hosts, split);
    until_ready(&fleet, hosts.len()).await;
    let mut random = StdRng::seed_from_u64(1);
    let mut shares = Vec::new();
    for request in 0..210 {
        let mut score = score_request(1000, 1);
        let mut tokens = 0;
        for document in &mut score.documents {
            let length = random.random_range(10..200);
            tokens += length;
            *document = sequence(7, length);
        }
        let used: Vec<usize> = hosts.iter().map(Host::items).collect();
        let started = Instant::now();
        fleet.score(score, late()).await.unwrap();
        let ideal = tokens as f64 / rates.iter().sum::<f64>();
        // In the first few the rates are learned.
        if request >= 10 {
            shares.push(started.elapsed().as_secs_f64() / ideal);
        }
        for (host, used) in hosts.iter().zip(used) {
            assert!(host.items() > used, "a replica got nothing");
        }
    }
    shares.sort_unstable_by(f64::total_cmp);
    shares
}

#[tokio::test(start_paused = true)]
async fn a_slow_replica_gets_its_share_and_no_more() {
    for rates in [
        &[100_000.0, 400_000.0][..],
        &[50_000.0, 100_000.0, 200_000.0, 400_000.0],
        &[300_000.0, 300_000.0],
        &[20_000.0, 400_000.0, 400_000.0, 400_000.0],
    ] {
        let shares = shares_of_ideal(rates).await;
        let p99 = shares[shares.len() * 99 / 100 - 1];
        assert!(p99 <= 1.15, "{rates:?}: p99 is {p99} of the ideal");
        assert!(shares[0] >= 0.99, "faster than possible: {}", shares[0]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_becomes_slow_gets_less() {
    let hosts = [Host::new(400_000.0), Host::new(400_000.0)];
    let fleet = fleet(&hosts, split);
    until_ready(&fleet, 2).await;
    for _ in 0..5 {
        fleet.score(score_request(1000, 64), late()).await.unwrap();
    }
    hosts[0].0.lock().tokens_per_second = 50_000.0;
    let started = Instant::now();
    fleet.score(score_request(1000, 64), late()).await.unwrap();
    // Nobody could know: half of the work was on its way. But not all of that.
    let surprised = started.elapsed().as_secs_f64();
    assert!(surprised < 64_000.0 / 2.0 / 50_000.0, "{surprised}");
    for _ in 0..10 {
        fleet.score(score_request(1000, 64), late()).await.unwrap();
    }
    let started = Instant::now();
    fleet.score(score_request(1000, 64), late()).await.unwrap();
    let ideal = 64_000.0 / 450_000.0;
    let learned = started.elapsed().as_secs_f64();
    assert!(learned < 1.15 * ideal, "{learned}, ideal {ideal}");
}

#[tokio::test(start_paused = true)]
async fn what_runs_already_counts() {
    let hosts = [Host::new(100_000.0), Host::new(100_000.0)];
    let fleet = fleet(&hosts, split);
    until_ready(&fleet, 2).await;
    let small = || score_request(1, 500);
    fleet.score(small(), late()).await.unwrap();
    // 40 at once: with two choices of two they are even.
    let before: Vec<usize> = hosts.iter().map(Host::items).collect();
    let calls = (0..40).map(|_| fleet.score(small(), late()));
    for result in futures_util::future::join_all(calls).await {
        result.unwrap();
    }
    for (host, before) in hosts.iter().zip(before) {
        assert_eq!(host.items() - before, 20);
    }
}

#[tokio::test(start_paused = true)]
async fn a_small_request_is_one_call() {
    let hosts = [Host::new(100_000.0), Host::new(100_000.0)];
    let fleet = fleet(&hosts, split);
    until_ready(&fleet, 2).await;
    fleet.score(score_request(50, 20), late()).await.unwrap();
    let calls: Vec<Vec<usize>> = hosts.iter().map(|h| h.0.lock().calls.clone()).collect();
    assert_eq!(calls.concat(), [50]);
}

#[tokio::test(start_paused = true)]
async fn chunks_stay_few() {
    let hosts = [Host::new(100_000.0), Host::new(100_000.0)];
    let fleet = fleet(&hosts, split);
    until_ready(&fleet, 2).await;
    for _ in 0..3 {
        fleet.score(score_request(1000, 64), late()).await.unwrap();
    }
    hosts.iter().for_each(|host| host.0.lock().calls.clear());
    fleet.score(score_request(1000, 64), late()).await.unwrap();
    let chunks: usize = hosts.iter().map(|host| host.0.lock().calls.len()).sum();
    assert!((4..=20).contains(&chunks), "{chunks}");
}

#[tokio::test(start_paused = true)]
async fn a_replica_unseen_for_a_while_is_tried_again() {
    let hosts = [Host::new(1_000.0), Host::new(400_000.0)];
    let fleet = fleet(&hosts, split);
    until_ready(&fleet, 2).await;
    for _ in 0..3 {
        fleet.score(score_request(1000, 64), late()).await.unwrap();
    }
    // So slow that it gets nothing; then it recovers.
    let before = hosts[0].items();
    fleet.score(score_request(1000, 64), late()).await.unwrap();
    assert_eq!(hosts[0].items(), before);
    hosts[0].0.lock().tokens_per_second = 400_000.0;
    tokio::time::advance(Duration::from_secs(11)).await;
    for _ in 0..10 {
        fleet.score(score_request(1000, 64), late()).await.unwrap();
    }
    let got = hosts[0].items() - before;
    assert!((4000..6000).contains(&got), "{got} of 10,000");
}
