//! The gateway's remote back end over real Tulip servers, whose engines take a time for each token.
//!
//! `cargo bench -p rose-benches --bench fleet`. Prints Markdown: how near a request of 1,000
//! documents comes to the time of the ideal split, what a replica's death and return cost under
//! 200 requests a second, and what the way through the fleet adds to one call. The targets are a
//! 99th percentile within 1.15 of the ideal, no error, and a return that is used within 2 s.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ivy::backend::ReplicaState;
use ivy::fleet::SplitConfig;
use ivy::{Backend as _, Fleet, FleetConfig};
use tokio::task::JoinSet;
use tokio::time::interval;
use tonic::transport::Endpoint;
use tulip::config::ServerConfig;
use tulip::dispatch::{Dispatch, RunEnd};
use tulip::engine::Task;
use tulip::fake_engine::{FakeEngine, FakeLatency, StepLog};
use tulip::server::Server;
use tulip_proto::v1::tulip_client::TulipClient;
use tulip_proto::v1::{Input, ScoreRequest, TokenIdsForm, input};

const TOKENIZER: &[u8] = include_bytes!("../../crates/tulip/tests/fixtures/words.tokenizer.json");
const TOKENS: u32 = 32;

struct Replica {
    server: Server,
    dispatch: Dispatch,
    engine: Option<JoinHandle<RunEnd>>,
    log: StepLog,
}

impl Replica {
    fn start(grpc_address: SocketAddr, token: Option<Duration>) -> Self {
        let mut config = ServerConfig {
            grpc_address,
            worker_threads: 1,
            tokenizer_threads: 1,
            ..ServerConfig::default()
        };
        // Steps of 2 to 20 ms at the rates below, as on a device.
        config.scheduler.max_batch_tokens = 256;
        config.scheduler.max_batch_cost = 256;
        if token.is_none() {
            config.scheduler = tulip::config::SchedulerConfig::default();
        }
        let dispatch = Dispatch::new(config.scheduler.clone());
        let server = Server::bind(config).unwrap();
        let info = FakeEngine::model_info(Task::Score, 1, TOKENIZER);
        let log = StepLog::default();
        let mut engine = FakeEngine::new(info.clone()).with_log(Arc::clone(&log));
        if let Some(token) = token {
            engine = engine.with_latency(FakeLatency {
                step: Duration::ZERO,
                token,
            });
        }
        let running = dispatch.clone();
        let engine = Some(std::thread::spawn(move || running.run(&mut engine)));
        server.set_model(info, dispatch.clone()).unwrap();
        Self {
            server,
            dispatch,
            engine,
            log,
        }
    }

    fn tokens(&self) -> usize {
        self.log.lock().iter().flatten().sum()
    }
}

impl Drop for Replica {
    /// As the end of a process: connections are closed in the middle of what they do.
    fn drop(&mut self) {
        self.server.shutdown(Duration::ZERO);
        self.dispatch.abort("killed");
        if let Some(engine) = self.engine.take() {
            let _ = engine.join();
        }
    }
}

fn any_port() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

async fn fleet(replicas: &[&Replica], split: SplitConfig) -> Fleet {
    let name = |replica: &&Replica| replica.server.local_addr().to_string().parse().unwrap();
    let fleet = Fleet::start(FleetConfig {
        replicas: replicas.iter().map(name).collect(),
        split,
        ..FleetConfig::default()
    })
    .unwrap();
    let ready = |fleet: &Fleet| {
        let mut load = fleet.load().into_iter();
        load.len() == replicas.len() && load.all(|replica| replica.state == ReplicaState::Ready)
    };
    while !ready(&fleet) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    fleet
}

fn request(documents: u32, tokens: u32) -> ScoreRequest {
    let document = |index: u32| Input {
        content: Some(input::Content::TokenIds(
            (0..tokens)
                .flat_map(|at| (4 + (index + at) % 90).to_le_bytes())
                .collect(),
        )),
        form: TokenIdsForm::Sequence.into(),
        second_segment_start: 0,
    };
    ScoreRequest {
        documents: (0..documents).map(document).collect(),
        ..ScoreRequest::default()
    }
}

fn late() -> tokio::time::Instant {
    tokio::time::Instant::now() + Duration::from_secs(60)
}

/// Of sorted values.
fn percentile(values: &[f64], percent: usize) -> f64 {
    values[(values.len() * percent).div_ceil(100).saturating_sub(1)]
}

async fn sharing(token_us: &[u64], requests: usize) {
    let start = |us: &u64| Replica::start(any_port(), Some(Duration::from_micros(*us)));
    let replicas: Vec<Replica> = token_us.iter().map(start).collect();
    let all: Vec<&Replica> = replicas.iter().collect();
    let split = SplitConfig {
        min_chunk_tokens: 512,
        ..SplitConfig::default()
    };
    let fleet = fleet(&all, split).await;
    let request = request(1000, TOKENS);
    let rates: Vec<f64> = token_us.iter().map(|us| 1e6 / *us as f64).collect();
    let ideal = f64::from(1000 * TOKENS) / rates.iter().sum::<f64>();
    // In the first ones the rates are learned.
    for _ in 0..5 {
        fleet.score(request.clone(), late()).await.unwrap();
    }
    let before: Vec<usize> = replicas.iter().map(Replica::tokens).collect();
    let mut times = Vec::new();
    for _ in 0..requests {
        let started = Instant::now();
        fleet.score(request.clone(), late()).await.unwrap();
        times.push(started.elapsed().as_secs_f64() / ideal);
    }
    times.sort_unstable_by(f64::total_cmp);
    let total = (requests * 1000 * TOKENS as usize) as f64;
    let done: Vec<String> = replicas
        .iter()
        .zip(before)
        .map(|(replica, before)| format!("{:.3}", (replica.tokens() - before) as f64 / total))
        .collect();
    let fair: Vec<String> = rates
        .iter()
        .map(|rate| format!("{:.3}", rate / rates.iter().sum::<f64>()))
        .collect();
    println!(
        "| {} | {:.1} | {:.3} | {:.3} | {:.3} | {} | {} |",
        token_us
            .iter()
            .map(u64::to_string)
            .collect::<Vec<_>>()
            .join(", "),
        ideal * 1e3,
        percentile(&times, 50),
        percentile(&times, 99),
        times[times.len() - 1],
        done.join(", "),
        fair.join(", ")
    );
}

/// 200 requests a second of 20 documents; one of two replicas dies and comes back.
async fn death() {
    let token = Some(Duration::from_micros(5));
    let stays = Replica::start(any_port(), token);
    let dies = Replica::start(any_port(), token);
    let address = dies.server.local_addr();
    let fleet = Arc::new(fleet(&[&stays, &dies], SplitConfig::default()).await);
    let request = request(20, 16);
    let mut ticks = interval(Duration::from_millis(5));
    let mut calls: JoinSet<(usize, f64, bool)> = JoinSet::new();
    let (mut dying, mut killer, mut returned, mut used) = (Some(dies), None, None, None);
    const CALLS: usize = 2000;
    for number in 0..CALLS {
        ticks.tick().await;
        match number {
            800 => {
                let dying = dying.take();
                killer = Some(std::thread::spawn(move || drop(dying)));
            }
            1200 => {
                killer.take().map(JoinHandle::join);
                returned = Some((Replica::start(address, token), Instant::now()));
            }
            _ => {}
        }
        if let Some((replica, when)) = &returned
            && used.is_none()
            && replica.tokens() > 0
        {
            used = Some(when.elapsed());
        }
        let (fleet, request) = (Arc::clone(&fleet), request.clone());
        calls.spawn(async move {
            let started = Instant::now();
            let result = fleet.score(request, late()).await;
            (
                number,
                started.elapsed().as_secs_f64() * 1e3,
                result.is_ok(),
            )
        });
    }
    let ended = calls.join_all().await;
    let errors = ended.iter().filter(|(_, _, ok)| !ok).count();
    println!(
        "\n{CALLS} requests, {errors} errors; first used {:.0} ms after its return.\n",
        used.map_or(f64::NAN, |used| used.as_secs_f64() * 1e3)
    );
    println!("| requests | p50, ms | p99, ms | max, ms |\n|---|---|---|---|");
    for (name, part) in [
        ("with both", 0..800),
        ("from the death on", 800..1200),
        ("from the return on", 1200..CALLS),
    ] {
        let of_part = ended.iter().filter(|(number, _, _)| part.contains(number));
        let mut times: Vec<f64> = of_part.map(|(_, ms, _)| *ms).collect();
        times.sort_unstable_by(f64::total_cmp);
        println!(
            "| {name} | {:.2} | {:.2} | {:.2} |",
            percentile(&times, 50),
            percentile(&times, 99),
            times[times.len() - 1]
        );
    }
}

/// A 50-document call through the fleet and without it, one after the other, in turns.
async fn overhead() {
    let replica = Replica::start(any_port(), None);
    let fleet = fleet(&[&replica], SplitConfig::default()).await;
    let uri = format!("http://{}", replica.server.local_addr());
    let channel = Endpoint::from_shared(uri)
        .unwrap()
        .tcp_nodelay(true)
        .connect()
        .await
        .unwrap();
    let mut client = TulipClient::new(channel);
    let request = request(50, 128);
    let (mut direct, mut through) = (Vec::new(), Vec::new());
    for number in 0..6000 {
        let copy = request.clone();
        let started = Instant::now();
        if number % 2 == 0 {
            client.score(copy).await.unwrap();
        } else {
            fleet.score(copy, late()).await.unwrap();
        }
        let us = started.elapsed().as_secs_f64() * 1e6;
        match number {
            0..1000 => {}
            _ if number % 2 == 0 => direct.push(us),
            _ => through.push(us),
        }
    }
    direct.sort_unstable_by(f64::total_cmp);
    through.sort_unstable_by(f64::total_cmp);
    println!("\n| call of 50 documents, 128 tokens each | p50, µs | p99, µs |\n|---|---|---|");
    for (name, times) in [("gRPC client", &direct), ("fleet", &through)] {
        println!(
            "| {name} | {:.0} | {:.0} |",
            percentile(times, 50),
            percentile(times, 99)
        );
    }
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        println!("Times of 1,000 documents of {TOKENS} tokens, in parts of the ideal split's:\n");
        println!("| µs a token | ideal, ms | p50 | p99 | max | share done | fair share |");
        println!("|---|---|---|---|---|---|---|");
        sharing(&[40, 10], 60).await;
        sharing(&[20, 20], 50).await;
        sharing(&[80, 40, 20, 20], 60).await;
        death().await;
        overhead().await;
    });
}
