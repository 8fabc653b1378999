//! What HTTP adds to a call: a rerank of 50 documents over gRPC, and over the gateway in the same
//! process, turn by turn in one run. The engine takes no time.
//!
//! `cargo bench -p rose-benches --bench gateway`. The target is a median within 400 µs of gRPC's.

#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
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
    let gateway = ivy::Server::bind(http, backend, &server.runtime().unwrap()).unwrap();

    let client = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    client.block_on(compare(&server, &gateway));
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

async fn compare(server: &Server, gateway: &ivy::Server) {
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
    let mut stream = TcpStream::connect(gateway.local_addr()).await.unwrap();
    stream.set_nodelay(true).unwrap();

    let calls = std::env::var("GATEWAY_BENCH_CALLS").ok();
    let calls = calls.map_or(CALLS, |calls| calls.parse().unwrap());
    let (mut over_grpc, mut over_http) = (Vec::new(), Vec::new());
    for call in 0..WARM_UP + calls {
        let begun = Instant::now();
        let answer = grpc.score(request.clone()).await.unwrap().into_inner();
        let grpc_time = begun.elapsed();
        assert_eq!(answer.scores.len(), DOCUMENTS);

        let begun = Instant::now();
        stream.write_all(sent.as_bytes()).await.unwrap();
        read_answer(&mut stream).await;
        let http_time = begun.elapsed();
        if call >= WARM_UP {
            over_grpc.push(grpc_time);
            over_http.push(http_time);
        }
    }
    let (grpc, http) = (percentiles(over_grpc), percentiles(over_http));
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    let added = micros(http.0) - micros(grpc.0);
    println!(
        "{{\"documents\": {DOCUMENTS}, \"tokens_per_document\": {WORDS}, \"calls\": {calls}, \
         \"grpc_p50_us\": {:.1}, \"grpc_p99_us\": {:.1}, \"http_p50_us\": {:.1}, \
         \"http_p99_us\": {:.1}, \"added_p50_us\": {added:.1}}}",
        micros(grpc.0),
        micros(grpc.1),
        micros(http.0),
        micros(http.1),
    );
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
