//! `Embed`: one vector for each input.

use tokio::time::Instant;
use tulip_proto::v1::{DType, EmbedRequest, EmbedResponse, Normalization, OutputKind};

use super::answer::Answer;
use super::encode::Around;
use super::item::{ItemFailure, Path};
use super::model::output_kind;
use super::options::{check_count, check_max_tokens, enum_value, priority, truncation};
use super::parts::Parts;
use super::serving::{Account, Serving};
use crate::deadline::Deadline;
use crate::engine::{ModelInfo, Output, Task};
use crate::error::{Error, Result};
use crate::prompt::PromptChoice;
use crate::sequence::Sequence;
use crate::vectors::VectorFormat;

/// Name of the method in metrics.
pub(crate) const METHOD: &str = "Embed";

/// Answers one request.
pub(crate) async fn embed(
    serving: &Serving,
    request: EmbedRequest,
    deadline: &Deadline,
) -> Result<EmbedResponse> {
    let info = &serving.info;
    serving.check_model(&request.model)?;
    if info.task != Task::Embed {
        return Err(Error::WrongTask(format!(
            "Embed: {} gives scores, not vectors",
            info.name
        )));
    }
    let outputs = outputs(info, &request.outputs)?;
    let format = format(info, &request, &outputs)?;
    let special_tokens = serving.tokenizer.num_special_single();
    check_max_tokens(request.truncation.as_ref(), special_tokens)?;
    let truncation = truncation(request.truncation.as_ref(), info.truncation())?;
    let priority = priority(request.priority)?;
    let prompt = PromptChoice {
        literal: request.prompt.as_deref(),
        name: &request.prompt_name,
        input_type: enum_value(|| "input_type".into(), request.input_type)?,
        instruction: &request.instruction,
    };
    let prompt = prompt.resolve(info)?;
    let around = Around::Prompt(&prompt);
    let num_inputs = request.inputs.len();
    check_count("inputs", num_inputs, serving.config.max_items_per_request)?;

    let tokenize = Instant::now();
    let mut encoded = serving
        .encode_items(request.inputs, Path::Input, around, &truncation)
        .await?;
    encoded.check_strict(request.strict)?;
    let account = Account {
        method: METHOD,
        items: num_inputs,
        input_tokens: encoded.num_tokens(),
        sequences: encoded.sequences.len(),
        tokenize: tokenize.elapsed(),
    };
    let sequences = std::mem::take(&mut encoded.sequences);
    if outputs.contains(&Output::Tokens) {
        check_size(info, &sequences, serving.config.max_message_bytes)?;
    }
    let mut parts = Parts::new(serving, sequences, priority, deadline);
    let mut answer = Answer::new(&outputs, &format, info.dimensions());
    while let Some(part) = parts.next().await? {
        for sequence in 0..part.num_sequences() {
            let item = encoded.items[part.first + sequence];
            if part.is_finite(sequence) {
                answer.add(item, &part.rows(info, sequence));
            } else {
                let failure = ItemFailure::not_finite(Path::Input(item as usize));
                encoded.failures.push(failure);
            }
        }
    }
    encoded
        .failures
        .sort_unstable_by_key(|failure| failure.index);
    encoded.check_strict(request.strict)?;

    let forms = answer.finish(num_inputs);
    let failures = encoded.failures.len();
    let reports = account.close(serving, deadline, &parts.spent, failures);
    Ok(EmbedResponse {
        request_id: request.request_id,
        model: info.name.clone(),
        embeddings: forms.dense,
        item_errors: encoded.failures.into_iter().map(Into::into).collect(),
        truncations: encoded.truncations,
        usage: Some(reports.usage),
        timings: Some(reports.timings),
        load: Some(reports.load),
        fingerprint: info.fingerprint.clone(),
        sparse: forms.sparse,
        tokens: forms.tokens,
    })
}

/// Vectors of tokens can be a thousand times the request: what no message can hold is refused
/// before it is computed.
fn check_size(info: &ModelInfo, sequences: &[Sequence], max_message_bytes: usize) -> Result<()> {
    let tokens: usize = sequences.iter().map(Sequence::num_tokens).sum();
    let bytes = tokens.saturating_mul(info.dimensions() * size_of::<f32>());
    if bytes <= max_message_bytes {
        return Ok(());
    }
    let message = format!(
        "have {tokens} tokens, whose vectors take {bytes} bytes as float32, \
         limit max_message_bytes={max_message_bytes}"
    );
    Err(Error::invalid("inputs", message))
}

fn format(info: &ModelInfo, request: &EmbedRequest, outputs: &[Output]) -> Result<VectorFormat> {
    if *outputs == [Output::Sparse] {
        check_sparse(request)?;
    }
    let width = info.dimensions();
    let dimensions = match request.dimensions as usize {
        0 => width,
        dimensions if dimensions == width => width,
        dimensions
            if dimensions < width && info.matryoshka_dimensions.contains(&request.dimensions) =>
        {
            dimensions
        }
        dimensions => {
            let mut known = info.matryoshka_dimensions.clone();
            known.retain(|&known| (known as usize) < width);
            let message =
                format!("is {dimensions}, this model has {width} and can be cut to {known:?}");
            return Err(Error::invalid("dimensions", message));
        }
    };
    let cut = dimensions < width;
    // The length of the vector that is sent, and whether we have to see to it.
    let (unit_length, normalize) =
        match enum_value(|| "normalization".into(), request.normalization)? {
            Normalization::Unspecified => (info.normalized, info.normalized && cut),
            Normalization::L2 => (true, !info.normalized || cut),
            Normalization::None if info.normalized => {
                let message = "is NONE, but this model itself normalizes its vectors";
                return Err(Error::invalid("normalization", message));
            }
            Normalization::None => (false, false),
        };
    let dtype = enum_value(|| "dtype".into(), request.dtype)?;
    let eight_bits = matches!(dtype, DType::DtypeInt8 | DType::DtypeUint8);
    if eight_bits && !unit_length && !info.outputs.int8_of_tanh {
        let message = format!(
            "is {}, which needs normalized vectors: ask for L2",
            dtype.as_str_name()
        );
        return Err(Error::invalid("dtype", message));
    }
    Ok(VectorFormat {
        dimensions,
        normalize,
        dtype,
        // Values scaled to length 1 are no longer what the tangent is for.
        tanh: info.outputs.int8_of_tanh && !unit_length,
    })
}

/// Weights of tokens are float32, as the model gives them.
fn check_sparse(request: &EmbedRequest) -> Result<()> {
    if request.dimensions != 0 {
        let message = format!(
            "is {}, but sparse vectors cannot be cut",
            request.dimensions
        );
        return Err(Error::invalid("dimensions", message));
    }
    let dtype = enum_value(|| "dtype".into(), request.dtype)?;
    if !matches!(dtype, DType::DtypeUnspecified | DType::DtypeFloat32) {
        let message = format!("is {}, but sparse vectors are FLOAT32", dtype.as_str_name());
        return Err(Error::invalid("dtype", message));
    }
    let normalization: Normalization =
        enum_value(|| "normalization".into(), request.normalization)?;
    if normalization == Normalization::L2 {
        let message = "is L2, but sparse vectors are as the model gives them";
        return Err(Error::invalid("normalization", message));
    }
    Ok(())
}

/// The forms that are wanted, each once; none said = the model's first.
fn outputs(info: &ModelInfo, wanted: &[i32]) -> Result<Vec<Output>> {
    let kinds = &info.outputs.kinds;
    if wanted.is_empty() {
        return Ok(kinds.iter().take(1).copied().collect());
    }
    let mut outputs = Vec::with_capacity(wanted.len().min(kinds.len()));
    for (index, &value) in wanted.iter().enumerate() {
        let kind = enum_value(|| format!("outputs[{index}]"), value)?;
        let output = match kind {
            OutputKind::Unspecified | OutputKind::Dense => Output::Dense,
            OutputKind::Sparse => Output::Sparse,
            OutputKind::Tokens => Output::Tokens,
        };
        if !kinds.contains(&output) {
            let known: Vec<_> = kinds.iter().map(|&kind| output_kind(kind)).collect();
            let known: Vec<_> = known.iter().map(OutputKind::as_str_name).collect();
            return Err(Error::WrongTask(format!(
                "outputs[{index}]: {} is not supported by this model, which gives {}",
                kind.as_str_name(),
                known.join(", ")
            )));
        }
        if !outputs.contains(&output) {
            outputs.push(output);
        }
    }
    Ok(outputs)
}
