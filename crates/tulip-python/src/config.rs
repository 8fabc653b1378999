//! Dataclasses of `rose.config` as the structs of `tulip`, field by field.

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use pyo3::prelude::*;
use tulip::batch::BatchLayout;
use tulip::config::{SchedulerConfig, ServerConfig};
use tulip::cost::CostModel;
use tulip::engine::{
    Activation, ModelInfo, Output, Outputs, Prompts, Side, Similarity, Task, Templates,
};

use crate::gateway::PyHttpConfig;
use crate::value_error;

/// At this many tokens attention costs as much as the dense layers of a 0.6B model.
const ATTENTION_PARITY_TOKENS: f64 = 4096.0;

/// `rose.config.ServeConfig`.
#[derive(FromPyObject)]
pub(crate) struct PyServeConfig {
    grpc_address: String,
    max_items_per_request: usize,
    max_message_bytes: usize,
    max_requests_per_stream: usize,
    max_queued_tokens: u64,
    bulk_share: f64,
    max_steps_in_flight: usize,
    worker_threads: usize,
    tokenizer_threads: usize,
    drain_timeout: f64,
    strict_model_name: bool,
    spin_us: Option<u64>,
    pub(crate) http: Option<PyHttpConfig>,
}

/// The part of `rose.config.EngineConfig` that batching needs.
#[derive(Clone, Copy, FromPyObject)]
pub(crate) struct PyBatchLimits {
    max_batch_tokens: usize,
    max_batch_sequences: usize,
}

/// Longer than most steps: who waits for one must not fall asleep meanwhile. Where there are cores.
const GPU_SPIN: Duration = Duration::from_millis(40);
const GPU_SPIN_CORES: usize = 8;

/// The spin where the configuration names none.
pub(crate) fn default_spin(device: &str) -> Duration {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if device.starts_with("cuda") && cores >= GPU_SPIN_CORES {
        GPU_SPIN
    } else {
        Duration::ZERO
    }
}

impl PyServeConfig {
    pub(crate) fn names_spin(&self) -> bool {
        self.spin_us.is_some()
    }

    pub(crate) fn into_config(self, limits: PyBatchLimits) -> PyResult<ServerConfig> {
        let drain_timeout = Duration::try_from_secs_f64(self.drain_timeout).map_err(|error| {
            value_error(format!("drain_timeout: {error}, is {}", self.drain_timeout))
        })?;
        let max_batch_tokens = limits.max_batch_tokens;
        Ok(ServerConfig {
            grpc_address: resolve("grpc_address", &self.grpc_address)?,
            max_items_per_request: self.max_items_per_request,
            max_message_bytes: self.max_message_bytes,
            max_requests_per_stream: self.max_requests_per_stream,
            worker_threads: self.worker_threads,
            tokenizer_threads: self.tokenizer_threads,
            drain_timeout,
            strict_model_name: self.strict_model_name,
            scheduler: SchedulerConfig {
                // A batch of 512-token sequences is full by tokens and by cost at once.
                max_batch_cost: (max_batch_tokens + max_batch_tokens / 8) as u64,
                max_batch_tokens,
                // The engine says when it is there.
                max_whole_request_tokens: 0,
                max_batch_sequences: limits.max_batch_sequences,
                max_queued_tokens: self.max_queued_tokens,
                bulk_share: self.bulk_share,
                cost: CostModel {
                    attention: 1.0 / ATTENTION_PARITY_TOKENS,
                },
                max_steps_in_flight: self.max_steps_in_flight,
                spin: Duration::from_micros(self.spin_us.unwrap_or(0)),
            },
        })
    }
}

/// The first address that `HOST:PORT` stands for.
pub(crate) fn resolve(option: &str, address: &str) -> PyResult<SocketAddr> {
    let mut addresses = address
        .to_socket_addrs()
        .map_err(|error| value_error(format!("{option}: {address:?} is not HOST:PORT: {error}")))?;
    addresses
        .next()
        .ok_or_else(|| value_error(format!("{option}: {address:?} has no address")))
}

/// `rose.config.BatchLayout`.
#[derive(FromPyObject)]
struct PyBatchLayout {
    token_buckets: Vec<usize>,
    sequence_tiers: Vec<usize>,
    token_types: bool,
    position_offset: u32,
    token_rows: bool,
    max_whole_request_tokens: usize,
}

/// `rose.config.Outputs`.
#[derive(FromPyObject)]
struct PyOutputs {
    kinds: Vec<String>,
    dimensions: usize,
    dense_start: usize,
    skip_first_token: bool,
    max_sim_mean: bool,
    skip_token_ids: Vec<u32>,
    int8_of_tanh: bool,
}

impl PyOutputs {
    fn into_outputs(self) -> PyResult<Outputs> {
        let kind = |kind: &String| match kind.as_str() {
            "dense" => Ok(Output::Dense),
            "sparse" => Ok(Output::Sparse),
            "tokens" => Ok(Output::Tokens),
            other => Err(unknown("outputs", other)),
        };
        Ok(Outputs {
            kinds: self.kinds.iter().map(kind).collect::<PyResult<_>>()?,
            dimensions: self.dimensions,
            dense_start: self.dense_start,
            skip_first_token: self.skip_first_token,
            max_sim_mean: self.max_sim_mean,
            skip_token_ids: self.skip_token_ids,
            int8_of_tanh: self.int8_of_tanh,
        })
    }
}

/// `rose.config.Templates`.
#[derive(FromPyObject)]
struct PyTemplates {
    pair: String,
    query: String,
    document: String,
    default_instruction: String,
}

/// `rose.config.ModelInfo`.
#[derive(FromPyObject)]
pub(crate) struct PyModelInfo {
    name: String,
    architecture: String,
    task: String,
    output_width: usize,
    max_sequence_tokens: usize,
    vocab_size: u32,
    pooling: String,
    normalized: bool,
    similarity: String,
    activation: String,
    labels: Vec<String>,
    positive_label: usize,
    outputs: PyOutputs,
    matryoshka_dimensions: Vec<u32>,
    prompts: BTreeMap<String, String>,
    default_prompt_name: Option<String>,
    templates: PyTemplates,
    truncation_side: String,
    strip: bool,
    lower_case: bool,
    dtype: String,
    device: String,
    fingerprint: String,
    tokenizer_json: Vec<u8>,
    layout: PyBatchLayout,
}

impl PyModelInfo {
    /// Tokens for which the engine's input slots have room.
    pub(crate) fn max_whole_request_tokens(&self) -> usize {
        self.layout.max_whole_request_tokens
    }

    pub(crate) fn into_info(self) -> PyResult<ModelInfo> {
        let task = match self.task.as_str() {
            "embed" => Task::Embed,
            "score" => Task::Score,
            "classify" => Task::Classify,
            other => return Err(unknown("task", other)),
        };
        let similarity = match self.similarity.as_str() {
            "cosine" => Similarity::Cosine,
            "dot" => Similarity::Dot,
            "euclidean" => Similarity::Euclidean,
            "manhattan" => Similarity::Manhattan,
            other => return Err(unknown("similarity", other)),
        };
        let activation = match self.activation.as_str() {
            "identity" => Activation::Identity,
            "sigmoid" => Activation::Sigmoid,
            "softmax" => Activation::Softmax,
            other => return Err(unknown("activation", other)),
        };
        let truncation_side = match self.truncation_side.as_str() {
            "right" => Side::Right,
            "left" => Side::Left,
            other => return Err(unknown("truncation_side", other)),
        };
        Ok(ModelInfo {
            name: self.name,
            architecture: self.architecture,
            task,
            output_width: self.output_width,
            max_sequence_tokens: self.max_sequence_tokens,
            vocab_size: self.vocab_size,
            pooling: self.pooling,
            normalized: self.normalized,
            similarity,
            activation,
            labels: self.labels,
            positive_label: self.positive_label,
            outputs: self.outputs.into_outputs()?,
            matryoshka_dimensions: self.matryoshka_dimensions,
            prompts: Prompts {
                named: self.prompts,
                default_name: self.default_prompt_name,
            },
            templates: Templates {
                pair: self.templates.pair,
                query: self.templates.query,
                document: self.templates.document,
                default_instruction: self.templates.default_instruction,
            },
            truncation_side,
            strip: self.strip,
            lower_case: self.lower_case,
            dtype: self.dtype,
            device: self.device,
            fingerprint: self.fingerprint,
            tokenizer_json: self.tokenizer_json.into(),
            layout: BatchLayout {
                token_buckets: self.layout.token_buckets,
                sequence_tiers: self.layout.sequence_tiers,
                token_types: self.layout.token_types,
                position_offset: self.layout.position_offset,
                token_rows: self.layout.token_rows,
            },
        })
    }
}

fn unknown(field: &str, value: &str) -> PyErr {
    value_error(format!("ModelInfo.{field}: unknown value {value:?}"))
}
