//! A server on a free port, with its engine thread, and short ways to build requests.

use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use tonic::transport::{Channel, Endpoint};
use tulip::config::ServerConfig;
use tulip::dispatch::{Dispatch, RunEnd};
use tulip::engine::{ModelInfo, Task};
use tulip::fake_engine::FakeEngine;
use tulip::sequence::Sequence;
use tulip::server::Server;
use tulip_proto::v1::tulip_client::TulipClient;
use tulip_proto::v1::{EmbedRequest, Input, ScoreRequest, TokenIdsForm, input};

/// `w0` … `w95` are tokens 4 … 99; `[CLS]` is 2, `[SEP]` is 3.
pub(crate) const TOKENIZER: &[u8] = include_bytes!("../fixtures/words.tokenizer.json");

pub(crate) const CLS: u32 = 2;
pub(crate) const SEP: u32 = 3;

/// Token id of the word `w{number}`.
pub(crate) const fn word(number: u32) -> u32 {
    4 + number
}

pub(crate) fn info(task: Task, width: usize) -> ModelInfo {
    ModelInfo {
        vocab_size: 100,
        ..FakeEngine::model_info(task, width, TOKENIZER)
    }
}

pub(crate) fn config() -> ServerConfig {
    ServerConfig {
        grpc_address: ([127, 0, 0, 1], 0).into(),
        ..ServerConfig::default()
    }
}

pub(crate) struct TestServer {
    pub(crate) server: Server,
    pub(crate) dispatch: Dispatch,
    engine: Option<JoinHandle<RunEnd>>,
}

impl TestServer {
    pub(crate) fn start(engine: FakeEngine) -> Self {
        Self::with_config(engine, config())
    }

    /// A server that serves nothing yet.
    pub(crate) fn loading(config: ServerConfig) -> Self {
        let dispatch = Dispatch::new(config.scheduler.clone());
        Self {
            server: Server::bind(config).unwrap(),
            dispatch,
            engine: None,
        }
    }

    pub(crate) fn with_config(engine: FakeEngine, config: ServerConfig) -> Self {
        let mut server = Self::loading(config);
        server.load(engine);
        server
    }

    pub(crate) fn load(&mut self, mut engine: FakeEngine) {
        use tulip::engine::Engine as _;
        let info = engine.info().clone();
        let dispatch = self.dispatch.clone();
        self.engine = Some(std::thread::spawn(move || dispatch.run(&mut engine)));
        self.server.set_model(info, self.dispatch.clone()).unwrap();
    }

    pub(crate) async fn channel(&self) -> Channel {
        let uri = format!("http://{}", self.server.local_addr());
        Endpoint::from_shared(uri)
            .unwrap()
            .tcp_nodelay(true)
            .connect()
            .await
            .unwrap()
    }

    pub(crate) async fn client(&self) -> TulipClient<Channel> {
        TulipClient::new(self.channel().await).max_decoding_message_size(usize::MAX)
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.dispatch.abort("the test is over");
        if std::thread::panicking() {
            return; // A gate may still be shut.
        }
        if let Some(engine) = self.engine.take() {
            engine.join().unwrap();
        }
    }
}

pub(crate) fn text(text: impl Into<String>) -> Input {
    Input {
        content: Some(input::Content::Text(text.into())),
        ..Input::default()
    }
}

pub(crate) fn packed(token_ids: &[u32]) -> Bytes {
    token_ids.iter().flat_map(|id| id.to_le_bytes()).collect()
}

pub(crate) fn segment(token_ids: &[u32]) -> Input {
    Input {
        content: Some(input::Content::TokenIds(packed(token_ids))),
        ..Input::default()
    }
}

pub(crate) fn sequence(token_ids: &[u32], second_segment_start: u32) -> Input {
    Input {
        form: TokenIdsForm::Sequence.into(),
        second_segment_start,
        ..segment(token_ids)
    }
}

pub(crate) fn score_request<D: Into<String>>(
    query: &str,
    documents: impl IntoIterator<Item = D>,
) -> ScoreRequest {
    ScoreRequest {
        query: Some(text(query)),
        documents: documents.into_iter().map(text).collect(),
        ..ScoreRequest::default()
    }
}

pub(crate) fn embed_request<D: Into<String>>(inputs: impl IntoIterator<Item = D>) -> EmbedRequest {
    EmbedRequest {
        inputs: inputs.into_iter().map(text).collect(),
        ..EmbedRequest::default()
    }
}

/// The row that the engine gives for a pair of word lists.
pub(crate) fn pair_row(info: &ModelInfo, query: &[u32], document: &[u32]) -> Vec<f32> {
    let mut token_ids = vec![CLS];
    token_ids.extend(query);
    token_ids.push(SEP);
    let second_segment_start = token_ids.len() as u32;
    token_ids.extend(document);
    token_ids.push(SEP);
    FakeEngine::row(
        info,
        &Sequence {
            token_ids,
            second_segment_start,
        },
    )
}

/// The row that the engine gives for one word list.
pub(crate) fn single_row(info: &ModelInfo, tokens: &[u32]) -> Vec<f32> {
    FakeEngine::row(info, &[&[CLS], tokens, &[SEP]].concat().into())
}

pub(crate) fn sigmoid(logit: f32) -> f32 {
    1.0 / (1.0 + (-logit).exp())
}

pub(crate) fn float32(data: &[u8]) -> Vec<f32> {
    data.chunks_exact(4)
        .map(|chunk| f32::from_le_bytes(chunk.try_into().unwrap()))
        .collect()
}

pub(crate) fn assert_close(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    for (index, (a, b)) in found.iter().zip(expected).enumerate() {
        assert!((a - b).abs() < 1e-6, "value {index} is {a}, expected {b}");
    }
}

/// Long enough that only a hang reaches it.
pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), work)
        .await
        .unwrap()
}
