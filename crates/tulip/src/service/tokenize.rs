//! `Tokenize`: token ids exactly as Score and Embed would use them.

use tulip_proto::v1::{TokenizeRequest, TokenizeResponse, TokenizedInput};

use super::encode::Around;
use super::item::{Path, is_sequence, pack};
use super::options::{check_count, check_max_tokens, enum_value, truncation};
use super::serving::Serving;
use crate::engine::Task;
use crate::error::{Error, Result};
use crate::prompt::PromptChoice;

/// Name of the method in metrics.
pub(crate) const METHOD: &str = "Tokenize";

/// Answers one request.
pub(crate) async fn tokenize(
    serving: &Serving,
    request: TokenizeRequest,
) -> Result<TokenizeResponse> {
    let info = &serving.info;
    serving.check_model(&request.model)?;
    let special_tokens = match request.query {
        Some(_) => serving.tokenizer.num_special_pair(),
        None => serving.tokenizer.num_special_single(),
    };
    check_max_tokens(request.truncation.as_ref(), special_tokens)?;
    let truncation = truncation(request.truncation.as_ref(), info.truncation())?;
    let prompt = PromptChoice {
        literal: request.prompt.as_deref(),
        name: &request.prompt_name,
        input_type: enum_value(|| "input_type".into(), request.input_type)?,
        instruction: &request.instruction,
    };
    let num_inputs = request.inputs.len();
    check_count("inputs", num_inputs, serving.config.max_items_per_request)?;
    let encoded = match request.query {
        Some(_) if info.task == Task::Embed => {
            return Err(Error::WrongTask(
                "query: this model reads query and documents apart, not as pairs".into(),
            ));
        }
        Some(query) => {
            if let Some(index) = request.inputs.iter().position(is_sequence) {
                let message = "is SEQUENCE, a whole pair: query must then be absent";
                return Err(Error::invalid(format!("inputs[{index}].form"), message));
            }
            let query = serving
                .encode_pair_query(query, &request.instruction, &truncation)
                .await?;
            let around = Around::Query(&query);
            serving
                .encode_items(request.inputs, Path::Input, around, &truncation)
                .await?
        }
        None => {
            let prompt = prompt.resolve(info)?;
            let around = Around::Prompt(&prompt);
            serving
                .encode_items(request.inputs, Path::Input, around, &truncation)
                .await?
        }
    };
    let mut sequences = vec![TokenizedInput::default(); num_inputs];
    for (sequence, &item) in encoded.sequences.iter().zip(&encoded.items) {
        let tokenized = &mut sequences[item as usize];
        tokenized.token_ids = pack(&sequence.token_ids);
        tokenized.second_segment_start = sequence.second_segment_start;
        if request.return_tokens {
            tokenized.tokens = serving.tokenizer.tokens_of(&sequence.token_ids);
        }
    }
    Ok(TokenizeResponse {
        sequences,
        item_errors: encoded.failures.into_iter().map(Into::into).collect(),
        truncations: encoded.truncations,
    })
}
