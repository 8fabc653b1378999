//! Our token ids against those of the `tokenizers` crate's `encode_fast`: one text on one core,
//! a query, and a rerank request on two.
//!
//! ```console
//! $ TOKENIZERS=minilm=tokenizer.json,e5=other.json cargo bench -p tokenization --bench tokenization
//! ```
//!
//! The text is this repository's documentation, or the file that `TEXT` names. Targets: Unigram
//! and WordPiece 5 times as fast as the crate, byte-level BPE 4 times; a query of 12 tokens within
//! 10 µs; 50 documents of 500 tokens on two cores in an eighth of the crate's time on one.

#![allow(clippy::unwrap_used, missing_docs)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tokenization::{
    Content, Pool, Tokenizer, TokenizerOptions, TruncationOptions, encode_pairs, encode_query,
};
use tokio::runtime::Builder;

const LENGTHS: [usize; 5] = [12, 16, 128, 512, 4_096];
const QUERY_TOKENS: usize = 12;
const DOCUMENTS: usize = 50;
const DOCUMENT_TOKENS: usize = 500;

struct Case {
    name: String,
    ours: Arc<Tokenizer>,
    reference: tokenizers::Tokenizer,
}

fn cases() -> Vec<Case> {
    // Without tokenizers there is nothing to measure; `cargo bench` of all benches goes on.
    let named = std::env::var("TOKENIZERS").unwrap_or_default();
    let case = |entry: &str| {
        let (name, path) = entry.split_once('=').unwrap();
        let json = std::fs::read(path).unwrap();
        let options = TokenizerOptions {
            max_sequence_tokens: 100_000,
            strip: false,
            lower_case: false,
            vocab_size: u32::MAX,
        };
        let mut reference = tokenizers::Tokenizer::from_bytes(&json).unwrap();
        reference.with_truncation(None).unwrap().with_padding(None);
        let ours = Arc::new(Tokenizer::from_json(&json, options).unwrap());
        Case {
            name: format!("{name} ({})", ours.encoder_name()),
            ours,
            reference,
        }
    };
    named.split_terminator(',').map(case).collect()
}

/// About 4,096 tokens and more.
fn text() -> String {
    if let Ok(path) = std::env::var("TEXT") {
        return std::fs::read_to_string(path).unwrap();
    }
    let documents = [
        include_str!("../../../docs/architecture.md"),
        include_str!("../../../docs/gpu.md"),
        include_str!("../../../README.md"),
        include_str!("../../../CONTRIBUTING.md"),
        include_str!("../../../CHANGELOG.md"),
    ];
    documents.concat()
}

/// The text from byte `start` on, around again after its end, with about `tokens` tokens.
fn with_tokens(tokenizer: &Tokenizer, text: &str, start: usize, tokens: usize) -> String {
    let mut start = start % text.len();
    while !text.is_char_boundary(start) {
        start += 1;
    }
    let mut around = [&text[start..], &text[..start]].concat();
    while tokenizer.encode_segment(&around).unwrap().len() < tokens {
        around.push_str(text);
    }
    let ends: Vec<usize> = around.char_indices().map(|(index, _)| index).collect();
    let enough = ends
        .partition_point(|&end| tokenizer.encode_segment(&around[..end]).unwrap().len() < tokens);
    around[..ends[enough.min(ends.len() - 1)]].to_owned()
}

fn one_text(criterion: &mut Criterion) {
    let text = text();
    for Case {
        name,
        ours,
        reference,
    } in cases()
    {
        for tokens in LENGTHS {
            let text = with_tokens(&ours, &text, 0, tokens);
            let count = ours.encode_segment(&text).unwrap().len();
            let mut group = criterion.benchmark_group(format!("{name}, {tokens} tokens"));
            group
                .throughput(Throughput::Elements(count as u64))
                .measurement_time(Duration::from_millis(1_000))
                .warm_up_time(Duration::from_millis(300))
                .sample_size(30);
            let mut ids = Vec::new();
            group.bench_function("ours", |bencher| {
                bencher.iter(|| {
                    ids.clear();
                    ours.encode_segment_into(black_box(&text), &mut ids)
                        .unwrap();
                    ids.len()
                });
            });
            group.bench_function("tokenizers", |bencher| {
                bencher.iter(|| {
                    reference
                        .encode_fast(black_box(text.as_str()), false)
                        .unwrap()
                });
            });
        }
    }
}

fn rerank(criterion: &mut Criterion) {
    let runtime = Builder::new_current_thread().build().unwrap();
    let text = text();
    for Case {
        name,
        ours,
        reference,
    } in cases()
    {
        let query = with_tokens(&ours, &text, 0, QUERY_TOKENS);
        let documents: Vec<String> = (0..DOCUMENTS)
            .map(|index| with_tokens(&ours, &text, index * 397, DOCUMENT_TOKENS))
            .collect();
        let mut group = criterion.benchmark_group(format!("{name}, {DOCUMENTS} documents"));
        group
            .measurement_time(Duration::from_secs(2))
            .warm_up_time(Duration::from_millis(300))
            .sample_size(20);
        let truncation = TruncationOptions::to(10_000);
        let pool = Pool::new(2, "tokenizer", 64).unwrap();
        let contents = |texts: &[String]| texts.iter().cloned().map(Content::Text).collect();
        group.bench_function("ours, two threads", |bencher| {
            bencher.iter_batched(
                || contents(&documents),
                |documents| {
                    runtime.block_on(async {
                        let query = Content::Text(query.clone());
                        let query = encode_query(&ours, &pool, query, &truncation)
                            .await
                            .unwrap();
                        encode_pairs(&ours, &pool, &Arc::new(query), documents, &truncation).await
                    })
                },
                criterion::BatchSize::LargeInput,
            );
        });
        group.bench_function("tokenizers, one thread", |bencher| {
            bencher.iter(|| {
                let pair = |document: &String| {
                    let pair = (query.as_str(), document.as_str());
                    reference.encode_fast(pair, true).unwrap()
                };
                documents.iter().map(pair).collect::<Vec<_>>()
            });
        });
    }
}

criterion_group!(benches, one_text, rerank);
criterion_main!(benches);
