//! A second call for a chunk that is late, where that is wanted.

use std::time::Duration;

use tokio::time::Instant;

use crate::backend::Backend as _;
use crate::fleet::simulation::{Host, fleet, late, score_request, sequence, until_ready};
use crate::{FleetConfig, HedgeConfig};

/// Time of a request whose first call at the first of two replicas never ends.
async fn with_a_stall(change: fn(&mut FleetConfig)) -> Option<Duration> {
    let hosts = [Host::new(100_000.0), Host::new(100_000.0)];
    let fleet = fleet(&hosts, change);
    until_ready(&fleet, 2).await;
    for _ in 0..3 {
        fleet.score(score_request(1000, 20), late()).await.unwrap();
    }
    hosts[0].0.lock().stall = true;
    let started = Instant::now();
    let call = fleet.score(score_request(1000, 20), late());
    let answer = tokio::time::timeout(Duration::from_secs(60), call).await;
    let answer = answer.ok()?.unwrap();
    let expected: Vec<f32> = (1_u16..=1000).map(f32::from).collect();
    assert_eq!(answer.scores, expected);
    assert_eq!(
        hosts[0].0.lock().cancelled,
        1,
        "the late call is taken back"
    );
    Some(started.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_late_chunk_gets_a_second_call_only_if_configured() {
    assert_eq!(with_a_stall(|_| {}).await, None);
    let hedged = with_a_stall(|config| {
        config.hedge = Some(HedgeConfig {
            ratio: 1.0,
            ..HedgeConfig::default()
        });
    });
    // 20,000 tokens at 200,000 a second take 100 ms.
    let elapsed = hedged.await.unwrap();
    assert!(elapsed < Duration::from_millis(400), "{elapsed:?}");
}

#[tokio::test(start_paused = true)]
async fn in_time_nothing_is_sent_twice() {
    let hosts = [Host::new(100_000.0), Host::new(100_000.0)];
    let fleet = fleet(&hosts, |config| config.hedge = Some(HedgeConfig::default()));
    until_ready(&fleet, 2).await;
    for _ in 0..20 {
        fleet.score(score_request(1000, 20), late()).await.unwrap();
    }
    let items: usize = hosts.iter().map(Host::items).sum();
    assert_eq!(items, 20_000);
}

#[tokio::test(start_paused = true)]
async fn the_budget_bounds_second_calls() {
    let spent = with_a_stall(|config| {
        config.hedge = Some(HedgeConfig {
            ratio: 0.0,
            ..HedgeConfig::default()
        });
        config.retry_reserve = 0;
    });
    assert_eq!(spent.await, None);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_taken_back_does_not_hide_the_next_answer() {
    let hosts = [
        Host::new(400_000.0),
        Host::new(100_000.0),
        Host::new(100_000.0),
    ];
    let fleet = fleet(&hosts, |config| {
        config.split.min_chunk_tokens = 512;
        config.hedge = Some(HedgeConfig {
            ratio: 1.0,
            ..HedgeConfig::default()
        });
    });
    until_ready(&fleet, 3).await;
    for _ in 0..3 {
        fleet.score(score_request(1000, 20), late()).await.unwrap();
    }
    // The fast one computes the first document for 100 ms. One of the others loses a call, which
    // is made again and taken back within that time.
    let mut request = score_request(9, 1000);
    request.documents[0] = sequence(1, 40_000);
    hosts[1].0.lock().stall = true;
    let started = Instant::now();
    fleet.score(request, late()).await.unwrap();
    assert_eq!(hosts[1].0.lock().cancelled, 1);
    let elapsed = started.elapsed();
    assert!(elapsed < Duration::from_millis(110), "{elapsed:?}");
}
