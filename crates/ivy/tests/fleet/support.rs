//! Tulip servers on free ports, a fleet in front of them, and requests.

use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::Duration;

use ivy::backend::ReplicaState;
use ivy::{Backend as _, Fleet, FleetConfig};
use tokio::net::TcpSocket;
use tulip::config::ServerConfig;
use tulip::dispatch::{Dispatch, RunEnd};
use tulip::engine::{ModelInfo, Task};
use tulip::fake_engine::FakeEngine;
use tulip::server::Server;
use tulip_proto::v1::{Input, ScoreRequest, TokenIdsForm, input};

use crate::device::{Device, Work};

const TOKENIZER: &[u8] = include_bytes!("../../../tulip/tests/fixtures/words.tokenizer.json");

pub(crate) fn info() -> ModelInfo {
    ModelInfo {
        vocab_size: 100,
        ..FakeEngine::model_info(Task::Score, 1, TOKENIZER)
    }
}

/// A port that nobody else is given, for replicas that come and go.
pub(crate) struct Place(TcpSocket);

impl Place {
    pub(crate) fn reserve() -> Self {
        // Bound, but not listening: who asks for just this port gets it all the same.
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        Self(socket)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }
}

/// One replica. Dropping it closes its connections at once, as the end of a process does.
pub(crate) struct Replica {
    server: Server,
    dispatch: Dispatch,
    engine: Option<JoinHandle<RunEnd>>,
    work: Work,
}

impl Replica {
    /// On a free port; `token` is the time that the device takes for each.
    pub(crate) fn start(token: Duration) -> Self {
        Self::at(([127, 0, 0, 1], 0).into(), token)
    }

    pub(crate) fn at(grpc_address: SocketAddr, token: Duration) -> Self {
        let mut config = ServerConfig {
            grpc_address,
            worker_threads: 1,
            tokenizer_threads: 1,
            ..ServerConfig::default()
        };
        // Steps of some milliseconds, as on a device.
        config.scheduler.max_batch_tokens = 256;
        config.scheduler.max_batch_cost = 256;
        let dispatch = Dispatch::new(config.scheduler.clone());
        let server = Server::bind(config).unwrap();
        let work = Work::default();
        let mut device = Device::new(info(), token, work.clone());
        let running = dispatch.clone();
        let engine = Some(std::thread::spawn(move || running.run(&mut device)));
        server.set_model(info(), dispatch.clone()).unwrap();
        Self {
            server,
            dispatch,
            engine,
            work,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Tokens that it began to compute so far.
    pub(crate) fn tokens(&self) -> usize {
        self.work.started_tokens()
    }

    /// How long it computed so far, by its own clock.
    pub(crate) fn busy(&self) -> Duration {
        self.work.busy()
    }

    /// Stops as on SIGTERM: refuses new calls, finishes those it has.
    pub(crate) fn stop(&self) {
        self.server.shutdown(Duration::from_secs(10));
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.server.shutdown(Duration::ZERO);
        self.dispatch.abort("killed");
        if let Some(engine) = self.engine.take() {
            let _ = engine.join();
        }
    }
}

pub(crate) async fn fleet(
    addresses: &[SocketAddr],
    change: impl FnOnce(&mut FleetConfig),
) -> Fleet {
    let mut config = FleetConfig {
        replicas: addresses
            .iter()
            .map(|address| address.to_string().parse().unwrap())
            .collect(),
        ..FleetConfig::default()
    };
    change(&mut config);
    let fleet = Fleet::start(config).unwrap();
    until_ready(&fleet, addresses.len()).await;
    fleet
}

pub(crate) async fn until_ready(fleet: &Fleet, count: usize) {
    let ready = || {
        let load = fleet.load().into_iter();
        load.filter(|replica| replica.state == ReplicaState::Ready)
            .count()
    };
    soon(async {
        while ready() != count {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// `documents` complete sequences of `tokens` tokens, each another one.
pub(crate) fn request(documents: u32, tokens: u32) -> ScoreRequest {
    let token = |index: u32, at: u32| match at {
        0 => index % 96,
        1 => index / 96,
        _ => at % 96,
    };
    let document = |index: u32| Input {
        content: Some(input::Content::TokenIds(
            (0..tokens)
                .flat_map(|at| (4 + token(index, at)).to_le_bytes())
                .collect(),
        )),
        form: TokenIdsForm::Sequence.into(),
        second_segment_start: 0,
    };
    ScoreRequest {
        documents: (0..documents).map(document).collect(),
        raw_scores: true,
        ..ScoreRequest::default()
    }
}

/// The logits that every replica would answer, from the engine itself.
pub(crate) fn expected(request: &ScoreRequest) -> Vec<f32> {
    let info = info();
    let logit = |document: &Input| {
        let Some(input::Content::TokenIds(packed)) = &document.content else {
            panic!("not token ids");
        };
        let chunks = packed.as_chunks::<4>().0.iter();
        let ids: Vec<u32> = chunks.map(|id| u32::from_le_bytes(*id)).collect();
        FakeEngine::row(&info, &ids.into())[0]
    };
    request.documents.iter().map(logit).collect()
}

pub(crate) fn late() -> tokio::time::Instant {
    tokio::time::Instant::now() + Duration::from_secs(60)
}

/// Long enough that only a hang reaches it.
pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), work)
        .await
        .unwrap()
}
