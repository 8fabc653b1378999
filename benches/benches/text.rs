//! What tokenization costs a call over gRPC: texts in, an engine that takes no time, with our own
//! encoder and with the `tokenizers` crate's.
//!
//! `TOKENIZER=tokenizer.json cargo bench -p rose-benches --bench text`, with a file of a BERT, which
//! is left to the crate when its normalizer is followed by another that changes no ids.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::{Value, json};
use tokenization::{Tokenizer, TokenizerOptions};
use tokio::runtime::Builder;
use tonic::transport::{Channel, Endpoint};
use tulip::config::ServerConfig;
use tulip::dispatch::Dispatch;
use tulip::engine::Task;
use tulip::fake_engine::FakeEngine;
use tulip::server::Server;
use tulip_proto::v1::tulip_client::TulipClient;
use tulip_proto::v1::{Input, ScoreRequest, input};

const DOCUMENTS: usize = 50;
/// About 480 tokens of English.
const DOCUMENT_BYTES: usize = 2_000;
const QUERY: &str = "how much protein should an adult eat each day";
const MAX_MESSAGE_BYTES: usize = 1 << 26;

struct Running {
    server: Server,
    dispatch: Dispatch,
    client: TulipClient<Channel>,
}

async fn start(tokenizer_json: &[u8]) -> Running {
    let config = ServerConfig {
        grpc_address: ([127, 0, 0, 1], 0).into(),
        ..ServerConfig::default()
    };
    let dispatch = Dispatch::new(config.scheduler.clone());
    let server = Server::bind(config).unwrap();
    let info = FakeEngine::model_info(Task::Score, 1, tokenizer_json);
    let mut engine = FakeEngine::new(info.clone());
    let running = dispatch.clone();
    std::thread::spawn(move || running.run(&mut engine));
    server.set_model(info, dispatch.clone()).unwrap();
    let endpoint = Endpoint::from_shared(format!("http://{}", server.local_addr())).unwrap();
    let channel = endpoint.tcp_nodelay(true).connect().await.unwrap();
    Running {
        server,
        dispatch,
        client: TulipClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES),
    }
}

/// The same tokenizer in a form that none of our encoders covers.
fn left_to_the_crate(tokenizer_json: &[u8]) -> Vec<u8> {
    let mut file: Value = serde_json::from_slice(tokenizer_json).unwrap();
    let strip = json!({"type": "Strip", "strip_left": true, "strip_right": true});
    file["normalizer"] =
        json!({"type": "Sequence", "normalizers": [file["normalizer"].take(), strip]});
    serde_json::to_vec(&file).unwrap()
}

fn encoder_name(tokenizer_json: &[u8]) -> &'static str {
    let options = TokenizerOptions {
        max_sequence_tokens: 512,
        strip: false,
        lower_case: false,
        vocab_size: u32::MAX,
    };
    let tokenizer = Tokenizer::from_json(tokenizer_json, options).unwrap();
    tokenizer.encoder_name()
}

fn text(content: &str) -> Input {
    Input {
        content: Some(input::Content::Text(content.to_owned())),
        ..Input::default()
    }
}

/// Documents that begin at different places of this repository's own text.
fn documents() -> Vec<Input> {
    let words: Vec<&str> = concat!(
        include_str!("../../docs/architecture.md"),
        include_str!("../../docs/gateway.md"),
        include_str!("../../README.md"),
    )
    .split_whitespace()
    .collect();
    let document = |index: usize| {
        let mut document = String::new();
        for word in words.iter().cycle().skip(index * 97) {
            document.push_str(word);
            if document.len() >= DOCUMENT_BYTES {
                break;
            }
            document.push(' ');
        }
        text(&document)
    };
    (0..DOCUMENTS).map(document).collect()
}

fn over_grpc(criterion: &mut Criterion) {
    let Ok(path) = std::env::var("TOKENIZER") else {
        println!("TOKENIZER names no tokenizer.json: nothing is measured");
        return;
    };
    let ours = std::fs::read(path).unwrap();
    let theirs = left_to_the_crate(&ours);
    assert_ne!(encoder_name(&ours), "tokenizers");
    assert_eq!(encoder_name(&theirs), "tokenizers");
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let servers = [
        (encoder_name(&ours), runtime.block_on(start(&ours))),
        ("tokenizers", runtime.block_on(start(&theirs))),
    ];
    for (name, documents) in [
        ("Score, 50 documents of 2,000 bytes", documents()),
        ("Score, one short document", vec![text("about 50 grams")]),
    ] {
        let request = ScoreRequest {
            query: Some(text(QUERY)),
            documents,
            ..ScoreRequest::default()
        };
        let mut answers = Vec::new();
        let mut group = criterion.benchmark_group(name);
        group.sample_size(50);
        for (encoder, server) in &servers {
            let mut client = server.client.clone();
            let answer = runtime.block_on(client.score(request.clone())).unwrap();
            answers.push(answer.into_inner().scores);
            group.bench_function(*encoder, |bencher| {
                bencher.to_async(&runtime).iter(|| {
                    let (mut client, request) = (server.client.clone(), request.clone());
                    async move { black_box(client.score(request).await.unwrap()) }
                });
            });
        }
        group.finish();
        assert_eq!(answers[0], answers[1], "other ids, other scores");
    }
    for (_, running) in servers {
        running.dispatch.close();
        running.server.shutdown(Duration::from_secs(1));
    }
}

criterion_group!(benches, over_grpc);
criterion_main!(benches);
