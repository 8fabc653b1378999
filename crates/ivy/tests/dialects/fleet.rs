//! The gateway that tokenizes itself and asks over the network answers as the one in the process.

use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use ivy::GatewayConfig;
use ivy::backend::{Backend, ReplicaLoad};
use ivy::model::Model;
use serde_json::{Value, json};
use tokio::time::Instant;
use tonic::Status;
use tulip::config::ServerConfig;
use tulip::engine::Task;
use tulip::fake_engine::FakeEngine;
use tulip_proto::v1::{
    EmbedRequest, EmbedResponse, Input, ScoreRequest, ScoreResponse, TokenIdsForm, TokenizeRequest,
    TokenizeResponse, input,
};

use crate::support::{Answer, TestGateway, classifier, embedder, info, reranker};

/// What a client sees, without the times.
fn seen(answer: &Answer) -> (u16, Value, [String; 5]) {
    let mut body: Value = serde_json::from_slice(&answer.body).unwrap();
    if let Some(created) = body.get_mut("created") {
        created.take();
    }
    let headers = [
        "x-truncated",
        "x-item-errors",
        "x-compute-tokens",
        "x-compute-characters",
        "x-model-fingerprint",
    ];
    (
        answer.status.as_u16(),
        body,
        headers.map(|name| answer.header(name).to_owned()),
    )
}

async fn compare(start: fn() -> TestGateway, requests: &[(&str, Value)]) {
    let local = start();
    let remote = start().over_the_network().await;
    for (path, body) in requests {
        let expected = local.post(path, body).await;
        let found = remote.post(path, body).await;
        assert_eq!(seen(&found), seen(&expected), "{path} {body}");
    }
}

#[tokio::test]
async fn rerankers() {
    let long = "w2 ".repeat(600);
    let requests = [
        (
            "/v2/rerank",
            json!({"query": "w1", "documents": ["w2", "w3 w4", "w5", "w5"]}),
        ),
        (
            "/v2/rerank",
            json!({"query": "w1", "documents": ["w2 w3", "w4"], "max_tokens_per_doc": 1}),
        ),
        (
            "/v2/rerank",
            json!({"query": "w1", "documents": ["w2", long, ""]}),
        ),
        (
            "/v1/rerank",
            json!({"query": "w1", "documents": ["w2", long], "truncation": false}),
        ),
        ("/v1/rerank", json!({"query": long, "documents": ["w2"]})),
        (
            "/rerank",
            json!({"query": "w1", "texts": ["w2", long], "truncation_direction": "left"}),
        ),
        (
            "/rerank",
            json!({"query": "w1", "texts": ["w2", long], "truncate": false}),
        ),
        (
            "/score",
            json!({"text_1": ["w1", "w2"], "text_2": ["w3", "w4"], "use_activation": false}),
        ),
        (
            "/score",
            json!({"text_1": "w1 w2 w3", "text_2": "w4", "max_tokens_per_query": 2}),
        ),
        (
            "/score",
            json!({"text_1": "w1", "text_2": "w4", "instruction": "judge"}),
        ),
        ("/predict", json!({"inputs": [["w1", "w2"], ["w1", "w3"]]})),
    ];
    compare(reranker, &requests).await;
}

#[tokio::test]
async fn embedders() {
    let long = "w2 ".repeat(600);
    let requests = [
        ("/v1/embeddings", json!({"input": ["w1", "w2 w3", ""]})),
        ("/v1/embeddings", json!({"input": [[6, 7], [4, 100]]})),
        (
            "/v1/embeddings",
            json!({"input": [6, 7], "encoding_format": "base64"}),
        ),
        ("/v1/embeddings", json!({"input": ["w1", long]})),
        (
            "/v1/embeddings",
            json!({"input": "w5", "input_type": "query"}),
        ),
        (
            "/v1/embeddings",
            json!({"input": "w5", "input_type": "document"}),
        ),
        (
            "/v1/embeddings",
            json!({"input": "w5", "task": "sts", "dimensions": 2}),
        ),
        (
            "/v2/embed",
            json!({"texts": ["w1 w2 w3"], "truncate": "START", "max_tokens": 4}),
        ),
        (
            "/v2/embed",
            json!({"texts": ["w1 w2 w3"], "truncate": "NONE", "max_tokens": 4}),
        ),
        ("/embed", json!({"inputs": "w5", "prompt_name": "nothing"})),
        (
            "/embed",
            json!({"inputs": ["w5", "w6"], "prompt_name": "query"}),
        ),
        (
            "/similarity",
            json!({"inputs": {"source_sentence": "w1", "sentences": ["w1", "w2"]}}),
        ),
        ("/rerank", json!({"query": "w1", "texts": ["w2", "w3"]})),
        ("/tokenize", json!({"inputs": "w1 zz"})),
        ("/decode", json!({"ids": [2, 5, 6, 3]})),
    ];
    compare(embedder, &requests).await;
}

#[tokio::test]
async fn classifiers() {
    let requests = [
        (
            "/predict",
            json!({"inputs": [["w1"], ["w1", "w2"], ["w2 w3"]]}),
        ),
        (
            "/predict",
            json!({"inputs": ["w1", "w2"], "raw_scores": true}),
        ),
        (
            "/v2/rerank",
            json!({"query": "w1", "documents": ["w2", "w3"]}),
        ),
    ];
    compare(classifier, &requests).await;
}

/// Looks at what goes to the replicas.
struct Spy {
    inner: Arc<dyn Backend>,
    documents: Mutex<Vec<Input>>,
}

impl Backend for Spy {
    fn score(
        &self,
        request: ScoreRequest,
        deadline: Instant,
    ) -> BoxFuture<'_, Result<ScoreResponse, Status>> {
        assert_eq!(request.query, None);
        self.documents
            .lock()
            .unwrap()
            .extend(request.documents.clone());
        self.inner.score(request, deadline)
    }

    fn embed(
        &self,
        request: EmbedRequest,
        deadline: Instant,
    ) -> BoxFuture<'_, Result<EmbedResponse, Status>> {
        self.inner.embed(request, deadline)
    }

    fn tokenize(
        &self,
        request: TokenizeRequest,
        deadline: Instant,
    ) -> BoxFuture<'_, Result<TokenizeResponse, Status>> {
        self.inner.tokenize(request, deadline)
    }

    fn model(&self, name: &str) -> Result<Arc<Model>, Status> {
        self.inner.model(name)
    }

    fn models(&self) -> Vec<Arc<Model>> {
        self.inner.models()
    }

    fn load(&self) -> Vec<ReplicaLoad> {
        self.inner.load()
    }
}

#[tokio::test]
async fn replicas_get_whole_sequences() {
    let gateway = reranker();
    let inner = gateway.fleet().await;
    let spy = Arc::new(Spy {
        inner,
        documents: Mutex::default(),
    });
    let gateway = gateway.with_backend(Arc::clone(&spy) as Arc<dyn Backend>);
    let body = json!({"query": "w1", "documents": ["w2", "w3 w4"], "max_tokens_per_doc": 1});
    let answer = gateway.post("/v2/rerank", body).await;
    answer.json(200);
    assert_eq!(answer.header("x-truncated"), "1:2>1");
    let sequence = |document: u8| Input {
        content: Some(input::Content::TokenIds(
            [2, 5, 3, document, 3]
                .iter()
                .flat_map(|&id| u32::from(id).to_le_bytes())
                .collect(),
        )),
        form: TokenIdsForm::Sequence.into(),
        second_segment_start: 3,
    };
    assert_eq!(*spy.documents.lock().unwrap(), [sequence(6), sequence(7)]);
}

#[tokio::test]
async fn what_no_queue_can_hold_is_refused_by_its_tokens() {
    let mut config = ServerConfig::default();
    config.scheduler.max_queued_tokens = 39;
    let engine = FakeEngine::new(info(Task::Score, 1));
    let gateway = TestGateway::with(engine, config, GatewayConfig::default());
    let gateway = gateway.over_the_network().await;
    // [CLS] w1 [SEP] w2 [SEP], eight times.
    let body =
        json!({"query": "w1", "documents": ["w2", "w2", "w2", "w2", "w2", "w2", "w2", "w2"]});
    let answer = gateway.post("/v2/rerank", body).await;
    let message = "invalid request: request: has 40 tokens, limit max_queued_tokens=39";
    assert_eq!(answer.json(400), json!({"id": "r1", "message": message}));
    let body = json!({"query": "w1", "documents": ["w2", "w2", "w2", "w2", "w2", "w2", "w2"]});
    gateway.post("/v2/rerank", body).await.json(200);
}
