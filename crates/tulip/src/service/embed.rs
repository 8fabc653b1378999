//! `Embed`: one vector for each input.

use tokio::time::Instant;
use tulip_proto::v1::{DType, EmbedRequest, EmbedResponse, Normalization, OutputKind};

use super::encode::Around;
use super::item::{ItemFailure, Path};
use super::options::{check_count, enum_value, priority, truncation};
use super::serving::{Account, Serving};
use crate::deadline::Deadline;
use crate::engine::{ModelInfo, Task};
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
    check_outputs(&request.outputs)?;
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

    let embeddings = if output.not_finite.is_empty() {
        format.tensor(num_inputs, &output.rows, output.width, &encoded.items)
    } else {
        let (rows, items) = without(
            &output.rows,
            output.width,
            &encoded.items,
            &output.not_finite,
        );
        format.tensor(num_inputs, &rows, output.width, &items)
    };
    let reports = account.close(serving, deadline, &output, encoded.failures.len());
    Ok(EmbedResponse {
        request_id: request.request_id,
        model: info.name.clone(),
        embeddings: Some(embeddings),
        item_errors: encoded.failures.into_iter().map(Into::into).collect(),
        truncations: encoded.truncations,
        usage: Some(reports.usage),
        timings: Some(reports.timings),
        load: Some(reports.load),
        fingerprint: info.fingerprint.clone(),
        sparse: None,
        tokens: None,
    })
}

/// Rows and items without those that are not finite.
fn without(
    rows: &[f32],
    width: usize,
    items: &[u32],
    not_finite: &[usize],
) -> (Vec<f32>, Vec<u32>) {
    let mut kept_rows = Vec::with_capacity(rows.len());
    let mut kept_items = Vec::with_capacity(items.len());
    for (sequence, (row, &item)) in rows.chunks_exact(width).zip(items).enumerate() {
        if not_finite.binary_search(&sequence).is_err() {
            kept_rows.extend_from_slice(row);
            kept_items.push(item);
        }
    }
    (kept_rows, kept_items)
}

fn format(info: &ModelInfo, request: &EmbedRequest) -> Result<VectorFormat> {
    let width = info.output_width;
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
    if matches!(dtype, DType::DtypeInt8 | DType::DtypeUint8) && !unit_length {
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
    })
}

fn check_outputs(outputs: &[i32]) -> Result<()> {
    for (index, &output) in outputs.iter().enumerate() {
        match enum_value(|| format!("outputs[{index}]"), output)? {
            OutputKind::Unspecified | OutputKind::Dense => {}
            kind @ (OutputKind::Sparse | OutputKind::Tokens) => {
                let name = kind.as_str_name();
                let message = format!("outputs[{index}]: {name} is not supported by this model");
                return Err(Error::WrongTask(message));
            }
        }
    }
    Ok(())
}
