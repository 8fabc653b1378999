//! A template of pairs as text: its places, and its cuts at control tokens and marks.

use serde_json::Value;

use crate::error::LoadError;

/// A template with the places `{query}`, `{document}` and perhaps `{instruction}`. A mark `{split}`
/// makes the tokenizer read what is before and after it apart. A part that begins with
/// `{if instruction}` and ends with `{end}` is there only where there is an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairTemplate {
    text: String,
    pub(crate) default_instruction: String,
    document_at: usize,
    /// Places of the two marks around an optional part.
    optional: Option<(usize, usize)>,
}

/// A piece of a run of text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Literal(String),
    Instruction,
    Query,
}

/// A piece of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Segment {
    Control(u32),
    Run(Vec<Part>),
    /// Between runs.
    Split,
}

const QUERY: &str = "{query}";
const DOCUMENT: &str = "{document}";
const INSTRUCTION: &str = "{instruction}";
/// What is before and after it is tokenized apart.
const SPLIT: &str = "{split}";
/// Around a part that is there only with an instruction.
const IF_INSTRUCTION: &str = "{if instruction}";
const END: &str = "{end}";

impl PairTemplate {
    /// Checks the places of a template.
    ///
    /// # Errors
    /// `{query}` or `{document}` is not there exactly once, the document comes first,
    /// `{instruction}` is there twice or after the document, or an optional part has no end, no
    /// `{instruction}`, or the query or the document in it.
    pub fn new(
        text: impl Into<String>,
        default_instruction: impl Into<String>,
    ) -> Result<Self, LoadError> {
        let text = text.into();
        let once = |place: &str| {
            let mut found = text.match_indices(place);
            match (found.next(), found.next()) {
                (Some((at, _)), None) => Ok(at),
                (None, _) => Err(LoadError::Template(format!("{place} is missing"))),
                _ => Err(LoadError::Template(format!("{place} is there twice"))),
            }
        };
        let (query_at, document_at) = (once(QUERY)?, once(DOCUMENT)?);
        if document_at < query_at {
            let message = format!("{DOCUMENT} stands before {QUERY}");
            return Err(LoadError::Template(message));
        }
        if text.contains(INSTRUCTION) && once(INSTRUCTION)? > document_at {
            let message = format!("{INSTRUCTION} stands after {DOCUMENT}");
            return Err(LoadError::Template(message));
        }
        let optional = if text.contains(IF_INSTRUCTION) || text.contains(END) {
            let marks = (once(IF_INSTRUCTION)?, once(END)?);
            let part = text.get(marks.0..marks.1).unwrap_or_default();
            if !part.contains(INSTRUCTION) || part.contains(QUERY) || part.contains(DOCUMENT) {
                let message = format!(
                    "between {IF_INSTRUCTION} and {END} must be {INSTRUCTION}, and no other place"
                );
                return Err(LoadError::Template(message));
            }
            Some(marks)
        } else {
            None
        };
        Ok(Self {
            text,
            default_instruction: default_instruction.into(),
            document_at,
            optional,
        })
    }

    /// Whether a request may bring its own instruction.
    #[must_use]
    pub fn has_instruction(&self) -> bool {
        self.text.contains(INSTRUCTION)
    }

    /// All before the document, with or without an instruction.
    pub(crate) fn before(&self, instructed: bool) -> String {
        let before = &self.text[..self.document_at];
        match self.optional {
            None => before.to_owned(),
            Some((begin, end)) => {
                let part = &before[begin + IF_INSTRUCTION.len()..end];
                let part = if instructed { part } else { "" };
                [&before[..begin], part, &before[end + END.len()..]].concat()
            }
        }
    }

    pub(crate) fn after(&self) -> &str {
        &self.text[self.document_at + DOCUMENT.len()..]
    }
}

/// Makes the template's own tokens special, which the tokenizer can be told not to look for in
/// texts. Returns all tokens that a template may hold, with their ids.
pub(crate) fn mark_control_tokens(json: &mut Value, template: &PairTemplate) -> Vec<(String, u32)> {
    let mut control = Vec::new();
    let entries = json.get_mut("added_tokens").and_then(Value::as_array_mut);
    for entry in entries.into_iter().flatten() {
        let content = entry["content"].as_str().unwrap_or_default().to_owned();
        let id = entry["id"].as_u64().and_then(|id| u32::try_from(id).ok());
        let is_special = entry["special"].as_bool().unwrap_or(false);
        // Runs of white space or plain words can be tokens of their own too: they control nothing.
        let is_word = content
            .chars()
            .all(|c| c.is_alphanumeric() || c.is_whitespace());
        let used = !is_word && template.text.contains(&content);
        if let Some(id) = id.filter(|_| is_special || used) {
            entry["special"] = Value::Bool(true);
            control.push((content, id));
        }
    }
    control
}

pub(crate) fn render(parts: &[Part], instruction: &str, query: &str) -> String {
    let texts = parts.iter().map(|part| match part {
        Part::Literal(text) => text.as_str(),
        Part::Instruction => instruction,
        Part::Query => query,
    });
    texts.collect()
}

/// Cuts a part of a template at its control tokens, places and marks.
pub(crate) fn segments(text: &str, control: &[(String, u32)]) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut run: Vec<Part> = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        // Of the tokens that fit here the longest, as the tokenizer does it.
        let token = control
            .iter()
            .filter(|(content, _)| !content.is_empty() && rest.starts_with(content.as_str()))
            .max_by_key(|(content, _)| content.len());
        if let Some((content, id)) = token {
            if !run.is_empty() {
                segments.push(Segment::Run(std::mem::take(&mut run)));
            }
            segments.push(Segment::Control(*id));
            rest = &rest[content.len()..];
        } else if let Some(after) = rest.strip_prefix(QUERY) {
            run.push(Part::Query);
            rest = after;
        } else if let Some(after) = rest.strip_prefix(INSTRUCTION) {
            run.push(Part::Instruction);
            rest = after;
        } else if let Some(after) = rest.strip_prefix(SPLIT) {
            if !run.is_empty() {
                segments.push(Segment::Run(std::mem::take(&mut run)));
            }
            segments.push(Segment::Split);
            rest = after;
        } else {
            match run.last_mut() {
                Some(Part::Literal(literal)) => literal.push(first),
                _ => run.push(Part::Literal(first.to_string())),
            }
            rest = &rest[first.len_utf8()..];
        }
    }
    if !run.is_empty() {
        segments.push(Segment::Run(run));
    }
    segments
}
