//! What HTTP adds to a call: a rerank of 50 documents over gRPC, over the gateway inside the server,
//! and over a gateway that stands alone and makes the gRPC call itself, turn by turn in one run.
//! The engine takes no time; each way tokenizes the texts once.
//!
//! `cargo bench -p rose-benches --bench gateway`. The target is a median within 400 µs of gRPC's.
//! It says nothing until the end; a build that is not optimized on a busy machine takes a minute
//! and more for all calls, so under `cargo test` it makes a few only.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    missing_docs
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::transport::Endpoint;
use tulip::config::ServerConfig;
use tulip::dispatch::Dispatch;
use tulip::engine::Task;
use tulip::fake_engine::FakeEngine;
use tulip::server::Server;
use tulip_proto::v1::tulip_client::TulipClient;
use tulip_proto::v1::{Input, ScoreRequest, input};

const TOKENIZER: &[u8] = include_bytes!("../../crates/tulip/tests/fixtures/words.tokenizer.json");
const DOCUMENTS: usize = 50;
/// Words of one document; a word is a token.
const WORDS: usize = 30;
const WARM_UP: usize = 200;
/// Another number comes from `GATEWAY_BENCH_CALLS`.
const CALLS: usize = 2_000;
/// Calls of both kinds where nothing is measured: only that all three ways work.
const FEW_CALLS: usize = 10;
/// No call is that late: it is lost.
const LOST: Duration = Duration::from_secs(30);

fn main() {
    let config = ServerConfig {
        grpc_address: ([127, 0, 0, 1], 0).into(),
        ..ServerConfig::default()
    };
    let dispatch = Dispatch::new(config.scheduler.clone());
    let server = Server::bind(config).unwrap();
    let info = FakeEngine::model_info(Task::Score, 1, TOKENIZER);
    let mut engine = FakeEngine::new(info.clone());
    let running = dispatch.clone();
    let thread = std::thread::spawn(move || running.run(&mut engine));
    server.set_model(info, dispatch.clone()).unwrap();
    let http = ivy::GatewayConfig {
        http_address: ([127, 0, 0, 1], 0).into(),
        ..ivy::GatewayConfig::default()
    };
    let backend = Arc::new(ivy::Local::new(server.in_process()));
    let inside = ivy::Server::bind(http.clone(), backend, &server.runtime().unwrap()).unwrap();

    let threads = tokio::runtime::Runtime::new().unwrap();
    let alone = threads.block_on(async {
        let config = ivy::FleetConfig {
            replicas: vec![server.local_addr().to_string().parse().unwrap()],
            ..ivy::FleetConfig::default()
        };
        let fleet = Arc::new(ivy::Fleet::start(config).unwrap());
        fleet.ready().await;
        ivy::Server::bind(http, fleet, threads.handle()).unwrap()
    });

    let client = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    client.block_on(compare(&server, &inside, &alone));
    dispatch.abort("done");
    thread.join().unwrap();
}

fn documents() -> Vec<String> {
    let word = |at: usize| format!("w{}", at % 90);
    let document = |index: usize| (0..WORDS).map(|at| word(index + at)).collect::<Vec<_>>();
    (0..DOCUMENTS)
        .map(|index| document(index).join(" "))
        .collect()
}

async fn compare(server: &Server, inside: &ivy::Server, alone: &ivy::Server) {
    let text = |text: &str| Input {
        content: Some(input::Content::Text(text.into())),
        ..Input::default()
    };
    let request = ScoreRequest {
        query: Some(text("w1 w2 w3")),
        documents: documents().iter().map(|document| text(document)).collect(),
        ..ScoreRequest::default()
    };
    let listed: Vec<String> = documents()
        .iter()
        .map(|text| format!("\"{text}\""))
        .collect();
    let body = format!(
        r#"{{"query":"w1 w2 w3","documents":[{}]}}"#,
        listed.join(",")
    );
    let sent = format!(
        "POST /v2/rerank HTTP/1.1\r\nhost: ivy\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let channel = Endpoint::from_shared(format!("http://{}", server.local_addr())).unwrap();
    let mut grpc = TulipClient::new(channel.tcp_nodelay(true).connect().await.unwrap());
    let mut inside = connect(inside).await;
    let mut alone = connect(alone).await;

    // Cargo says whether it measures or tests.
    let (warm_up, calls) = if std::env::args().any(|argument| argument == "--bench") {
        (WARM_UP, CALLS)
    } else {
        (FEW_CALLS, FEW_CALLS)
    };
    let given = std::env::var("GATEWAY_BENCH_CALLS").ok();
    let calls = given.map_or(calls, |calls| calls.parse().unwrap());
    let mut times: [Vec<Duration>; 3] = Default::default();
    for call in 0..warm_up + calls {
        let begun = Instant::now();
        let answer = timeout(LOST, grpc.score(request.clone())).await;
        let answer = answer.expect("gRPC answers").unwrap().into_inner();
        let over_grpc = begun.elapsed();
        assert_eq!(answer.scores.len(), DOCUMENTS);
        let over_inside = timeout(LOST, ask(&mut inside, &sent)).await;
        let over_inside = over_inside.expect("the gateway inside answers");
        let over_alone = timeout(LOST, ask(&mut alone, &sent)).await;
        let over_alone = over_alone.expect("the gateway alone answers");
        if call >= warm_up {
            let all = [over_grpc, over_inside, over_alone];
            times
                .iter_mut()
                .zip(all)
                .for_each(|(times, time)| times.push(time));
        }
    }
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    let [grpc, inside, alone] = times.map(percentiles);
    println!("{DOCUMENTS} documents of {WORDS} tokens, {calls} calls, microseconds");
    for (name, (p50, p99)) in [("grpc", grpc), ("inside", inside), ("alone", alone)] {
        let added = micros(p50) - micros(grpc.0);
        let (p50, p99) = (micros(p50), micros(p99));
        println!("{name:>6}  p50 {p50:7.1}  p99 {p99:7.1}  p50 above grpc {added:7.1}");
    }
}

async fn connect(gateway: &ivy::Server) -> TcpStream {
    let stream = TcpStream::connect(gateway.local_addr()).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

async fn ask(stream: &mut TcpStream, request: &str) -> Duration {
    let begun = Instant::now();
    stream.write_all(request.as_bytes()).await.unwrap();
    read_answer(stream).await;
    begun.elapsed()
}

async fn read_answer(stream: &mut TcpStream) {
    let mut bytes = Vec::with_capacity(8192);
    loop {
        assert!(stream.read_buf(&mut bytes).await.unwrap() > 0);
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
            continue;
        };
        let head = std::str::from_utf8(&bytes[..end]).unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        let mut lengths = head
            .lines()
            .filter_map(|line| line.strip_prefix("content-length: "));
        let length: usize = lengths.next().unwrap().parse().unwrap();
        if bytes.len() >= end + 4 + length {
            return;
        }
    }
}

/// Median and 99th percentile.
fn percentiles(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort_unstable();
    (times[times.len() / 2], times[times.len() * 99 / 100])
}
