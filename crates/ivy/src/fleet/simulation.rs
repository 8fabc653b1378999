//! Replicas without a network, under a paused clock: rates, queues and faults as a test wants them.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Status};
use tulip_proto::v1::*;

use crate::fleet::{Fleet, FleetConfig};
use crate::replica::connection::{Answer, Connect, Connection, Target};
use crate::resolve::{ReplicaName, Resolve};

const TOKENIZER: &[u8] = include_bytes!("../../../tulip/tests/fixtures/words.tokenizer.json");

/// One simulated replica: answers one call after the other, at its rate.
#[derive(Clone)]
pub(crate) struct Host(pub(crate) Arc<Mutex<HostState>>);

pub(crate) struct HostState {
    pub(crate) tokens_per_second: f64,
    pub(crate) model: GetModelResponse,
    /// What the next calls are answered with instead.
    pub(crate) script: VecDeque<Status>,
    /// What every call is answered with instead.
    pub(crate) always: Option<Status>,
    /// Said in every load report.
    pub(crate) draining: bool,
    /// The next call never ends.
    pub(crate) stall: bool,
    /// Documents or inputs of the calls so far.
    pub(crate) calls: Vec<usize>,
    /// Calls dropped before they ended.
    pub(crate) cancelled: usize,
    pub(crate) times_connected: usize,
    busy_until: Option<Instant>,
    queued_tokens: u64,
    alive: bool,
    /// Ends the connections there are.
    killed: CancellationToken,
}

impl Host {
    pub(crate) fn new(tokens_per_second: f64) -> Self {
        Self(Arc::new(Mutex::new(HostState {
            tokens_per_second,
            model: model("model", "one"),
            script: VecDeque::new(),
            always: None,
            draining: false,
            stall: false,
            calls: Vec::new(),
            cancelled: 0,
            times_connected: 0,
            busy_until: None,
            queued_tokens: 0,
            alive: true,
            killed: CancellationToken::new(),
        })))
    }

    /// Serves another model, or another version of it.
    pub(crate) fn serving(self, name: &str, fingerprint: &str) -> Self {
        self.0.lock().model = model(name, fingerprint);
        self
    }

    pub(crate) fn kill(&self) {
        let mut state = self.0.lock();
        state.alive = false;
        state.killed.cancel();
    }

    pub(crate) fn revive(&self) {
        let mut state = self.0.lock();
        state.alive = true;
        state.killed = CancellationToken::new();
        state.busy_until = None;
        state.queued_tokens = 0;
    }

    pub(crate) fn items(&self) -> usize {
        self.0.lock().calls.iter().sum()
    }

    /// Computes for as long as it takes; the state when it is done.
    async fn compute(
        &self,
        killed: &CancellationToken,
        items: usize,
        tokens: u64,
    ) -> Result<(Timings, LoadReport, String), Status> {
        let finish = {
            let mut state = self.0.lock();
            state.calls.push(items);
            let scripted = state.script.pop_front();
            if let Some(status) = scripted.or_else(|| state.always.clone()) {
                return Err(status);
            }
            let now = Instant::now();
            let seconds = tokens as f64 / state.tokens_per_second;
            let begin = state.busy_until.map_or(now, |busy| busy.max(now));
            let finish = begin + Duration::from_secs_f64(seconds);
            if std::mem::take(&mut state.stall) {
                None
            } else {
                state.busy_until = Some(finish);
                state.queued_tokens += tokens;
                Some(finish)
            }
        };
        let mut leaving = Leaving(Some(self.clone()));
        tokio::select! {
            () = async {
                match finish {
                    Some(finish) => sleep_until(finish).await,
                    None => std::future::pending().await,
                }
            } => {}
            () = killed.cancelled() => {
                leaving.0 = None;
                return Err(broken());
            }
        }
        leaving.0 = None;
        let mut state = self.0.lock();
        state.queued_tokens = state.queued_tokens.saturating_sub(tokens);
        let report = LoadReport {
            queued_tokens: state.queued_tokens,
            tokens_per_second: state.tokens_per_second as u64,
            draining: state.draining,
            ..LoadReport::default()
        };
        let compute_us = (tokens as f64 / state.tokens_per_second * 1e6) as u64;
        let timings = Timings {
            compute_us,
            ..Timings::default()
        };
        Ok((timings, report, state.model.fingerprint.clone()))
    }
}

/// Counts a call that is dropped.
struct Leaving(Option<Host>);

impl Drop for Leaving {
    fn drop(&mut self) {
        if let Some(host) = &self.0 {
            host.0.lock().cancelled += 1;
        }
    }
}

pub(crate) fn model(name: &str, fingerprint: &str) -> GetModelResponse {
    let mut sha256 = String::new();
    for byte in Sha256::digest(TOKENIZER) {
        write!(sha256, "{byte:02x}").unwrap();
    }
    GetModelResponse {
        model: name.into(),
        task: Task::Score.into(),
        limits: Some(Limits {
            max_sequence_tokens: 512,
            max_items_per_request: 10_000,
            ..Limits::default()
        }),
        vocab_size: 100,
        tokenizer: Some(Tokenizer {
            tokenizer_json: Bytes::from_static(TOKENIZER),
            sha256,
        }),
        fingerprint: fingerprint.into(),
        ..GetModelResponse::default()
    }
}

/// As the transport reports a connection that broke.
pub(crate) fn broken() -> Status {
    let mut status = Status::unknown("transport error");
    let error = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    status.set_source(Arc::new(error));
    status
}

struct Connected {
    host: Host,
    killed: CancellationToken,
}

fn packed(input: &Input) -> &[u8] {
    match &input.content {
        Some(input::Content::TokenIds(packed)) => packed,
        _ => &[],
    }
}

/// The score is the first token id: what came back for whom can be seen. 0 = a bad document.
fn score(input: &Input) -> f32 {
    let id = packed(input)
        .first_chunk()
        .map(|id| u32::from_le_bytes(*id));
    id.unwrap_or(0) as f32
}

impl Connection for Connected {
    fn score(&self, call: Request<ScoreRequest>) -> Answer<ScoreResponse> {
        let (host, killed) = (self.host.clone(), self.killed.clone());
        let request = call.into_inner();
        Box::pin(async move {
            let documents = &request.documents;
            let tokens = documents.iter().map(|d| packed(d).len() as u64 / 4).sum();
            let computed = host.compute(&killed, documents.len(), tokens).await?;
            let (timings, load, fingerprint) = computed;
            let scores: Vec<f32> = documents.iter().map(score).collect();
            let bad = (0..).zip(&scores).filter(|(_, score)| **score == 0.0);
            let item_error = |(index, _): (u32, &f32)| ItemError {
                index,
                reason: ErrorReason::InvalidInput.into(),
                message: format!("documents[{index}]: is empty"),
            };
            let item_errors: Vec<ItemError> = bad.map(item_error).collect();
            if request.strict
                && let Some(error) = item_errors.first()
            {
                return Err(Status::invalid_argument(error.message.clone()));
            }
            let report = |index, role: InputRole, tokens_used| TruncationReport {
                index,
                role: role.into(),
                tokens_given: 600,
                tokens_used,
                side: TruncationSide::Right.into(),
            };
            Ok(ScoreResponse {
                request_id: request.request_id,
                model: request.model,
                // The last document, and the query by as much as there are documents.
                truncations: vec![
                    report(documents.len() as u32 - 1, InputRole::Document, 500),
                    report(0, InputRole::Query, 2048 - documents.len() as u32),
                ],
                ranking: Vec::new(),
                scores,
                item_errors,
                usage: Some(Usage {
                    input_tokens: tokens,
                    padding_tokens: 1,
                    sequences: documents.len() as u32,
                }),
                timings: Some(timings),
                load: Some(load),
                fingerprint,
                ..ScoreResponse::default()
            })
        })
    }

    fn embed(&self, call: Request<EmbedRequest>) -> Answer<EmbedResponse> {
        let (host, killed) = (self.host.clone(), self.killed.clone());
        let request = call.into_inner();
        Box::pin(async move {
            let inputs = &request.inputs;
            let tokens = inputs.iter().map(|i| packed(i).len() as u64 / 4).sum();
            let computed = host.compute(&killed, inputs.len(), tokens).await?;
            let (timings, load, fingerprint) = computed;
            let rows = inputs.iter().flat_map(|i| [score(i), -score(i)]);
            // As many entries as the input has tokens, at most 3.
            let entries = |input: &Input| (packed(input).len() / 4).min(3) as u32;
            let mut row_offsets = vec![0];
            let mut values = Vec::new();
            for input in inputs {
                values.extend((0..entries(input)).map(|_| score(input)));
                row_offsets.push(values.len() as u32);
            }
            let tensor = |values: Vec<f32>, width| Tensor {
                shape: vec![values.len() as u32 / width, width],
                data: values
                    .iter()
                    .flat_map(|value| value.to_le_bytes())
                    .collect(),
                dtype: DType::DtypeFloat32.into(),
            };
            Ok(EmbedResponse {
                embeddings: Some(tensor(rows.collect(), 2)),
                timings: Some(timings),
                load: Some(load),
                fingerprint,
                sparse: Some(SparseVectors {
                    row_offsets: row_offsets.clone(),
                    indices: (0..values.len() as u32).collect(),
                    values: values.clone(),
                }),
                tokens: Some(TokenVectors {
                    row_offsets,
                    vectors: Some(tensor(values, 1)),
                }),
                ..EmbedResponse::default()
            })
        })
    }

    fn tokenize(&self, call: Request<TokenizeRequest>) -> Answer<TokenizeResponse> {
        let (host, killed) = (self.host.clone(), self.killed.clone());
        Box::pin(async move {
            let inputs = call.into_inner().inputs;
            host.compute(&killed, inputs.len(), 0).await?;
            Ok(TokenizeResponse {
                sequences: vec![TokenizedInput::default(); inputs.len()],
                ..TokenizeResponse::default()
            })
        })
    }

    fn get_model(&self, call: Request<GetModelRequest>) -> Answer<GetModelResponse> {
        let mut info = self.host.0.lock().model.clone();
        let killed = self.killed.is_cancelled();
        Box::pin(async move {
            if killed {
                return Err(broken());
            }
            if !call.into_inner().include_tokenizer
                && let Some(tokenizer) = &mut info.tokenizer
            {
                tokenizer.tokenizer_json = Bytes::new();
            }
            Ok(info)
        })
    }
}

/// All hosts there are, at ports 1, 2, 3 … of one address.
struct Network(HashMap<SocketAddr, Host>);

impl Connect for Network {
    fn connect<'a>(
        &'a self,
        target: &'a Target,
    ) -> BoxFuture<'a, Result<Arc<dyn Connection>, String>> {
        Box::pin(async move {
            let host = self.0.get(&target.address).ok_or("no such host")?;
            let mut state = host.0.lock();
            if !state.alive {
                return Err("connection refused".into());
            }
            state.times_connected += 1;
            let connection: Arc<dyn Connection> = Arc::new(Connected {
                host: host.clone(),
                killed: state.killed.clone(),
            });
            Ok(connection)
        })
    }
}

/// Names as a test wants them.
#[derive(Clone, Default)]
pub(crate) struct Names(pub(crate) Arc<Mutex<Vec<u16>>>);

impl Resolve for Names {
    fn resolve<'a>(
        &'a self,
        _name: &'a ReplicaName,
    ) -> BoxFuture<'a, std::io::Result<Vec<SocketAddr>>> {
        let ports = self.0.lock().clone();
        Box::pin(async move {
            if ports.is_empty() {
                return Err(std::io::Error::from(std::io::ErrorKind::NotFound));
            }
            Ok(ports.into_iter().map(address).collect())
        })
    }
}

fn address(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

fn network(hosts: &[Host]) -> Arc<dyn Connect> {
    let hosts = (1..).map(address).zip(hosts.iter().cloned());
    Arc::new(Network(hosts.collect()))
}

/// A fleet of these hosts, given by address.
pub(crate) fn fleet(hosts: &[Host], change: impl FnOnce(&mut FleetConfig)) -> Fleet {
    let name = |port: usize| format!("127.0.0.1:{port}").parse().unwrap();
    let mut config = FleetConfig {
        replicas: (1..=hosts.len()).map(name).collect(),
        ..FleetConfig::default()
    };
    change(&mut config);
    Fleet::with(config, network(hosts), Arc::new(Names::default())).unwrap()
}

/// A fleet of those hosts that `names` gives.
pub(crate) fn named_fleet(hosts: &[Host], names: &Names) -> Fleet {
    let config = FleetConfig {
        replicas: vec!["replicas:1".parse().unwrap()],
        ..FleetConfig::default()
    };
    Fleet::with(config, network(hosts), Arc::new(names.clone())).unwrap()
}

/// A complete sequence whose first token is `id`.
pub(crate) fn sequence(id: u32, tokens: usize) -> Input {
    let mut packed = vec![0; 4 * tokens];
    packed[..4].copy_from_slice(&id.to_le_bytes());
    Input {
        content: Some(input::Content::TokenIds(packed.into())),
        form: TokenIdsForm::Sequence.into(),
        second_segment_start: 0,
    }
}

/// Documents with the ids 1, 2, 3 ….
pub(crate) fn score_request(documents: u32, tokens: usize) -> ScoreRequest {
    ScoreRequest {
        documents: (1..=documents).map(|id| sequence(id, tokens)).collect(),
        ..ScoreRequest::default()
    }
}

/// Waits until `count` replicas are in use.
pub(crate) async fn until_ready(fleet: &Fleet, count: usize) {
    use crate::backend::{Backend as _, ReplicaState};
    let ready = |fleet: &Fleet| {
        let load = fleet.load().into_iter();
        load.filter(|replica| replica.state == ReplicaState::Ready)
            .count()
    };
    let mut changed = fleet.registry.subscribe();
    while ready(fleet) != count {
        changed.changed().await.unwrap();
    }
}

/// Far enough that it never comes.
pub(crate) fn late() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}
