//! Texts to sequences without a server, exactly as the service makes them: for checks of a model
//! and for use offline.

use tokenization::{
    Content, EncodeError, Encoded, LoadError, Query, Tokenizer, TokenizerOptions, TruncationOptions,
};
use tulip_proto::v1::InputType;

use crate::engine::ModelInfo;
use crate::error::{Error, Result};
use crate::prompt::PromptChoice;
use crate::sequence::Sequence;

/// The tokenizer and the templates of a model.
#[derive(Debug)]
pub struct TextEncoder {
    info: ModelInfo,
    tokenizer: Tokenizer,
    truncation: TruncationOptions,
}

/// The tokenizer of a model, with its template of pairs.
pub(crate) fn load_tokenizer(info: &ModelInfo) -> Result<Tokenizer, LoadError> {
    let options = TokenizerOptions {
        max_sequence_tokens: info.max_sequence_tokens,
        strip: info.strip,
        lower_case: info.lower_case,
        vocab_size: info.vocab_size,
    };
    Tokenizer::from_json_of_model(
        &info.tokenizer_json,
        options,
        &info.templates.pair,
        &info.templates.default_instruction,
    )
}

impl TextEncoder {
    /// Loads the tokenizer that the model came with.
    ///
    /// # Errors
    /// The tokenizer or a template cannot be used.
    pub fn new(info: ModelInfo) -> Result<Self, LoadError> {
        let tokenizer = load_tokenizer(&info)?;
        let truncation = info.truncation();
        Ok(Self {
            info,
            tokenizer,
            truncation,
        })
    }

    /// The sequences of a query with each document, over-long documents cut. An empty instruction
    /// is the template's own.
    ///
    /// # Errors
    /// A text cannot be read, or the template has no place for an instruction.
    pub fn pairs(
        &self,
        query: &str,
        documents: Vec<String>,
        instruction: &str,
    ) -> Result<Vec<Sequence>> {
        let query = Content::Text(query.to_owned());
        let query = self
            .tokenizer
            .encode_query_with(&query, instruction, &self.truncation)
            .map_err(|error| {
                let field = match error {
                    EncodeError::Instruction | EncodeError::InstructionTooLong { .. } => {
                        "instruction"
                    }
                    _ => "query",
                };
                invalid(field, &error)
            })?;
        let documents = documents.into_iter().enumerate();
        let pairs = documents.map(|(index, text)| self.pair(&query, index, text));
        pairs.collect()
    }

    fn pair(&self, query: &Query, index: usize, text: String) -> Result<Sequence> {
        let content = Content::Text(text);
        let pair = self
            .tokenizer
            .encode_pair(query, &content, &self.truncation);
        pair.map(sequence)
            .map_err(|error| invalid(&format!("documents[{index}]"), &error))
    }

    /// The sequences of single texts: queries, documents, or neither.
    ///
    /// # Errors
    /// A text cannot be read, or the template has no place for an instruction.
    pub fn singles(
        &self,
        texts: Vec<String>,
        role: TextRole,
        instruction: &str,
    ) -> Result<Vec<Sequence>> {
        let choice = PromptChoice {
            literal: None,
            name: "",
            input_type: match role {
                TextRole::Query => InputType::Query,
                TextRole::Document => InputType::Document,
                TextRole::Unspecified => InputType::Unspecified,
            },
            instruction,
        };
        let prompt = choice.resolve(&self.info)?;
        let encoded = texts.into_iter().enumerate().map(|(index, text)| {
            let content = Content::Text(text);
            let one = self
                .tokenizer
                .encode_single(&prompt, &content, &self.truncation);
            one.map(sequence)
                .map_err(|error| invalid(&format!("texts[{index}]"), &error))
        });
        encoded.collect()
    }
}

/// Which prompt a text gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextRole {
    /// The model's prompt of queries.
    Query,
    /// The model's prompt of documents.
    Document,
    /// The model's default prompt, if it has one.
    Unspecified,
}

fn sequence(encoded: Encoded) -> Sequence {
    Sequence {
        token_ids: encoded.token_ids,
        second_segment_start: encoded.second_segment_start,
    }
}

fn invalid(field: &str, error: &EncodeError) -> Error {
    Error::invalid(field, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Task, Templates};
    use crate::fake_engine::FakeEngine;

    const WORDS: &[u8] = include_bytes!("../tests/fixtures/words.tokenizer.json");

    fn encoder(templates: Templates) -> TextEncoder {
        let info = ModelInfo {
            templates,
            vocab_size: 100,
            ..FakeEngine::model_info(Task::Embed, 4, WORDS)
        };
        TextEncoder::new(info).unwrap()
    }

    #[test]
    fn pairs_and_singles_are_what_the_service_makes() {
        let plain = encoder(Templates::default());
        let pairs = plain
            .pairs("w0", vec!["w1".into(), String::new()], "")
            .unwrap();
        assert_eq!(pairs[0].token_ids, [2, 4, 3, 5, 3]);
        assert_eq!((pairs[0].second_segment_start, pairs.len()), (3, 2));
        let templated = encoder(Templates {
            query: "w9 {query}".into(),
            pair: "[CLS] {query} w8 {document}".into(),
            ..Templates::default()
        });
        let role = |role| templated.singles(vec!["w0".into()], role, "").unwrap();
        assert_eq!(role(TextRole::Query)[0].token_ids, [2, 13, 4, 3]);
        assert_eq!(role(TextRole::Document)[0].token_ids, [2, 4, 3]);
        let pairs = templated.pairs("w0", vec!["w1".into()], "").unwrap();
        assert_eq!(pairs[0].token_ids, [2, 4, 12, 5]);
    }

    #[test]
    fn an_instruction_without_a_place_is_named() {
        let error = encoder(Templates::default())
            .pairs("w0", vec!["w1".into()], "judge")
            .unwrap_err();
        let expected = "instruction: this model's template has no place for an instruction";
        assert_eq!(error.to_string(), expected);
    }
}
