//! 1,000 documents over two and four replicas: all work, each as fast as it can.
//!
//! Other processes take their part of the time here, so limits are in parts of the ideal: the time
//! that the replicas would need if all of them worked to the end, each as fast as it was in this
//! request by its own clock. No even split comes near them (2.5 and 2.7 times the ideal), nor do
//! replicas that wait for each other (2 and 4 times). The 99th percentile within 15 % of the wall
//! is in the tests of the crate, under a simulated clock.

use std::time::{Duration, Instant};

use ivy::Backend as _;
use ivy::fleet::SplitConfig;

use crate::support::{Replica, expected, fleet, late, request};

const DOCUMENTS: u32 = 1000;
const TOKENS: u32 = 32;

/// Of the requests after the first few, in which the rates are learned.
struct Measured {
    /// Median of the longest time that a replica was busy with a request, in parts of the ideal.
    busy: f64,
    /// Median of the time that a request took, in parts of the ideal.
    elapsed: f64,
    /// Mean time that each replica was busy, in parts of the ideal.
    shares: Vec<f64>,
}

const LEARNING: usize = 5;
const MEASURED: usize = 20;

/// Tokens and busy time of a replica so far.
fn account(replica: &Replica) -> (usize, Duration) {
    (replica.tokens(), replica.busy())
}

async fn measure(token_us: &[u64]) -> Measured {
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
    let (mut busy, mut elapsed) = (Vec::new(), Vec::new());
    let mut shares = vec![0.0; replicas.len()];
    for number in 0..LEARNING + MEASURED {
        let before: Vec<_> = replicas.iter().map(account).collect();
        let started = Instant::now();
        let answer = fleet.score(request.clone(), late()).await.unwrap();
        let took = started.elapsed().as_secs_f64();
        assert!(answer.scores == expected, "not in input order");
        if number < LEARNING {
            continue;
        }
        let mut rates = 0.0;
        let mut seconds = Vec::new();
        for (replica, (tokens_before, busy_before)) in replicas.iter().zip(before) {
            let (tokens, busy) = account(replica);
            assert!(tokens > tokens_before, "a replica got nothing");
            seconds.push((busy - busy_before).as_secs_f64());
            rates += (tokens - tokens_before) as f64 / (busy - busy_before).as_secs_f64();
        }
        let ideal = f64::from(DOCUMENTS * TOKENS) / rates;
        for (share, seconds) in shares.iter_mut().zip(&seconds) {
            *share += seconds / ideal / MEASURED as f64;
        }
        busy.push(seconds.into_iter().fold(0.0, f64::max) / ideal);
        elapsed.push(took / ideal);
    }
    Measured {
        busy: median(busy),
        elapsed: median(elapsed),
        shares,
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

async fn check(token_us: &[u64]) {
    let Measured {
        busy,
        elapsed,
        shares,
    } = measure(token_us).await;
    assert!(
        busy <= 1.15,
        "busy for {busy} of the ideal, shares {shares:?}"
    );
    assert!(elapsed <= 1.4, "took {elapsed} of the ideal");
    let even = shares.iter().all(|share| (0.6..=1.4).contains(share));
    assert!(even, "shares {shares:?}");
}

#[tokio::test]
async fn two_replicas_one_four_times_as_fast() {
    check(&[40, 10]).await;
}

#[tokio::test]
async fn four_replicas_of_four_speeds() {
    check(&[80, 40, 20, 20]).await;
}
