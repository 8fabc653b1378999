//! Replicas fail, and clients do not see it.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tonic::{Code, Status};

use crate::backend::{Backend as _, ReplicaState};
use crate::fleet::simulation::{Host, broken, fleet, late, score_request, until_ready};

#[tokio::test(start_paused = true)]
async fn a_replica_that_dies_under_load_costs_no_request_and_comes_back() {
    let hosts = [Host::new(400_000.0), Host::new(400_000.0)];
    let fleet = std::sync::Arc::new(fleet(&hosts, |_| {}));
    until_ready(&fleet, 2).await;
    let mut calls = Vec::new();
    let mut revived = None;
    for number in 0..2100 {
        match number {
            400 | 1200 => hosts[0].kill(),
            800 | 1600 => {
                hosts[0].revive();
                revived = Some((Instant::now(), hosts[0].items()));
            }
            _ => {}
        }
        if let Some((when, items)) = revived
            && when.elapsed() >= Duration::from_secs(2)
        {
            assert!(hosts[0].items() > items, "not used within 2 s");
            revived = None;
        }
        let fleet = std::sync::Arc::clone(&fleet);
        let request = score_request(50, 20);
        calls.push(tokio::spawn(
            async move { fleet.score(request, late()).await },
        ));
        sleep(Duration::from_millis(5)).await;
    }
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert!(revived.is_none(), "both returns were seen");
}

#[tokio::test(start_paused = true)]
async fn chunks_of_a_dying_replica_go_elsewhere() {
    let hosts = [Host::new(10_000.0), Host::new(10_000.0)];
    let fleet = fleet(&hosts, |_| {});
    until_ready(&fleet, 2).await;
    let dying = hosts[0].clone();
    tokio::spawn(async move {
        sleep(Duration::from_secs(1)).await;
        dying.kill();
    });
    let answer = fleet.score(score_request(1000, 64), late()).await.unwrap();
    let expected: Vec<f32> = (1_u16..=1000).map(f32::from).collect();
    assert_eq!(answer.scores, expected);
}

#[tokio::test(start_paused = true)]
async fn with_all_gone_it_is_said_soon_and_at_once_later() {
    let hosts = [Host::new(1e6), Host::new(1e6)];
    let fleet = fleet(&hosts, |_| {});
    until_ready(&fleet, 2).await;
    hosts.iter().for_each(Host::kill);
    let started = Instant::now();
    let status = fleet.score(score_request(2, 8), late()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(started.elapsed() <= Duration::from_millis(600));
    sleep(Duration::from_secs(3)).await;
    let started = Instant::now();
    let status = fleet.score(score_request(2, 8), late()).await.unwrap_err();
    assert_eq!(status.message(), "no replica of model is in use");
    assert_eq!(status.metadata().get("retry-after-ms").unwrap(), "1000");
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert!(fleet.models().is_empty());
    assert_eq!(
        fleet.model("").unwrap().name(),
        "model",
        "it is known still"
    );
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_breaks_is_waited_for() {
    let host = Host::new(1e6);
    let fleet = fleet(std::slice::from_ref(&host), |_| {});
    until_ready(&fleet, 1).await;
    host.0.lock().script.push_back(broken());
    fleet.score(score_request(2, 8), late()).await.unwrap();
    assert_eq!(host.0.lock().times_connected, 2);
}

#[tokio::test(start_paused = true)]
async fn retries_end_with_the_attempts_and_with_the_budget() {
    let hosts = [
        Host::new(1e6),
        Host::new(1e6),
        Host::new(1e6),
        Host::new(1e6),
    ];
    let refuse = |host: &Host| host.0.lock().always = Some(Status::resource_exhausted("full"));
    hosts.iter().for_each(refuse);
    let small_budget = fleet(&hosts, |config| {
        config.retry_reserve = 3;
        config.retry_ratio = 0.0;
    });
    until_ready(&small_budget, 4).await;
    let calls = || hosts.iter().map(|h| h.0.lock().calls.len()).sum::<usize>();
    for expected in [2, 4, 6, 7, 8] {
        let result = small_budget.score(score_request(2, 8), late()).await;
        assert_eq!(result.unwrap_err().code(), Code::ResourceExhausted);
        assert_eq!(calls(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_replica_is_passed_by_and_full_ones_are_passed_on() {
    let full = || {
        let mut status = Status::resource_exhausted("queue full");
        status
            .metadata_mut()
            .insert("retry-after-ms", 70_u32.into());
        status
    };
    let hosts = [Host::new(1e6), Host::new(1e6)];
    let fleet = fleet(&hosts, |_| {});
    until_ready(&fleet, 2).await;
    hosts[0].0.lock().always = Some(full());
    for _ in 0..50 {
        fleet.score(score_request(2, 8), late()).await.unwrap();
    }
    assert_eq!(hosts[0].0.lock().calls.len(), 1, "it asked for a pause");
    hosts[1].0.lock().always = Some(full());
    let status = fleet.score(score_request(2, 8), late()).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.metadata().get("retry-after-ms").unwrap(), "70");
    assert_eq!(hosts[0].0.lock().calls.len(), 2, "tried elsewhere once");
    let ready = |replica: &crate::backend::ReplicaLoad| replica.state == ReplicaState::Ready;
    assert!(fleet.load().iter().all(ready), "full is not broken");
}

#[tokio::test(start_paused = true)]
async fn a_draining_replica_is_left_before_it_refuses() {
    let hosts = [Host::new(1e6), Host::new(1e6)];
    let fleet = fleet(&hosts, |_| {});
    until_ready(&fleet, 2).await;
    hosts[0].0.lock().draining = true;
    while fleet.load()[0].state == ReplicaState::Ready {
        fleet.score(score_request(2, 8), late()).await.unwrap();
    }
    assert_eq!(fleet.load()[0].state, ReplicaState::Draining);
    // The same when it refuses.
    hosts[0].0.lock().draining = false;
    until_ready(&fleet, 2).await;
    hosts[0]
        .0
        .lock()
        .script
        .push_back(Status::unavailable("draining"));
    while hosts[0].0.lock().script.len() == 1 {
        fleet.score(score_request(2, 8), late()).await.unwrap();
    }
    assert_eq!(fleet.load()[0].state, ReplicaState::Draining);
}

#[tokio::test(start_paused = true)]
async fn steps_that_fail_eject_but_never_more_than_half() {
    let hosts = [Host::new(1e6), Host::new(1e6)];
    let fleet = fleet(&hosts, |config| config.eject_after = 3);
    until_ready(&fleet, 2).await;
    let fail = |host: &Host| host.0.lock().always = Some(Status::internal("step failed"));
    fail(&hosts[0]);
    let mut failed = 0;
    while fleet.load()[0].state == ReplicaState::Ready {
        failed += u32::from(fleet.score(score_request(2, 8), late()).await.is_err());
    }
    assert_eq!(failed, 3, "one for each call, and no retries");
    fail(&hosts[1]);
    for _ in 0..10 {
        let status = fleet.score(score_request(2, 8), late()).await.unwrap_err();
        assert_eq!(
            (status.code(), status.message()),
            (Code::Internal, "step failed")
        );
    }
    assert_eq!(fleet.load()[1].state, ReplicaState::Ready);
    // It comes back by itself, after a pause.
    sleep(Duration::from_millis(1100)).await;
    assert_eq!(fleet.load()[0].state, ReplicaState::Ready);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_wrong_is_not_repeated() {
    let hosts = [Host::new(1e6), Host::new(1e6)];
    let fleet = fleet(&hosts, |_| {});
    until_ready(&fleet, 2).await;
    for host in &hosts {
        host.0.lock().always = Some(Status::invalid_argument("documents: is empty"));
    }
    let status = fleet.score(score_request(0, 0), late()).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let calls: usize = hosts.iter().map(|h| h.0.lock().calls.len()).sum();
    assert_eq!(calls, 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_waits_beyond_the_deadline_and_dropped_work_is_cancelled() {
    let hosts = [Host::new(1_000.0), Host::new(1_000.0)];
    let fleet = fleet(&hosts, |_| {});
    until_ready(&fleet, 2).await;
    let started = Instant::now();
    let deadline = started + Duration::from_millis(70);
    let status = fleet
        .score(score_request(1000, 64), deadline)
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(status.message(), "deadline exceeded after 70 ms");
    let cancelled = || hosts.iter().map(|h| h.0.lock().cancelled).sum::<usize>();
    let calls = || hosts.iter().map(|h| h.0.lock().calls.len()).sum::<usize>();
    assert_eq!(cancelled(), calls());
    let call = fleet.score(score_request(1000, 64), late());
    assert!(
        tokio::time::timeout(Duration::from_millis(5), call)
            .await
            .is_err()
    );
    assert_eq!(cancelled(), calls());
    assert!(
        fleet
            .load()
            .iter()
            .all(|replica| replica.outstanding_tokens == 0)
    );
}

/// The registry has two locks; steps that fail take them while keepers draw up the groups anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_steps_and_new_groups_do_not_wait_for_each_other() {
    let hosts = [Host::new(1e6)];
    let fleet = fleet(&hosts, |config| config.eject_after = 1);
    until_ready(&fleet, 1).await;
    let registry = std::sync::Arc::clone(&fleet.registry);
    let rebuilding = tokio::task::spawn_blocking(move || {
        for _ in 0..20_000 {
            registry.rebuild();
        }
    });
    let registry = std::sync::Arc::clone(&fleet.registry);
    let failing = tokio::task::spawn_blocking(move || {
        let replica = &registry.replicas()[0];
        for _ in 0..20_000 {
            // The only one is never ejected.
            let ticket = replica.begin(1, false).unwrap();
            registry.note_failure(ticket, &Status::internal("the step failed"));
        }
    });
    let both = async { tokio::join!(rebuilding, failing) };
    let both = tokio::time::timeout(Duration::from_secs(60), both).await;
    let (rebuilt, failed) = both.unwrap_or_else(|_| std::process::abort());
    rebuilt.unwrap();
    failed.unwrap();
}
