//! What is bounded: calls at a replica, items and bytes of a message.

use std::time::Duration;

use futures_util::future::join_all;
use tonic::Code;
use tulip_proto::v1::Limits;

use crate::backend::Backend as _;
use crate::fleet::simulation::{Host, fleet, late, score_request, until_ready};

#[tokio::test(start_paused = true)]
async fn calls_at_a_replica_are_bounded() {
    let hosts = [Host::new(1_000.0), Host::new(1_000.0)];
    let fleet = fleet(&hosts, |config| config.max_calls_per_replica = 3);
    until_ready(&fleet, 2).await;
    let calls = (0..10).map(|_| fleet.score(score_request(1, 8), late()));
    let results = join_all(calls).await;
    let refused: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    assert_eq!(refused.len(), 4);
    for status in refused {
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(status.message().ends_with("max_calls_per_replica=3"));
        assert_eq!(status.metadata().get("retry-after-ms").unwrap(), "100");
    }
}

#[tokio::test(start_paused = true)]
async fn chunks_fit_what_a_replica_accepts() {
    for replicas in [1, 2] {
        let hosts: Vec<Host> = (0..replicas).map(|_| Host::new(1e6)).collect();
        for host in &hosts {
            host.0.lock().model.limits = Some(Limits {
                max_sequence_tokens: 512,
                max_items_per_request: 300,
                max_message_bytes: (64 << 10) + 100_000,
                ..Limits::default()
            });
        }
        let fleet = fleet(&hosts, |_| {});
        until_ready(&fleet, replicas).await;
        let answer = fleet.score(score_request(1000, 4), late()).await.unwrap();
        assert_eq!(answer.scores.len(), 1000);
        // 424 bytes each: 235 in a message of 100,000.
        let answer = fleet.score(score_request(1000, 100), late()).await.unwrap();
        assert_eq!(answer.scores.len(), 1000);
        for host in &hosts {
            let calls = host.0.lock().calls.clone();
            assert!(calls.iter().all(|&items| items <= 300), "{calls:?}");
            assert!(calls.iter().any(|&items| items <= 235), "{calls:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_the_fleet_closes_its_connections() {
    let host = Host::new(1e6);
    let fleet = fleet(std::slice::from_ref(&host), |_| {});
    until_ready(&fleet, 1).await;
    let connect = std::sync::Arc::downgrade(&fleet.registry);
    drop(fleet);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(connect.upgrade().is_none(), "somebody still holds replicas");
}
