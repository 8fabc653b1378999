//! Which prompt is put before a text: the caller's, a named one, or the model's choice.

use std::borrow::Cow;

use tulip_proto::quoted;
use tulip_proto::v1::InputType;

use crate::engine::ModelInfo;
use crate::error::{Error, Result};

/// What a request says about prompts; earlier fields win.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PromptChoice<'a> {
    pub(crate) literal: Option<&'a str>,
    /// Empty = not said.
    pub(crate) name: &'a str,
    pub(crate) input_type: InputType,
    /// Fills the template of queries; empty = the template's own.
    pub(crate) instruction: &'a str,
}

const QUERY: &str = "{query}";
const DOCUMENT: &str = "{document}";
const INSTRUCTION: &str = "{instruction}";

impl<'a> PromptChoice<'a> {
    /// The query of an embedding model in `Score`.
    pub(crate) fn query(instruction: &'a str) -> Self {
        Self {
            literal: None,
            name: "",
            input_type: InputType::Query,
            instruction,
        }
    }

    /// A document of an embedding model in `Score`.
    pub(crate) const DOCUMENT: Self = Self {
        literal: None,
        name: "",
        input_type: InputType::Document,
        instruction: "",
    };

    /// The text to put before each input, as sentence-transformers' `encode`, `encode_query` and
    /// `encode_document` choose it: the last two never fall back to the default prompt. A template
    /// of the model stands in for its prompt of that type. With an instruction, what has no type
    /// is a query.
    pub(crate) fn resolve(&self, info: &'a ModelInfo) -> Result<Cow<'a, str>> {
        let (prompts, templates) = (&info.prompts, &info.templates);
        if !self.instruction.is_empty() {
            return self.instructed(&templates.query);
        }
        if let Some(literal) = self.literal {
            return Ok(literal.into());
        }
        if !self.name.is_empty() {
            return prompts
                .named
                .get(self.name)
                .map(|prompt| Cow::Borrowed(prompt.as_str()))
                .ok_or_else(|| {
                    let known: Vec<&str> = prompts.named.keys().map(String::as_str).collect();
                    let message = format!(
                        "{} is no prompt of this model, known are {known:?}",
                        quoted(self.name)
                    );
                    Error::invalid("prompt_name", message)
                });
        }
        let named = |name: &str| prompts.named.get(name).map(String::as_str);
        let found = match self.input_type {
            InputType::Query if !templates.query.is_empty() => {
                let prompt = templates.query.strip_suffix(QUERY).unwrap_or_default();
                return Ok(prompt
                    .replace(INSTRUCTION, &templates.default_instruction)
                    .into());
            }
            InputType::Document if !templates.document.is_empty() => {
                templates.document.strip_suffix(DOCUMENT)
            }
            InputType::Query => named("query"),
            InputType::Document => ["document", "passage", "corpus"]
                .into_iter()
                .find_map(named),
            InputType::Unspecified => prompts.default_name.as_deref().and_then(named),
        };
        Ok(found.unwrap_or("").into())
    }

    fn instructed(&self, template: &'a str) -> Result<Cow<'a, str>> {
        let refused = |message: &str| Err(Error::invalid("instruction", message));
        if self.literal.is_some() || !self.name.is_empty() {
            return refused("needs the model's own template: leave prompt and prompt_name out");
        }
        if self.input_type == InputType::Document {
            return refused("is for queries, but input_type is DOCUMENT");
        }
        if !template.contains(INSTRUCTION) {
            return refused("this model's template has no place for an instruction");
        }
        let prompt = template.strip_suffix(QUERY).unwrap_or_default();
        Ok(prompt.replace(INSTRUCTION, self.instruction).into())
    }
}

/// Templates of single texts become prompts: their text must come last.
pub(crate) fn check_templates(info: &ModelInfo) -> Result<(), String> {
    let single = [
        ("query_template", &info.templates.query, QUERY),
        ("document_template", &info.templates.document, DOCUMENT),
    ];
    for (name, template, place) in single {
        let count = template.matches(place).count();
        if !template.is_empty() && (count != 1 || !template.ends_with(place)) {
            let template = quoted(template);
            return Err(format!(
                "{name}: must end with its only {place}, is {template}"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Prompts, Task};
    use crate::fake_engine::FakeEngine;

    fn prompts(named: &[(&str, &str)], default_name: Option<&str>) -> ModelInfo {
        let mut info = FakeEngine::model_info(Task::Embed, 4, b"");
        info.prompts = Prompts {
            named: named
                .iter()
                .map(|&(name, text)| (name.into(), text.into()))
                .collect(),
            default_name: default_name.map(Into::into),
        };
        info
    }

    fn resolve(choice: &PromptChoice<'_>, info: &ModelInfo) -> String {
        choice.resolve(info).unwrap().into_owned()
    }

    fn of_type(input_type: InputType) -> PromptChoice<'static> {
        PromptChoice {
            literal: None,
            name: "",
            input_type,
            instruction: "",
        }
    }

    #[test]
    fn literal_then_name_then_type() {
        let prompts = prompts(&[("query", "q: "), ("sts", "s: ")], Some("sts"));
        let mut choice = PromptChoice {
            literal: Some(""),
            name: "sts",
            input_type: InputType::Query,
            instruction: "",
        };
        assert_eq!(resolve(&choice, &prompts), "");
        choice.literal = None;
        assert_eq!(resolve(&choice, &prompts), "s: ");
        choice.name = "";
        assert_eq!(resolve(&choice, &prompts), "q: ");
        choice.input_type = InputType::Unspecified;
        assert_eq!(resolve(&choice, &prompts), "s: ");
    }

    #[test]
    fn documents_take_the_first_candidate_there_is() {
        let passage = prompts(&[("corpus", "c: "), ("passage", "p: ")], None);
        assert_eq!(resolve(&of_type(InputType::Document), &passage), "p: ");
        // An empty prompt is one: nothing is put before documents.
        let empty = prompts(&[("document", ""), ("passage", "p: ")], None);
        assert_eq!(resolve(&of_type(InputType::Document), &empty), "");
    }

    #[test]
    fn query_and_document_never_take_the_default() {
        let prompts = prompts(&[("sts", "s: ")], Some("sts"));
        assert_eq!(resolve(&of_type(InputType::Query), &prompts), "");
        assert_eq!(resolve(&of_type(InputType::Document), &prompts), "");
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let prompts = prompts(&[("query", "q: "), ("sts", "s: ")], None);
        let choice = PromptChoice {
            literal: None,
            name: "qery",
            input_type: InputType::Unspecified,
            instruction: "",
        };
        let expected =
            "prompt_name: \"qery\" is no prompt of this model, known are [\"query\", \"sts\"]";
        assert_eq!(choice.resolve(&prompts).unwrap_err().to_string(), expected);
    }

    #[test]
    fn templates_stand_in_for_the_prompts_of_their_type() {
        let mut info = prompts(&[("query", "q: "), ("document", "d: ")], None);
        info.templates.query = "Instruct: {instruction}\nQuery:{query}".into();
        info.templates.document = "title: none | text: {document}".into();
        info.templates.default_instruction = "search".into();
        let query = of_type(InputType::Query);
        assert_eq!(resolve(&query, &info), "Instruct: search\nQuery:");
        let document = of_type(InputType::Document);
        assert_eq!(resolve(&document, &info), "title: none | text: ");
        assert_eq!(resolve(&of_type(InputType::Unspecified), &info), "");
        for input_type in [InputType::Query, InputType::Unspecified] {
            let instructed = PromptChoice {
                instruction: "classify",
                ..of_type(input_type)
            };
            assert_eq!(resolve(&instructed, &info), "Instruct: classify\nQuery:");
        }
    }

    #[test]
    fn an_instruction_needs_a_place() {
        let mut info = prompts(&[("query", "q: ")], None);
        let message = |choice: PromptChoice<'_>, info: &ModelInfo| {
            choice.resolve(info).unwrap_err().to_string()
        };
        let choice = PromptChoice::query("classify");
        let none = "instruction: this model's template has no place for an instruction";
        assert_eq!(message(choice, &info), none);
        info.templates.query = "{instruction}: {query}".into();
        let document = PromptChoice {
            input_type: InputType::Document,
            ..choice
        };
        let expected = "instruction: is for queries, but input_type is DOCUMENT";
        assert_eq!(message(document, &info), expected);
        let literal = PromptChoice {
            literal: Some("q: "),
            ..choice
        };
        let expected =
            "instruction: needs the model's own template: leave prompt and prompt_name out";
        assert_eq!(message(literal, &info), expected);
    }

    #[test]
    fn the_text_of_a_template_comes_last() {
        let mut info = prompts(&[], None);
        assert_eq!(check_templates(&info), Ok(()));
        info.templates.document = "{document} end".into();
        assert_eq!(
            check_templates(&info).unwrap_err(),
            "document_template: must end with its only {document}, is \"{document} end\""
        );
    }
}
