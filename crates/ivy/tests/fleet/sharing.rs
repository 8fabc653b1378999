//! 1,000 documents over two and four replicas: all work, each as fast as it can.
//!
//! Here time is real, and other processes take their part of it: the limits are those that no
//! even split could meet (2.5 and 2.7 times the ideal). The 99th percentile within 15 % is in the
//! tests of the crate, under a simulated clock.

use std::time::{Duration, Instant};

use ivy::Backend as _;
use ivy::fleet::SplitConfig;

use crate::support::{Replica, expected, fleet, late, request};

const DOCUMENTS: u32 = 1000;
const TOKENS: u32 = 32;

/// The median of the times that requests take, in parts of the ideal, and what each replica did
/// of it all.
async fn measure(token_us: &[u64]) -> (f64, Vec<f64>) {
    let replica = |us: &u64| Replica::start(Duration::from_micros(*us));
    let replicas: Vec<Replica> = token_us.iter().map(replica).collect();
    let addresses: Vec<_> = replicas.iter().map(Replica::address).collect();
    let fleet = fleet(&addresses, |config| {
        config.split = SplitConfig {
            min_chunk_tokens: 512,
            ..SplitConfig::default()
        };
    })
    .await;
    let request = request(DOCUMENTS, TOKENS);
    let expected = expected(&request);
    let rate: f64 = token_us.iter().map(|us| 1e6 / *us as f64).sum();
    let ideal = f64::from(DOCUMENTS * TOKENS) / rate;
    let mut shares = Vec::new();
    let mut before = Vec::new();
    for number in 0..25 {
        if number == 5 {
            // The rates are known now.
            before = replicas.iter().map(Replica::tokens).collect();
        }
        let started = Instant::now();
        let answer = fleet.score(request.clone(), late()).await.unwrap();
        let elapsed = started.elapsed().as_secs_f64();
        assert!(answer.scores == expected, "not in input order");
        if number >= 5 {
            shares.push(elapsed / ideal);
        }
    }
    shares.sort_unstable_by(f64::total_cmp);
    let done = replicas.iter().zip(before).map(|(replica, before)| {
        (replica.tokens() - before) as f64 / f64::from(20 * DOCUMENTS * TOKENS)
    });
    (shares[shares.len() / 2], done.collect())
}

async fn check(token_us: &[u64]) {
    let (median, done) = measure(token_us).await;
    assert!(median <= 1.6, "the median is {median} of the ideal");
    let rate: f64 = token_us.iter().map(|us| 1.0 / *us as f64).sum();
    for (done, us) in done.iter().zip(token_us) {
        let share = 1.0 / *us as f64 / rate;
        let fair = 0.6 * share..=1.4 * share;
        assert!(fair.contains(done), "did {done}, its share is {share}");
    }
}

#[tokio::test]
async fn two_replicas_one_four_times_as_fast() {
    check(&[40, 10]).await;
}

#[tokio::test]
async fn four_replicas_of_four_speeds() {
    check(&[80, 40, 20, 20]).await;
}
