//! `GetModel`: what is served, so that a gateway can never disagree with its replicas.

use bytes::Bytes;
use tulip_proto::v1::{self, GetModelRequest, GetModelResponse};

use super::encode::wire_side;
use super::serving::{Serving, wire_u32};
use crate::config::ServerConfig;
use crate::engine::{Activation, ModelInfo, Output, Similarity, Task};
use crate::error::Result;

/// Name of the method in metrics.
pub(crate) const METHOD: &str = "GetModel";

/// Answers one request.
pub(crate) fn get_model(serving: &Serving, request: &GetModelRequest) -> Result<GetModelResponse> {
    serving.check_model(&request.model)?;
    let info = &serving.info;
    let embeds = info.task == Task::Embed;
    let tokenizer_json = if request.include_tokenizer {
        Bytes::from_owner(info.tokenizer_json.clone())
    } else {
        Bytes::new()
    };
    Ok(GetModelResponse {
        model: info.name.clone(),
        architecture: info.architecture.clone(),
        task: task(info.task).into(),
        limits: Some(limits(info, &serving.config)),
        pooling: info.pooling.clone(),
        normalized: info.normalized,
        similarity: if embeds {
            similarity(info.similarity).into()
        } else {
            String::new()
        },
        dimensions: if embeds {
            wire_u32(info.dimensions())
        } else {
            0
        },
        matryoshka_dimensions: info.matryoshka_dimensions.clone(),
        labels: info.labels.clone(),
        positive_label: info
            .labels
            .get(info.positive_label)
            .cloned()
            .unwrap_or_default(),
        score_activation: if embeds {
            String::new()
        } else {
            activation(info.activation).into()
        },
        dtype: info.dtype.clone(),
        device: info.device.clone(),
        vocab_size: info.vocab_size,
        template: Some(template(info)),
        tokenizer: Some(v1::Tokenizer {
            tokenizer_json,
            sha256: serving.tokenizer_sha256.clone(),
        }),
        fingerprint: info.fingerprint.clone(),
        server_version: env!("CARGO_PKG_VERSION").into(),
        outputs: if embeds {
            let kinds = info.outputs.kinds.iter();
            kinds.map(|&kind| output_kind(kind).into()).collect()
        } else {
            Vec::new()
        },
        truncation_side: wire_side(info.truncation_side).into(),
    })
}

fn limits(info: &ModelInfo, config: &ServerConfig) -> v1::Limits {
    v1::Limits {
        max_sequence_tokens: wire_u32(info.max_sequence_tokens),
        max_items_per_request: wire_u32(config.max_items_per_request),
        max_batch_tokens: config.scheduler.max_batch_tokens as u64,
        max_queued_tokens: config.scheduler.max_queued_tokens,
        max_message_bytes: config.max_message_bytes as u64,
        max_requests_per_stream: wire_u32(config.max_requests_per_stream),
    }
}

fn template(info: &ModelInfo) -> v1::Template {
    let prompts = info
        .prompts
        .named
        .iter()
        .map(|(name, text)| (name.clone(), text.clone()));
    let templates = &info.templates;
    v1::Template {
        pair: templates.pair.clone(),
        query: templates.query.clone(),
        document: templates.document.clone(),
        default_instruction: templates.default_instruction.clone(),
        prompts: prompts.collect(),
        default_prompt_name: info.prompts.default_name.clone().unwrap_or_default(),
        strip: info.strip,
        lower_case: info.lower_case,
    }
}

fn task(task: Task) -> v1::Task {
    match task {
        Task::Embed => v1::Task::Embed,
        Task::Score => v1::Task::Score,
        Task::Classify => v1::Task::Classify,
    }
}

/// The form as the wire names it.
pub(crate) fn output_kind(output: Output) -> v1::OutputKind {
    match output {
        Output::Dense => v1::OutputKind::Dense,
        Output::Sparse => v1::OutputKind::Sparse,
        Output::Tokens => v1::OutputKind::Tokens,
    }
}

/// Names as in sentence-transformers' configuration.
fn similarity(similarity: Similarity) -> &'static str {
    match similarity {
        Similarity::Cosine => "cosine",
        Similarity::Dot => "dot",
        Similarity::Euclidean => "euclidean",
        Similarity::Manhattan => "manhattan",
    }
}

fn activation(activation: Activation) -> &'static str {
    match activation {
        Activation::Identity => "identity",
        Activation::Sigmoid => "sigmoid",
        Activation::Softmax => "softmax",
    }
}
