//! Which prompt is put before a text: the caller's, a named one, or the model's choice.

use tulip_proto::v1::InputType;

use crate::engine::Prompts;
use crate::error::{Error, Result};

/// What a request says about prompts; earlier fields win.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PromptChoice<'a> {
    pub(crate) literal: Option<&'a str>,
    /// Empty = not said.
    pub(crate) name: &'a str,
    pub(crate) input_type: InputType,
}

impl<'a> PromptChoice<'a> {
    pub(crate) const QUERY: Self = Self {
        literal: None,
        name: "",
        input_type: InputType::Query,
    };
    pub(crate) const DOCUMENT: Self = Self {
        literal: None,
        name: "",
        input_type: InputType::Document,
    };

    /// The text to put before each input, as sentence-transformers' `encode`, `encode_query` and
    /// `encode_document` choose it: the last two never fall back to the default prompt.
    pub(crate) fn resolve(&self, prompts: &'a Prompts) -> Result<&'a str> {
        if let Some(literal) = self.literal {
            return Ok(literal);
        }
        if !self.name.is_empty() {
            return prompts
                .named
                .get(self.name)
                .map(String::as_str)
                .ok_or_else(|| {
                    let known: Vec<&str> = prompts.named.keys().map(String::as_str).collect();
                    let message = format!(
                        "{:?} is no prompt of this model, known are {known:?}",
                        self.name
                    );
                    Error::invalid("prompt_name", message)
                });
        }
        let named = |name: &str| prompts.named.get(name).map(String::as_str);
        let found = match self.input_type {
            InputType::Query => named("query"),
            InputType::Document => ["document", "passage", "corpus"]
                .into_iter()
                .find_map(named),
            InputType::Unspecified => prompts.default_name.as_deref().and_then(named),
        };
        Ok(found.unwrap_or(""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompts(named: &[(&str, &str)], default_name: Option<&str>) -> Prompts {
        Prompts {
            named: named
                .iter()
                .map(|&(name, text)| (name.into(), text.into()))
                .collect(),
            default_name: default_name.map(Into::into),
        }
    }

    fn of_type(input_type: InputType) -> PromptChoice<'static> {
        PromptChoice {
            literal: None,
            name: "",
            input_type,
        }
    }

    #[test]
    fn literal_then_name_then_type() {
        let prompts = prompts(&[("query", "q: "), ("sts", "s: ")], Some("sts"));
        let mut choice = PromptChoice {
            literal: Some(""),
            name: "sts",
            input_type: InputType::Query,
        };
        assert_eq!(choice.resolve(&prompts), Ok(""));
        choice.literal = None;
        assert_eq!(choice.resolve(&prompts), Ok("s: "));
        choice.name = "";
        assert_eq!(choice.resolve(&prompts), Ok("q: "));
        choice.input_type = InputType::Unspecified;
        assert_eq!(choice.resolve(&prompts), Ok("s: "));
    }

    #[test]
    fn documents_take_the_first_candidate_there_is() {
        let passage = prompts(&[("corpus", "c: "), ("passage", "p: ")], None);
        assert_eq!(of_type(InputType::Document).resolve(&passage), Ok("p: "));
        // An empty prompt is one: nothing is put before documents.
        let empty = prompts(&[("document", ""), ("passage", "p: ")], None);
        assert_eq!(of_type(InputType::Document).resolve(&empty), Ok(""));
    }

    #[test]
    fn query_and_document_never_take_the_default() {
        let prompts = prompts(&[("sts", "s: ")], Some("sts"));
        assert_eq!(of_type(InputType::Query).resolve(&prompts), Ok(""));
        assert_eq!(of_type(InputType::Document).resolve(&prompts), Ok(""));
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let prompts = prompts(&[("query", "q: "), ("sts", "s: ")], None);
        let choice = PromptChoice {
            literal: None,
            name: "qery",
            input_type: InputType::Unspecified,
        };
        let expected =
            "prompt_name: \"qery\" is no prompt of this model, known are [\"query\", \"sts\"]";
        assert_eq!(choice.resolve(&prompts).unwrap_err().to_string(), expected);
    }
}
