//! Replicas come and go with the addresses of their name.

use std::time::Duration;

use tokio::time::sleep;

use crate::backend::Backend as _;
use crate::fleet::simulation::{Host, Names, late, named_fleet, score_request, until_ready};

fn addresses(fleet: &crate::Fleet) -> Vec<String> {
    let replicas = fleet.load().into_iter();
    replicas.map(|replica| replica.address).collect()
}

#[tokio::test(start_paused = true)]
async fn a_name_is_looked_up_again_and_again() {
    let hosts = [Host::new(1_000.0), Host::new(1_000.0), Host::new(1_000.0)];
    let names = Names::default();
    *names.0.lock() = vec![1, 2];
    let fleet = named_fleet(&hosts, &names);
    until_ready(&fleet, 2).await;
    assert_eq!(addresses(&fleet), ["127.0.0.1:1", "127.0.0.1:2"]);

    // What the one that leaves has begun, it still ends.
    let call = fleet.score(score_request(1000, 10), late());
    let change = async {
        sleep(Duration::from_secs(1)).await;
        *names.0.lock() = vec![2, 3];
    };
    let (answer, ()) = tokio::join!(call, change);
    assert_eq!(answer.unwrap().scores.len(), 1000);
    assert_eq!(hosts[0].0.lock().cancelled, 0);
    until_ready(&fleet, 2).await;
    assert_eq!(addresses(&fleet), ["127.0.0.1:2", "127.0.0.1:3"]);
    let before = hosts[0].items();
    for _ in 0..20 {
        fleet.score(score_request(2, 8), late()).await.unwrap();
    }
    assert_eq!(hosts[0].items(), before);
    assert!(hosts[2].items() > 0);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_cannot_be_looked_up_keeps_its_replicas() {
    let hosts = [Host::new(1e6)];
    let names = Names::default();
    let fleet = named_fleet(&hosts, &names);
    sleep(Duration::from_secs(20)).await;
    assert!(addresses(&fleet).is_empty());
    *names.0.lock() = vec![1];
    until_ready(&fleet, 1).await;
    names.0.lock().clear();
    sleep(Duration::from_secs(20)).await;
    assert_eq!(addresses(&fleet), ["127.0.0.1:1"]);
    fleet.score(score_request(2, 8), late()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn all_replicas_may_be_replaced_below_a_request() {
    let hosts = [Host::new(1_000.0), Host::new(1_000.0)];
    let names = Names::default();
    *names.0.lock() = vec![1];
    let fleet = named_fleet(&hosts, &names);
    until_ready(&fleet, 1).await;
    let call = fleet.score(score_request(1000, 10), late());
    let change = async {
        sleep(Duration::from_secs(1)).await;
        *names.0.lock() = vec![2];
        sleep(Duration::from_secs(7)).await;
        hosts[0].kill();
    };
    let (answer, ()) = tokio::join!(call, change);
    assert_eq!(answer.unwrap().scores.len(), 1000);
    assert_eq!(hosts[1].items(), 1000);
}
