//! What a back end serves, and the tokenizer that came with it.

use std::sync::Arc;

use tokenization::{LoadError, Tokenizer, TokenizerOptions};
use tulip_proto::v1::{GetModelResponse, Limits, Task, Template};

/// The answer of `GetModel`, made ready for use.
#[derive(Debug)]
pub struct Model {
    /// As answered, without the bytes of the tokenizer.
    pub info: GetModelResponse,
    /// For tokenization in this process; `None` where the back end tokenizes.
    pub tokenizer: Option<Arc<Tokenizer>>,
    /// Seconds since the epoch when this process saw the model first.
    pub created: u64,
}

impl Model {
    /// Loads the tokenizer if its bytes are there: some tenths of a second of computing.
    ///
    /// # Errors
    /// The tokenizer cannot be used with this model.
    pub fn new(mut info: GetModelResponse) -> Result<Self, LoadError> {
        let template = info.template.clone().unwrap_or_default();
        let limits = info.limits.unwrap_or_default();
        let json = info
            .tokenizer
            .as_mut()
            .map(|tokenizer| std::mem::take(&mut tokenizer.tokenizer_json))
            .unwrap_or_default();
        let tokenizer = if json.is_empty() {
            None
        } else {
            let options = TokenizerOptions {
                max_sequence_tokens: limits.max_sequence_tokens as usize,
                strip: template.strip,
                lower_case: template.lower_case,
                vocab_size: info.vocab_size,
            };
            Some(Arc::new(Tokenizer::from_json(&json, options)?))
        };
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Ok(Self {
            info,
            tokenizer,
            created: since_epoch.map_or(0, |elapsed| elapsed.as_secs()),
        })
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

    /// Its template, empty where the replica said none.
    #[must_use]
    pub fn template(&self) -> Template {
        self.info.template.clone().unwrap_or_default()
    }
}
