//! What a back end serves, and the tokenizer that came with it.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tokenization::{LoadError, Side, Tokenizer, TokenizerOptions, TruncationOptions};
use tulip_proto::v1::{GetModelResponse, Limits, Task, Template, TruncationSide};

use crate::error::{Error, Result};

/// The answer of `GetModel`, made ready for use.
#[derive(Debug)]
pub struct Model {
    /// As answered, without the bytes of the tokenizer.
    pub info: GetModelResponse,
    /// For tokenization in this process; `None` where the back end tokenizes.
    pub tokenizer: Option<Arc<Tokenizer>>,
    /// Seconds since the epoch when this process saw the model first.
    pub created: u64,
    /// Bytes of `tokenizer.json`, where the tokenizer is only loaded to be looked at.
    tokenizer_json: Bytes,
    inspector: OnceLock<Arc<Tokenizer>>,
}

impl Model {
    /// A model whose texts are tokenized in this process. Loads the tokenizer if its bytes are
    /// there: some tenths of a second of computing.
    ///
    /// # Errors
    /// The tokenizer cannot be used with this model.
    pub fn new(info: GetModelResponse) -> Result<Self, LoadError> {
        let mut model = Self::tokenized_elsewhere(info);
        let json = std::mem::take(&mut model.tokenizer_json);
        if !json.is_empty() {
            model.tokenizer = Some(Arc::new(load(&model.info, &json)?));
        }
        Ok(model)
    }

    /// A model whose back end takes texts. The tokenizer is loaded when somebody looks at it.
    #[must_use]
    pub fn tokenized_elsewhere(mut info: GetModelResponse) -> Self {
        let tokenizer = info.tokenizer.as_mut();
        let tokenizer_json = tokenizer.map(|given| std::mem::take(&mut given.tokenizer_json));
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            info,
            tokenizer: None,
            created: since_epoch.map_or(0, |elapsed| elapsed.as_secs()),
            tokenizer_json: tokenizer_json.unwrap_or_default(),
            inspector: OnceLock::new(),
        }
    }

    /// The tokenizer, to look at tokens and ids; loads it the first time, which takes a while.
    ///
    /// # Errors
    /// The back end sent none, or it cannot be loaded.
    pub fn inspector(&self) -> Result<Arc<Tokenizer>> {
        if let Some(tokenizer) = self.tokenizer.as_ref().or(self.inspector.get()) {
            return Ok(Arc::clone(tokenizer));
        }
        if self.tokenizer_json.is_empty() {
            return Err(Error::WrongTask(
                "the model came without a tokenizer".into(),
            ));
        }
        let loaded = load(&self.info, &self.tokenizer_json);
        let loaded = loaded.map_err(|error| Error::Internal(error.to_string()))?;
        // Another thread may have been faster: theirs is the same.
        Ok(Arc::clone(self.inspector.get_or_init(|| Arc::new(loaded))))
    }

    /// The name that answers carry.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.info.model
    }

    /// What it does.
    #[must_use]
    pub fn task(&self) -> Task {
        self.info.task()
    }

    /// Its limits, zeros where the replica said none.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.info.limits.unwrap_or_default()
    }

    /// How a text that is too long is cut where the request does not say.
    #[must_use]
    pub fn truncation(&self) -> TruncationOptions {
        TruncationOptions {
            side: match self.info.truncation_side() {
                TruncationSide::Left => Side::Left,
                TruncationSide::Right | TruncationSide::Unspecified => Side::Right,
            },
            ..TruncationOptions::to(self.limits().max_sequence_tokens as usize)
        }
    }

    /// Its template, empty where the replica said none.
    #[must_use]
    pub fn template(&self) -> Template {
        self.info.template.clone().unwrap_or_default()
    }
}

fn load(info: &GetModelResponse, json: &[u8]) -> Result<Tokenizer, LoadError> {
    let template = info.template.clone().unwrap_or_default();
    let limits = info.limits.unwrap_or_default();
    let options = TokenizerOptions {
        max_sequence_tokens: limits.max_sequence_tokens as usize,
        strip: template.strip,
        lower_case: template.lower_case,
        vocab_size: info.vocab_size,
    };
    let (pair, instruction) = (&template.pair, &template.default_instruction);
    Tokenizer::from_json_of_model(json, options, pair, instruction)
}
