//! Replicas of one model agree, and several models lie behind one gateway.

use std::time::Duration;

use tokio::time::sleep;
use tonic::Code;
use tulip_proto::v1::ScoreRequest;

use crate::backend::{Backend as _, ReplicaState};
use crate::fleet::Fleet;
use crate::fleet::simulation::{
    Host, fleet, late, model, other_tokenizer, score_request, until_ready,
};

fn named(name: &str) -> ScoreRequest {
    ScoreRequest {
        model: name.into(),
        ..score_request(2, 8)
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_disagrees_gets_no_work() {
    let hosts = [Host::new(1e6), Host::new(1e6), Host::new(1e6)];
    hosts[2].0.lock().model = model("model", "another");
    let fleet = fleet(&hosts, |_| {});
    until_ready(&fleet, 2).await;
    sleep(Duration::from_millis(10)).await;
    let states: Vec<ReplicaState> = fleet.load().iter().map(|replica| replica.state).collect();
    let refused = states
        .iter()
        .filter(|state| **state == ReplicaState::Refused);
    assert_eq!(refused.count(), 1, "{states:?}");
    for _ in 0..50 {
        fleet.score(score_request(2, 8), late()).await.unwrap();
    }
    let idle = hosts
        .iter()
        .zip(&states)
        .find(|(_, state)| **state == ReplicaState::Refused);
    assert_eq!(idle.unwrap().0.items(), 0);
}

/// Three replicas of which the one that answers first contradicts the two that come later.
async fn odd_one_first() -> ([Host; 3], Fleet) {
    let hosts = [Host::new(1e6), Host::new(1e6), Host::new(1e6)];
    hosts[0].0.lock().model = model("model", "another");
    hosts[1].kill();
    hosts[2].kill();
    let fleet = fleet(&hosts, |_| {});
    until_ready(&fleet, 1).await;
    (hosts, fleet)
}

#[tokio::test(start_paused = true)]
async fn the_first_to_answer_does_not_decide() {
    let (hosts, fleet) = odd_one_first().await;
    hosts[1].revive();
    hosts[2].revive();
    until_ready(&fleet, 2).await;
    assert_eq!(fleet.load()[0].state, ReplicaState::Refused);
    assert_eq!(fleet.model("").unwrap().info.fingerprint, "one");
}

#[tokio::test(start_paused = true)]
async fn once_used_a_version_stays() {
    let (hosts, fleet) = odd_one_first().await;
    fleet.score(score_request(2, 8), late()).await.unwrap();
    hosts[1].revive();
    hosts[2].revive();
    sleep(Duration::from_secs(6)).await;
    let states: Vec<ReplicaState> = fleet.load().iter().map(|replica| replica.state).collect();
    let expected = [
        ReplicaState::Ready,
        ReplicaState::Refused,
        ReplicaState::Refused,
    ];
    assert_eq!(states, expected);
    assert_eq!(fleet.model("").unwrap().info.fingerprint, "another");
}

#[tokio::test(start_paused = true)]
async fn the_tokenizer_has_to_agree_as_well() {
    let hosts = [Host::new(1e6), Host::new(1e6)];
    hosts[1].0.lock().model.tokenizer.as_mut().unwrap().sha256 = "other".into();
    let fleet = fleet(&hosts, |_| {});
    until_ready(&fleet, 1).await;
    sleep(Duration::from_secs(3)).await;
    // Its bytes are not what it says: it cannot be used at all.
    assert_eq!(fleet.load()[0].state, ReplicaState::Ready);
    assert_eq!(fleet.load()[1].state, ReplicaState::Connecting);
}

#[tokio::test(start_paused = true)]
async fn with_the_same_fingerprint_another_tokenizer_is_refused_too() {
    let hosts = [Host::new(1e6), Host::new(1e6)];
    let fleet = fleet(&hosts, |_| {});
    until_ready(&fleet, 2).await;
    // Other bytes that are good in themselves, after a restart.
    hosts[1].kill();
    sleep(Duration::from_secs(6)).await;
    hosts[1].0.lock().model.tokenizer = Some(other_tokenizer());
    hosts[1].revive();
    sleep(Duration::from_secs(2)).await;
    let states = || -> Vec<ReplicaState> { fleet.load().iter().map(|load| load.state).collect() };
    assert_eq!(states(), [ReplicaState::Ready, ReplicaState::Refused]);
    let before = hosts[1].items();
    for _ in 0..50 {
        fleet.score(score_request(2, 8), late()).await.unwrap();
    }
    assert_eq!(hosts[1].items(), before);
    // It is the only one left: now its tokenizer counts.
    hosts[0].kill();
    sleep(Duration::from_secs(6)).await;
    assert_eq!(states(), [ReplicaState::Ejected, ReplicaState::Ready]);
    let model = fleet.model("").unwrap();
    let sha256 = &model.info.tokenizer.as_ref().unwrap().sha256;
    assert_eq!(*sha256, other_tokenizer().sha256);
}

#[tokio::test(start_paused = true)]
async fn a_new_version_takes_over_when_the_last_of_the_old_has_gone() {
    let hosts = [Host::new(1e6), Host::new(1e6)];
    let fleet = fleet(&hosts, |_| {});
    until_ready(&fleet, 2).await;
    let restart = async |host: &Host| {
        host.kill();
        sleep(Duration::from_secs(6)).await;
        host.0.lock().model = model("model", "two");
        host.revive();
        sleep(Duration::from_secs(2)).await;
    };
    restart(&hosts[0]).await;
    assert_eq!(fleet.load()[0].state, ReplicaState::Refused);
    assert_eq!(fleet.model("").unwrap().info.fingerprint, "one");
    fleet.score(score_request(2, 8), late()).await.unwrap();
    hosts[1].kill();
    sleep(Duration::from_secs(6)).await;
    assert_eq!(fleet.model("").unwrap().info.fingerprint, "two");
    let answer = fleet.score(score_request(2, 8), late()).await.unwrap();
    assert_eq!(answer.fingerprint, "two");
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_another_version_is_thrown_away() {
    let hosts = [Host::new(1e6), Host::new(1e6)];
    let fleet = fleet(&hosts, |_| {});
    until_ready(&fleet, 2).await;
    // Behind our back, on the same connection.
    hosts[0].0.lock().model = model("model", "two");
    for _ in 0..50 {
        let answer = fleet.score(score_request(2, 8), late()).await.unwrap();
        assert_eq!(answer.fingerprint, "one");
    }
    assert_eq!(hosts[0].0.lock().calls.len(), 1);
    assert_eq!(fleet.load()[0].state, ReplicaState::Refused);
}

#[tokio::test(start_paused = true)]
async fn an_idle_replica_that_changes_is_seen_by_its_probe() {
    let hosts = [Host::new(1e6), Host::new(1e6)];
    let fleet = fleet(&hosts, |_| {});
    until_ready(&fleet, 2).await;
    hosts[0].0.lock().model = model("model", "two");
    sleep(Duration::from_secs(6)).await;
    assert_eq!(fleet.load()[0].state, ReplicaState::Refused);
}

#[tokio::test(start_paused = true)]
async fn models_are_chosen_by_name() {
    let hosts = [
        Host::new(1e6).serving("a", "fingerprint of a"),
        Host::new(1e6).serving("b", "fingerprint of b"),
    ];
    let fleet = fleet(&hosts, |_| {});
    until_ready(&fleet, 2).await;
    let names: Vec<String> = fleet
        .models()
        .iter()
        .map(|model| model.name().into())
        .collect();
    assert_eq!(names, ["a", "b"]);
    for (name, host) in [("a", 0), ("b", 1), ("", 0)] {
        let before = hosts[host].items();
        let answer = fleet.score(named(name), late()).await.unwrap();
        assert_eq!(hosts[host].items(), before + 2, "{name:?}");
        assert_eq!(answer.model, ["a", "b"][host], "the true name is answered");
    }
    let status = fleet.score(named("c"), late()).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    let expected = r#"model: "c" is not served here, served are ["a", "b"]"#;
    assert_eq!(status.message(), expected);
}

#[tokio::test(start_paused = true)]
async fn with_one_model_any_name_means_it_unless_names_are_strict() {
    let host = [Host::new(1e6)];
    for (strict, expected) in [(false, Code::Ok), (true, Code::NotFound)] {
        let fleet = fleet(&host, |config| config.strict_model_name = strict);
        let status = fleet.model("").unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "nothing has answered");
        fleet.ready().await;
        let result = fleet.score(named("other"), late()).await;
        let code = result.map_or_else(|status| status.code(), |_| Code::Ok);
        assert_eq!(code, expected);
        fleet.score(named("model"), late()).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_tokenizer_is_loaded_once_for_all_replicas() {
    let hosts: Vec<Host> = (0..8).map(|_| Host::new(1e6)).collect();
    let fleet = fleet(&hosts, |_| {});
    until_ready(&fleet, 8).await;
    let model = fleet.model("").unwrap();
    assert!(model.tokenizer.is_some());
    for replica in fleet.registry.replicas() {
        assert!(std::sync::Arc::ptr_eq(&replica.model().unwrap(), &model));
    }
}
