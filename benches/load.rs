//! A client that loads a running server: latency of one caller, or throughput of several.
//!
//! ```text
//! rose-load --address 127.0.0.1:50051 --task embed --sequences 1 --length 128 --calls 300
//! rose-load --address 127.0.0.1:50051 --task score --sequences 100 --length 512 --clients 4 --seconds 5
//! ```
//!
//! Requests carry complete sequences of random token ids. Prints one JSON object.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::error::Error;
use std::time::{Duration, Instant};

use tonic::transport::{Channel, Endpoint};
use tulip_proto::v1::tulip_client::TulipClient;
use tulip_proto::v1::{EmbedRequest, Input, ScoreRequest, Timings, TokenIdsForm, input};

/// Ids of special tokens lie below.
const FIRST_ID: u32 = 1000;
const MAX_MESSAGE_BYTES: usize = 256 << 20;
const WINDOW_BYTES: u32 = 4 << 20;

struct Options {
    address: String,
    score: bool,
    sequences: usize,
    length: usize,
    vocabulary: u32,
    clients: usize,
    calls: usize,
    warm_up: usize,
    /// Never sleep while a call runs, as latency-bound callers do: its own wake-up is not measured.
    busy: bool,
    /// Calls until the time is over, if given, instead of `calls`.
    seconds: Option<f64>,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let mut options = Self {
            address: String::new(),
            score: false,
            sequences: 1,
            length: 128,
            vocabulary: 30_000,
            clients: 1,
            calls: 300,
            warm_up: 20,
            busy: false,
            seconds: None,
        };
        while let Some(name) = arguments.next() {
            let value = arguments
                .next()
                .ok_or_else(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--address" => options.address = value,
                "--task" => options.score = value == "score",
                "--sequences" => options.sequences = value.parse()?,
                "--length" => options.length = value.parse()?,
                "--vocabulary" => options.vocabulary = value.parse()?,
                "--clients" => options.clients = value.parse()?,
                "--calls" => options.calls = value.parse()?,
                "--warm-up" => options.warm_up = value.parse()?,
                "--busy" => options.busy = value.parse()?,
                "--seconds" => options.seconds = Some(value.parse()?),
                _ => return Err(format!("unknown option {name}").into()),
            }
        }
        if options.address.is_empty() {
            return Err("--address HOST:PORT is needed".into());
        }
        Ok(options)
    }

    fn inputs(&self, seed: u64) -> Vec<Input> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let span = u64::from(self.vocabulary.saturating_sub(FIRST_ID).max(1));
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            FIRST_ID + u32::try_from(state % span).unwrap_or(0)
        };
        let mut sequence = || -> Vec<u8> {
            (0..self.length)
                .flat_map(|_| next().to_le_bytes())
                .collect()
        };
        (0..self.sequences)
            .map(|_| Input {
                content: Some(input::Content::TokenIds(sequence().into())),
                form: TokenIdsForm::Sequence.into(),
                second_segment_start: 0,
            })
            .collect()
    }
}

struct Caller {
    client: TulipClient<Channel>,
    score: bool,
    inputs: Vec<Input>,
}

impl Caller {
    async fn new(options: &Options, seed: u64) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let channel = Endpoint::from_shared(format!("http://{}", options.address))?
            .tcp_nodelay(true)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .connect()
            .await?;
        let client = TulipClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        Ok(Self {
            client,
            score: options.score,
            inputs: options.inputs(seed),
        })
    }

    async fn call(&mut self) -> Result<Timings, tonic::Status> {
        let timings = if self.score {
            let request = ScoreRequest {
                documents: self.inputs.clone(),
                ..ScoreRequest::default()
            };
            self.client.score(request).await?.into_inner().timings
        } else {
            let request = EmbedRequest {
                inputs: self.inputs.clone(),
                ..EmbedRequest::default()
            };
            self.client.embed(request).await?.into_inner().timings
        };
        Ok(timings.unwrap_or_default())
    }
}

/// Milliseconds.
#[derive(Default)]
struct Measured {
    calls: Vec<f64>,
    compute: Vec<f64>,
    queue: Vec<f64>,
    /// From the arrival of a call at the server to its answer.
    server: Vec<f64>,
    /// From the first measured call to the end of the last.
    elapsed: Duration,
}

async fn measure(options: &Options, seed: u64) -> Result<Measured, Box<dyn Error + Send + Sync>> {
    let mut caller = Caller::new(options, seed).await?;
    for _ in 0..options.warm_up {
        caller.call().await?;
    }
    let mut measured = Measured::default();
    let begin = Instant::now();
    let more = |done: usize| match options.seconds {
        Some(seconds) => begin.elapsed() < Duration::from_secs_f64(seconds),
        None => done < options.calls,
    };
    while more(measured.calls.len()) {
        let started = Instant::now();
        let timings = caller.call().await?;
        measured.calls.push(started.elapsed().as_secs_f64() * 1e3);
        measured.compute.push(timings.compute_us as f64 / 1e3);
        measured.queue.push(timings.queue_us as f64 / 1e3);
        measured.server.push(timings.total_us as f64 / 1e3);
    }
    measured.elapsed = begin.elapsed();
    Ok(measured)
}

fn percentile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    let at = (values.len() as f64 * share) as usize;
    values.get(at.min(last)).copied().unwrap_or(f64::NAN)
}

/// One thread: the client's own hand-overs are not what is measured.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let options: &'static Options = Box::leak(Box::new(Options::parse(std::env::args().skip(1))?));
    if options.busy {
        tokio::spawn(async {
            loop {
                tokio::task::yield_now().await;
            }
        });
    }
    let tasks: Vec<_> = (0..options.clients)
        .map(|client| tokio::spawn(measure(options, client as u64 + 1)))
        .collect();
    let mut all = Measured::default();
    for task in tasks {
        let measured = task.await?.map_err(|error| error.to_string())?;
        all.calls.extend(measured.calls);
        all.compute.extend(measured.compute);
        all.queue.extend(measured.queue);
        all.server.extend(measured.server);
        all.elapsed = all.elapsed.max(measured.elapsed);
    }
    let seconds = all.elapsed.as_secs_f64();
    let tokens = (all.calls.len() * options.sequences * options.length) as f64;
    println!(
        "{{\"sequences\": {}, \"length\": {}, \"clients\": {}, \"calls\": {}, \"p50_ms\": {:.3}, \"p99_ms\": {:.3}, \
         \"compute_p50_ms\": {:.3}, \"queue_p50_ms\": {:.3}, \"server_p50_ms\": {:.3}, \"ktok_per_s\": {:.1}}}",
        options.sequences,
        options.length,
        options.clients,
        all.calls.len(),
        percentile(&mut all.calls, 0.5),
        percentile(&mut all.calls, 0.99),
        percentile(&mut all.compute, 0.5),
        percentile(&mut all.queue, 0.5),
        percentile(&mut all.server, 0.5),
        tokens / seconds / 1e3,
    );
    Ok(())
}
