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

fn with_queues(max_queued_tokens: &[u64]) -> Vec<Host> {
    let host = |&max_queued_tokens: &u64| {
        let host = Host::new(1e6);
        let mut state = host.0.lock();
        state.model.limits.as_mut().unwrap().max_queued_tokens = max_queued_tokens;
        drop(state);
        host
    };
    max_queued_tokens.iter().map(host).collect()
}

#[tokio::test(start_paused = true)]
async fn chunks_fit_the_queue_of_their_replica() {
    for queues in [&[30_000_u64][..], &[30_000, 30_000]] {
        let hosts = with_queues(queues);
        let fleet = fleet(&hosts, |_| {});
        until_ready(&fleet, queues.len()).await;
        // Nothing else is there: never more than one request's chunks wait.
        for tokens in [30, 29, 1] {
            let answer = fleet.score(score_request(1000, tokens), late()).await;
            assert_eq!(answer.unwrap().scores.len(), 1000);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_no_queue_can_hold_is_refused_before_it_is_sent() {
    let hosts = with_queues(&[10_000, 10_000]);
    let fleet = fleet(&hosts, |_| {});
    until_ready(&fleet, 2).await;
    let refused = async |documents, tokens| {
        let refused = fleet.score(score_request(documents, tokens), late()).await;
        let status = refused.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        status.message().to_owned()
    };
    assert_eq!(
        refused(1000, 21).await,
        "request: has 21000 tokens, limit max_queued_tokens=20000 of 2 replicas together"
    );
    assert_eq!(
        refused(2, 10_001).await,
        "documents[0]: has 10001 tokens, limit max_queued_tokens=10000"
    );
    // A replica that is away for a moment will be back: its queue counts.
    hosts[0].kill();
    tokio::time::sleep(Duration::from_secs(6)).await;
    until_ready(&fleet, 1).await;
    let answer = fleet.score(score_request(1000, 15), late()).await.unwrap();
    assert_eq!(answer.scores.len(), 1000);
    assert!(hosts[0].0.lock().calls.is_empty(), "it was sent something");
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
