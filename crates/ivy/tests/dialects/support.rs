//! A gateway in front of a server in this process, and short ways to ask it.

use std::sync::Arc;
use std::thread::JoinHandle;

use axum::Router;
use axum::body::Body;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use ivy::{Backend, Fleet, FleetConfig, GatewayConfig, Local};
use serde_json::Value;
use tower::ServiceExt as _;
use tulip::config::ServerConfig;
use tulip::dispatch::{Dispatch, RunEnd};
use tulip::engine::{ModelInfo, Task};
use tulip::fake_engine::FakeEngine;
use tulip::server::Server;

/// `w0` … `w95` are tokens 4 … 99; `[CLS]` is 2, `[SEP]` is 3.
pub(crate) const TOKENIZER: &[u8] =
    include_bytes!("../../../tulip/tests/fixtures/words.tokenizer.json");

pub(crate) fn info(task: Task, width: usize) -> ModelInfo {
    ModelInfo {
        vocab_size: 100,
        ..FakeEngine::model_info(task, width, TOKENIZER)
    }
}

/// A cross-encoder with one score.
pub(crate) fn reranker() -> TestGateway {
    TestGateway::start(info(Task::Score, 1))
}

/// An embedding model of four dimensions that may be cut to two.
pub(crate) fn embedder() -> TestGateway {
    let mut info = info(Task::Embed, 4);
    info.matryoshka_dimensions = vec![2];
    let prompts = [("query", "w1 "), ("document", "w2 "), ("sts", "w3 ")];
    info.prompts.named = prompts
        .map(|(name, prompt)| (name.to_owned(), prompt.to_owned()))
        .into();
    TestGateway::start(info)
}

/// A classifier with three labels.
pub(crate) fn classifier() -> TestGateway {
    let mut info = info(Task::Classify, 3);
    info.labels = ["bad", "good", "fine"].map(str::to_owned).to_vec();
    TestGateway::start(info)
}

pub(crate) struct TestGateway {
    app: Router,
    pub(crate) server: Server,
    dispatch: Dispatch,
    engine: Option<JoinHandle<RunEnd>>,
}

/// Status, headers and body of an answer.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The body with its numbers rounded to four digits, after checking the status.
    #[track_caller]
    pub(crate) fn json(&self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text());
        assert_eq!(self.headers["content-type"], "application/json");
        rounded(serde_json::from_slice(&self.body).unwrap())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }
}

fn rounded(value: Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => {
            let number = number.as_f64().unwrap();
            ((number * 1e4).round() / 1e4).into()
        }
        Value::Array(values) => values.into_iter().map(rounded).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter();
            fields.map(|(key, value)| (key, rounded(value))).collect()
        }
        other => other,
    }
}

impl TestGateway {
    pub(crate) fn start(info: ModelInfo) -> Self {
        Self::with(
            FakeEngine::new(info),
            ServerConfig::default(),
            GatewayConfig::default(),
        )
    }

    pub(crate) fn with_config(info: ModelInfo, gateway: GatewayConfig) -> Self {
        Self::with(FakeEngine::new(info), ServerConfig::default(), gateway)
    }

    pub(crate) fn with(
        mut engine: FakeEngine,
        config: ServerConfig,
        gateway: GatewayConfig,
    ) -> Self {
        use tulip::engine::Engine as _;

        let mut started = Self::loading(config, gateway);
        let info = engine.info().clone();
        let dispatch = started.dispatch.clone();
        started.engine = Some(std::thread::spawn(move || dispatch.run(&mut engine)));
        started
            .server
            .set_model(info, started.dispatch.clone())
            .unwrap();
        started
    }

    /// A server that serves nothing yet.
    pub(crate) fn loading(config: ServerConfig, gateway: GatewayConfig) -> Self {
        let config = ServerConfig {
            grpc_address: ([127, 0, 0, 1], 0).into(),
            ..config
        };
        let dispatch = Dispatch::new(config.scheduler.clone());
        let server = Server::bind(config).unwrap();
        let service = server.in_process();
        let load = service.clone();
        let backend = Arc::new(Local::new(service).with_load(move || load.load()));
        Self {
            app: ivy::server::app(gateway, backend).unwrap(),
            server,
            dispatch,
            engine: None,
        }
    }

    /// The same server behind a gateway that reaches it over the network, and tokenizes itself.
    pub(crate) async fn over_the_network(self) -> Self {
        let fleet = self.fleet().await;
        self.with_backend(fleet)
    }

    pub(crate) async fn fleet(&self) -> Arc<Fleet> {
        let replica = self.server.local_addr().to_string();
        let config = FleetConfig {
            replicas: vec![replica.parse().unwrap()],
            ..FleetConfig::default()
        };
        let fleet = Arc::new(Fleet::start(config).unwrap());
        fleet.ready().await;
        fleet
    }

    pub(crate) fn with_backend(mut self, backend: Arc<dyn Backend>) -> Self {
        self.app = ivy::server::app(GatewayConfig::default(), backend).unwrap();
        self
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.app.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        Answer {
            status: parts.status,
            headers: parts.headers,
            body: body.collect().await.unwrap().to_bytes().to_vec(),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(request("GET", path, &[], String::new())).await
    }

    pub(crate) async fn post(&self, path: &str, body: impl ToString) -> Answer {
        self.post_with(path, &[], body).await
    }

    pub(crate) async fn post_with(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: impl ToString,
    ) -> Answer {
        self.send(request("POST", path, headers, body.to_string()))
            .await
    }
}

pub(crate) fn request(
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: String,
) -> Request<Body> {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("x-request-id", "r1");
    if !headers.iter().any(|(name, _)| *name == "content-type") && method == "POST" {
        request = request.header("content-type", "application/json");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::from(body)).unwrap()
}

impl Drop for TestGateway {
    fn drop(&mut self) {
        self.dispatch.abort("the test is over");
        if std::thread::panicking() {
            return;
        }
        if let Some(engine) = self.engine.take() {
            engine.join().unwrap();
        }
    }
}
