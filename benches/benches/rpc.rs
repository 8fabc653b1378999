//! What Tulip adds to a call: an engine that takes no time, against a bare tonic server that
//! answers with the same bytes.
//!
//! `cargo bench -p rose-benches --bench rpc`. The target is a median of one sequence within 1.5
//! of the echo, and 15,000 sequences a second in calls of 100.

#![allow(clippy::unwrap_used, missing_docs)]

use std::hint::black_box;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tokio::runtime::{Builder, Runtime};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server as TonicServer};
use tonic::{Request, Response, Status, Streaming};
use tulip::config::ServerConfig;
use tulip::dispatch::Dispatch;
use tulip::engine::Task;
use tulip::fake_engine::FakeEngine;
use tulip::server::Server;
use tulip_proto::v1::tulip_client::TulipClient;
use tulip_proto::v1::tulip_server::{Tulip, TulipServer};
use tulip_proto::v1::*;

const TOKENIZER: &[u8] = include_bytes!("../../crates/tulip/tests/fixtures/words.tokenizer.json");
const WORKER_THREADS: usize = 2;
/// Values of a vector, as of all-MiniLM-L6-v2.
const WIDTH: usize = 384;
const TOKENS: u32 = 32;
const CALLS_IN_FLIGHT: usize = 8;

/// Inputs of `TOKENS` tokens, as a gateway sends them.
fn request(num_inputs: u32) -> EmbedRequest {
    let input = |index: u32| Input {
        content: Some(input::Content::TokenIds(
            (0..TOKENS)
                .flat_map(|at| ((index + at) % 90 + 4).to_le_bytes())
                .collect(),
        )),
        form: TokenIdsForm::Sequence.into(),
        second_segment_start: 0,
    };
    EmbedRequest {
        inputs: (0..num_inputs).map(input).collect(),
        ..EmbedRequest::default()
    }
}

fn start_tulip() -> (Server, Dispatch) {
    let config = ServerConfig {
        grpc_address: ([127, 0, 0, 1], 0).into(),
        worker_threads: WORKER_THREADS,
        ..ServerConfig::default()
    };
    let dispatch = Dispatch::new(config.scheduler.clone());
    let server = Server::bind(config).unwrap();
    let info = FakeEngine::model_info(Task::Embed, WIDTH, TOKENIZER);
    let mut engine = FakeEngine::new(info.clone());
    let running = dispatch.clone();
    std::thread::spawn(move || running.run(&mut engine));
    server.set_model(info, dispatch.clone()).unwrap();
    (server, dispatch)
}

/// Answers every call with what Tulip has answered.
struct Echo(EmbedResponse);

type Never<T> = tokio_stream::Empty<Result<T, Status>>;

#[tonic::async_trait]
impl Tulip for Echo {
    async fn embed(&self, _: Request<EmbedRequest>) -> Result<Response<EmbedResponse>, Status> {
        Ok(Response::new(self.0.clone()))
    }

    async fn score(&self, _: Request<ScoreRequest>) -> Result<Response<ScoreResponse>, Status> {
        Err(Status::unimplemented("Score"))
    }

    type ScoreStreamStream = Never<ScoreStreamResponse>;

    async fn score_stream(
        &self,
        _: Request<Streaming<ScoreRequest>>,
    ) -> Result<Response<Self::ScoreStreamStream>, Status> {
        Err(Status::unimplemented("ScoreStream"))
    }

    type EmbedStreamStream = Never<EmbedStreamResponse>;

    async fn embed_stream(
        &self,
        _: Request<Streaming<EmbedRequest>>,
    ) -> Result<Response<Self::EmbedStreamStream>, Status> {
        Err(Status::unimplemented("EmbedStream"))
    }

    async fn tokenize(
        &self,
        _: Request<TokenizeRequest>,
    ) -> Result<Response<TokenizeResponse>, Status> {
        Err(Status::unimplemented("Tokenize"))
    }

    async fn get_model(
        &self,
        _: Request<GetModelRequest>,
    ) -> Result<Response<GetModelResponse>, Status> {
        Err(Status::unimplemented("GetModel"))
    }
}

fn start_echo(response: EmbedResponse) -> (Runtime, SocketAddr) {
    let runtime = Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .enable_all()
        .build()
        .unwrap();
    let _inside = runtime.enter();
    let incoming = TcpIncoming::bind(([127, 0, 0, 1], 0).into())
        .unwrap()
        .with_nodelay(Some(true));
    let address = incoming.local_addr().unwrap();
    let server = TonicServer::builder().add_service(TulipServer::new(Echo(response)));
    runtime.spawn(server.serve_with_incoming(incoming));
    drop(_inside);
    (runtime, address)
}

async fn connect(address: SocketAddr) -> TulipClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    TulipClient::new(endpoint.tcp_nodelay(true).connect().await.unwrap())
}

/// Time of `iterations` calls, several in flight.
async fn in_parallel(
    client: &TulipClient<Channel>,
    request: &EmbedRequest,
    iterations: u64,
) -> Duration {
    let started = Instant::now();
    let share = |worker: usize| {
        let calls = iterations / CALLS_IN_FLIGHT as u64
            + u64::from((worker as u64) < iterations % CALLS_IN_FLIGHT as u64);
        let (mut client, request) = (client.clone(), request.clone());
        tokio::spawn(async move {
            for _ in 0..calls {
                black_box(client.embed(request.clone()).await.unwrap());
            }
        })
    };
    let workers: Vec<_> = (0..CALLS_IN_FLIGHT).map(share).collect();
    for worker in workers {
        worker.await.unwrap();
    }
    started.elapsed()
}

fn rpc(criterion: &mut Criterion) {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let (server, dispatch) = start_tulip();
    let tulip = runtime.block_on(connect(server.local_addr()));

    for (name, num_inputs) in [("one sequence", 1), ("100 sequences", 100)] {
        let request = request(num_inputs);
        let response = runtime
            .block_on(tulip.clone().embed(request.clone()))
            .unwrap()
            .into_inner();
        let (_echo_runtime, address) = start_echo(response);
        let echo = runtime.block_on(connect(address));

        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(num_inputs.into()));
        for (server, client) in [("echo", &echo), ("tulip", &tulip)] {
            group.bench_function(format!("{server}, one call after the other"), |bencher| {
                bencher.to_async(&runtime).iter(|| {
                    let (mut client, request) = (client.clone(), request.clone());
                    async move { black_box(client.embed(request).await.unwrap()) }
                });
            });
            group.bench_function(
                format!("{server}, {CALLS_IN_FLIGHT} calls in flight"),
                |bencher| {
                    bencher
                        .to_async(&runtime)
                        .iter_custom(|iterations| in_parallel(client, &request, iterations));
                },
            );
        }
        group.finish();
    }
    dispatch.close();
    server.shutdown(Duration::from_secs(1));
}

criterion_group!(benches, rpc);
criterion_main!(benches);
