//! `Embed`: one vector for each input.

use tokio::time::Instant;
use tulip_proto::v1::{DType, EmbedRequest, EmbedResponse, Normalization, OutputKind};

use super::answered::Answered;
use super::encode::Around;
use super::item::{ItemFailure, Path};
use super::options::{check_count, enum_value, priority, truncation};
use super::serving::{Account, Serving};
use crate::deadline::Deadline;
use crate::engine::{ModelInfo, Output, Task};
use crate::error::{Error, Result};
use crate::prompt::PromptChoice;
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
    let format = format(info, &request)?;
    let outputs = outputs(info, &request.outputs)?;
    let truncation = truncation(request.truncation.as_ref(), info.max_sequence_tokens)?;
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
    let ids = sequences.iter().map(|sequence| sequence.token_ids.clone());
    // Weights of tokens are told apart by their ids.
    let token_ids: Vec<Vec<u32>> = if info.layout.token_rows {
        ids.collect()
    } else {
        Vec::new()
    };
    let output = serving.compute(sequences, priority, deadline).await?;
    for &sequence in &output.not_finite {
        let item = encoded.items[sequence] as usize;
        encoded
            .failures
            .push(ItemFailure::not_finite(Path::Input(item)));
    }
    encoded
        .failures
        .sort_unstable_by_key(|failure| failure.index);
    encoded.check_strict(request.strict)?;

    let answered = Answered {
        info,
        output: &output,
        token_ids: &token_ids,
        items: &encoded.items,
        num_inputs,
    };
    let wanted = |kind| outputs.contains(&kind);
    let embeddings = wanted(Output::Dense).then(|| answered.dense(&format));
    let sparse = wanted(Output::Sparse).then(|| answered.sparse());
    let tokens = wanted(Output::Tokens).then(|| answered.tokens(&format));
    let reports = account.close(serving, deadline, &output, encoded.failures.len());
    Ok(EmbedResponse {
        request_id: request.request_id,
        model: info.name.clone(),
        embeddings,
        item_errors: encoded.failures.into_iter().map(Into::into).collect(),
        truncations: encoded.truncations,
        usage: Some(reports.usage),
        timings: Some(reports.timings),
        load: Some(reports.load),
        fingerprint: info.fingerprint.clone(),
        sparse,
        tokens,
    })
}

fn format(info: &ModelInfo, request: &EmbedRequest) -> Result<VectorFormat> {
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

/// The forms that are wanted; none said = the model's first.
fn outputs(info: &ModelInfo, wanted: &[i32]) -> Result<Vec<Output>> {
    let kinds = &info.outputs.kinds;
    if wanted.is_empty() {
        return Ok(kinds.iter().take(1).copied().collect());
    }
    let of_one = |(index, &value): (usize, &i32)| {
        let kind = enum_value(|| format!("outputs[{index}]"), value)?;
        let output = match kind {
            OutputKind::Unspecified | OutputKind::Dense => Output::Dense,
            OutputKind::Sparse => Output::Sparse,
            OutputKind::Tokens => Output::Tokens,
        };
        if kinds.contains(&output) {
            return Ok(output);
        }
        let name = kind.as_str_name();
        let message = format!("outputs[{index}]: {name} is not supported by this model");
        Err(Error::WrongTask(message))
    };
    wanted.iter().enumerate().map(of_one).collect()
}
