//! The server around the routes, over real sockets: drain, clients that leave or are silent, TLS.

#![allow(clippy::unwrap_used)] // of what the tests themselves made

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ivy::{GatewayConfig, Local, Server, TlsConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio_rustls::TlsConnector;
use tulip::config::ServerConfig;
use tulip::dispatch::{Dispatch, RunEnd};
use tulip::engine::{ModelInfo, Task};
use tulip::fake_engine::{FakeEngine, Gate};
use tulip::server::Server as Tulip;

const TOKENIZER: &[u8] = include_bytes!("../../../tulip/tests/fixtures/words.tokenizer.json");
const BODY: &str = r#"{"query": "w1", "texts": ["w2"]}"#;

struct Started {
    http: Server,
    tulip: Tulip,
    dispatch: Dispatch,
    gate: Gate,
    engine: Option<JoinHandle<RunEnd>>,
}

impl Started {
    /// Steps wait at the gate until it is opened.
    fn new(config: GatewayConfig) -> Self {
        let info = ModelInfo {
            vocab_size: 100,
            ..FakeEngine::model_info(Task::Score, 1, TOKENIZER)
        };
        let server_config = ServerConfig {
            grpc_address: ([127, 0, 0, 1], 0).into(),
            ..ServerConfig::default()
        };
        let dispatch = Dispatch::new(server_config.scheduler.clone());
        let tulip = Tulip::bind(server_config).unwrap();
        let gate = Gate::default();
        let mut engine = FakeEngine::new(info.clone()).with_gate(gate.clone());
        let running = dispatch.clone();
        let engine = std::thread::spawn(move || running.run(&mut engine));
        tulip.set_model(info, dispatch.clone()).unwrap();
        let config = GatewayConfig {
            http_address: (config.http_address.ip(), 0).into(),
            ..config
        };
        let backend = Arc::new(Local::new(tulip.in_process()));
        let http = Server::bind(config, backend, &Handle::current()).unwrap();
        Self {
            http,
            tulip,
            dispatch,
            gate,
            engine: Some(engine),
        }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.http.local_addr()).await.unwrap()
    }

    async fn wait_for_step(&self) {
        let gate = self.gate.clone();
        tokio::task::spawn_blocking(move || gate.wait_for_step())
            .await
            .unwrap();
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.gate.open();
        self.dispatch.abort("the test is over");
        if let Some(engine) = self.engine.take() {
            let _ = engine.join();
        }
    }
}

fn post(path: &str, body: &str, more: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: ivy\r\ncontent-type: application/json\r\n{more}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Head and body of the next answer; its length is in the head.
async fn answer(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> (String, String) {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        let read = stream.read_buf(&mut bytes).await.unwrap();
        assert!(
            read > 0,
            "closed after {:?}",
            String::from_utf8_lossy(&bytes)
        );
    };
    let head = String::from_utf8(bytes[..end].to_vec())
        .unwrap()
        .to_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.map_or(0, |length| length.parse().unwrap());
    while bytes.len() < end + length {
        assert!(stream.read_buf(&mut bytes).await.unwrap() > 0);
    }
    (head, String::from_utf8(bytes[end..].to_vec()).unwrap())
}

async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), work)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_answers_what_is_in_flight_and_takes_no_more() {
    // An address of its own: a port that is free again is soon another test's.
    let started = Started::new(GatewayConfig {
        http_address: ([127, 0, 0, 7], 0).into(),
        ..GatewayConfig::default()
    });
    let mut busy = started.connect().await;
    busy.write_all(post("/rerank", BODY, "").as_bytes())
        .await
        .unwrap();
    started.wait_for_step().await;
    let mut idle = started.connect().await;
    idle.write_all(b"GET /health HTTP/1.1\r\nhost: ivy\r\n\r\n")
        .await
        .unwrap();
    assert!(soon(answer(&mut idle)).await.0.starts_with("http/1.1 200"));

    started.http.begin_drain();
    // The idle connection ends, the busy one is waited for.
    assert_eq!(soon(idle.read(&mut [0; 8])).await.unwrap(), 0);
    let drained = started.http.shutdown(Duration::from_secs(20));
    let answered = async {
        started.gate.open();
        answer(&mut busy).await
    };
    let (clean, (head, body)) = soon(async { tokio::join!(drained, answered) }).await;
    assert!(clean);
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert!(body.starts_with(r#"[{"index":0,"score":0.15"#), "{body}");
    // Announced in the head, unless the answer was ready before the connection had heard of the drain.
    assert_eq!(soon(busy.read(&mut [0; 8])).await.unwrap(), 0);
    assert!(TcpStream::connect(started.http.local_addr()).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_does_not_wait_for_ever() {
    let started = Started::new(GatewayConfig::default());
    let mut busy = started.connect().await;
    busy.write_all(post("/rerank", BODY, "").as_bytes())
        .await
        .unwrap();
    started.wait_for_step().await;
    assert!(!soon(started.http.shutdown(Duration::from_millis(20))).await);
    assert_eq!(soon(busy.read(&mut [0; 8])).await.unwrap_or(0), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_cancels_its_work() {
    let started = Started::new(GatewayConfig::default());
    let mut first = started.connect().await;
    first
        .write_all(post("/rerank", BODY, "").as_bytes())
        .await
        .unwrap();
    started.wait_for_step().await;
    let mut leaving = started.connect().await;
    leaving
        .write_all(post("/rerank", BODY, "").as_bytes())
        .await
        .unwrap();
    let calls = |wanted: usize| {
        let started = &started;
        async move {
            while started.tulip.calls_in_flight() != wanted {
                tokio::task::yield_now().await;
            }
        }
    };
    soon(calls(2)).await;
    drop(leaving);
    // The engine still stands at the gate: only the client's leaving can have ended the call.
    soon(calls(1)).await;
    started.gate.open();
    assert!(soon(answer(&mut first)).await.0.starts_with("http/1.1 200"));
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_and_half_a_request_end_the_connection() {
    let config = GatewayConfig {
        header_timeout: Duration::from_millis(50),
        body_timeout: Duration::from_millis(50),
        ..GatewayConfig::default()
    };
    let started = Started::new(config);
    for beginning in ["", "POST /rerank HTTP/1.1\r\nhost: i"] {
        let mut stream = started.connect().await;
        stream.write_all(beginning.as_bytes()).await.unwrap();
        assert_eq!(
            soon(stream.read(&mut [0; 64])).await.unwrap_or(0),
            0,
            "{beginning:?}"
        );
    }
    // With the headers there it is the body that is late, and the client is told.
    let mut stream = started.connect().await;
    let half = post("/rerank", BODY, "");
    stream
        .write_all(&half.as_bytes()[..half.len() - 5])
        .await
        .unwrap();
    let (head, body) = soon(answer(&mut stream)).await;
    assert!(head.starts_with("http/1.1 408"), "{head}");
    assert!(body.contains("did not arrive within 50 ms"), "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_follow_each_other_on_one_connection() {
    let started = Started::new(GatewayConfig::default());
    started.gate.open();
    let mut stream = started.connect().await;
    for _ in 0..3 {
        stream
            .write_all(post("/rerank", BODY, "").as_bytes())
            .await
            .unwrap();
        assert!(
            soon(answer(&mut stream))
                .await
                .0
                .starts_with("http/1.1 200")
        );
        // A refused body does not poison the connection.
        stream
            .write_all(post("/rerank", "{", "").as_bytes())
            .await
            .unwrap();
        assert!(
            soon(answer(&mut stream))
                .await
                .0
                .starts_with("http/1.1 400")
        );
    }
}

/// A certificate for `localhost` in a folder of its own, and a client that trusts it.
fn certificate() -> (tempfile::TempDir, TlsConfig, TlsConnector) {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = TlsConfig {
        certificate: folder.path().join("certificate.pem"),
        private_key: folder.path().join("key.pem"),
    };
    std::fs::write(&config.certificate, cert.pem()).unwrap();
    std::fs::write(&config.private_key, signing_key.serialize_pem()).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (folder, config, TlsConnector::from(Arc::new(client)))
}

#[tokio::test(flavor = "multi_thread")]
async fn tls() {
    let (_folder, tls, connector) = certificate();
    let config = GatewayConfig {
        tls: Some(tls),
        ..GatewayConfig::default()
    };
    let started = Started::new(config);
    started.gate.open();
    let name = "localhost".try_into().unwrap();
    let stream = started.connect().await;
    let mut stream = soon(connector.connect(name, stream)).await.unwrap();
    stream
        .write_all(post("/rerank", BODY, "").as_bytes())
        .await
        .unwrap();
    let (head, body) = soon(answer(&mut stream)).await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert!(body.starts_with(r#"[{"index":0,"score":0.15"#), "{body}");
    // Who speaks plain HTTP to it is not answered in plain HTTP.
    let mut plain = started.connect().await;
    plain
        .write_all(post("/rerank", BODY, "").as_bytes())
        .await
        .unwrap();
    let mut bytes = Vec::new();
    let _ = soon(plain.read_to_end(&mut bytes)).await;
    assert!(!bytes.starts_with(b"HTTP"), "{bytes:?}");
}

#[tokio::test]
async fn files_that_are_no_certificates_are_named() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let refused = |certificate: &Path, private_key: &Path| {
        let config = GatewayConfig {
            http_address: ([127, 0, 0, 1], 0).into(),
            tls: Some(TlsConfig {
                certificate: certificate.into(),
                private_key: private_key.into(),
            }),
            ..GatewayConfig::default()
        };
        let tulip = Tulip::bind(ServerConfig {
            grpc_address: ([127, 0, 0, 1], 0).into(),
            ..ServerConfig::default()
        });
        let backend = Arc::new(Local::new(tulip.unwrap().in_process()));
        Server::bind(config, backend, &Handle::current())
            .unwrap_err()
            .to_string()
    };
    let missing = here.join("no-such.pem");
    assert!(refused(&missing, &missing).starts_with("tls_certificate: "));
    let other = here.join("Cargo.toml");
    assert!(refused(&other, &other).ends_with("Cargo.toml: holds no certificate"));
}
