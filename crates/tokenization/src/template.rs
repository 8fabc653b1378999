//! The text that a model wants around a query and a document, where it reads a prompt and not a
//! pair of its tokenizer.
//!
//! A template is cut into control tokens (`<|im_start|>`) and the runs of text between them. The
//! tokenizer reads a run as one text, so ids are those of the rendered prompt; what the caller
//! wrote can never become a control token. All before the document is read once for a request.

use serde_json::Value;

use crate::error::{EncodeError, LoadError};
use crate::prefix::is_byte_level_split_by_spaces;
use crate::tokenizer::{Content, Tokenizer, TokenizerOptions};

/// A template with the places `{query}`, `{document}` and perhaps `{instruction}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairTemplate {
    text: String,
    default_instruction: String,
    document_at: usize,
}

/// A piece of a run of text.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(String),
    Instruction,
    Query,
}

/// What stands before the document's run.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Control(u32),
    Run(Vec<Part>),
}

/// A template in the ids of one tokenizer.
#[derive(Debug)]
pub(crate) struct CompiledTemplate {
    default_instruction: String,
    has_instruction: bool,
    segments: Vec<Segment>,
    /// The run that the document is in, up to it.
    before_document: Vec<Part>,
    /// All after the document.
    suffix: Vec<u32>,
    /// A space after another character always begins a piece of its own.
    splits_at_spaces: bool,
}

/// What precedes the documents of one request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// Ids up to a place where the tokenizer surely splits.
    pub(crate) token_ids: Vec<u32>,
    /// Text between that place and the document, read together with it.
    pub(crate) pending: String,
    /// Tokens of `pending` that are the template's or the query's; 0 where it is only a space,
    /// which becomes a part of the document's first token.
    pub(crate) pending_tokens: usize,
}

/// The query's place, filled.
#[derive(Debug, Clone, Copy)]
pub(crate) enum QueryPart<'a> {
    Text(&'a str),
    TokenIds(&'a [u32]),
}

impl PairTemplate {
    /// Checks the places of a template.
    ///
    /// # Errors
    /// `{query}` or `{document}` is not there exactly once, the document comes first, or
    /// `{instruction}` is there twice or after the document.
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
        Ok(Self {
            text,
            default_instruction: default_instruction.into(),
            document_at,
        })
    }

    /// Whether a request may bring its own instruction.
    #[must_use]
    pub fn has_instruction(&self) -> bool {
        self.text.contains(INSTRUCTION)
    }

    fn before(&self) -> &str {
        &self.text[..self.document_at]
    }

    fn after(&self) -> &str {
        &self.text[self.document_at + DOCUMENT.len()..]
    }
}

const QUERY: &str = "{query}";
const DOCUMENT: &str = "{document}";
const INSTRUCTION: &str = "{instruction}";

impl Tokenizer {
    /// The tokenizer of a model that may have a template of pairs: an empty text is none.
    ///
    /// # Errors
    /// As [`Tokenizer::from_json`], [`PairTemplate::new`] or
    /// [`Tokenizer::from_json_with_template`].
    pub fn from_json_of_model(
        tokenizer_json: &[u8],
        options: TokenizerOptions,
        pair_template: &str,
        default_instruction: &str,
    ) -> Result<Self, LoadError> {
        if pair_template.is_empty() {
            return Self::from_json(tokenizer_json, options);
        }
        let template = PairTemplate::new(pair_template, default_instruction)?;
        Self::from_json_with_template(tokenizer_json, options, &template)
    }

    /// As [`Tokenizer::from_json`], for a model whose pairs are a prompt. Special tokens, and those
    /// that the template uses, are plain text wherever the caller writes them.
    ///
    /// # Errors
    /// As [`Tokenizer::from_json`], or a token of the template has no embedding.
    pub fn from_json_with_template(
        tokenizer_json: &[u8],
        mut options: TokenizerOptions,
        template: &PairTemplate,
    ) -> Result<Self, LoadError> {
        let mut json: Value = serde_json::from_slice(tokenizer_json)
            .map_err(|error| LoadError::Json(error.to_string()))?;
        let control = mark_control_tokens(&mut json, template);
        // White space of a prompt is part of it.
        options.strip = false;
        let mut tokenizer = Self::load(json.to_string().as_bytes(), options, true)?;
        let compiled = CompiledTemplate::new(&tokenizer, template, &control)?;
        let num_special = compiled.fixed_tokens(&tokenizer)?;
        if num_special >= tokenizer.options.max_sequence_tokens {
            return Err(LoadError::SequenceTooShort {
                max_sequence_tokens: tokenizer.options.max_sequence_tokens,
                special_tokens: num_special,
            });
        }
        tokenizer.template = Some(compiled);
        Ok(tokenizer)
    }
}

/// Makes the template's own tokens special, which the tokenizer can be told not to look for in
/// texts. Returns all tokens that a template may hold, with their ids.
fn mark_control_tokens(json: &mut Value, template: &PairTemplate) -> Vec<(String, u32)> {
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

impl CompiledTemplate {
    fn new(
        tokenizer: &Tokenizer,
        template: &PairTemplate,
        control: &[(String, u32)],
    ) -> Result<Self, LoadError> {
        let before = segments(template.before(), control);
        let (mut segments_before, before_document) = match before.split_last() {
            Some((Segment::Run(parts), rest)) => (rest.to_vec(), parts.clone()),
            _ => (before, Vec::new()),
        };
        let mut suffix = Vec::new();
        for segment in segments(template.after(), control) {
            match segment {
                Segment::Control(id) => suffix.push(id),
                Segment::Run(parts) => suffix.extend(plain(tokenizer, &render(&parts, "", ""))?),
            }
        }
        // A prompt that begins with a control token is complete. Around others go the tokens that
        // the tokenizer puts around every text.
        if !matches!(segments_before.first(), Some(Segment::Control(_))) {
            let (prefix, end) = tokenizer.single.constant_parts().ok_or_else(|| {
                LoadError::Template("the post-processor has no constant layout".into())
            })?;
            segments_before.splice(..0, prefix.iter().map(|&id| Segment::Control(id)));
            suffix.extend_from_slice(end);
        }
        let vocab_size = tokenizer.options.vocab_size;
        let controls = segments_before.iter().filter_map(|segment| match segment {
            Segment::Control(id) => Some(*id),
            Segment::Run(_) => None,
        });
        if let Some(id) = controls
            .chain(suffix.iter().copied())
            .find(|&id| id >= vocab_size)
        {
            let token = tokenizer.reference.id_to_token(id).unwrap_or_default();
            return Err(LoadError::SpecialTokenOutOfRange {
                token,
                id,
                vocab_size,
            });
        }
        Ok(Self {
            default_instruction: template.default_instruction.clone(),
            has_instruction: template.has_instruction(),
            segments: segments_before,
            before_document,
            suffix,
            splits_at_spaces: is_byte_level_split_by_spaces(&tokenizer.reference),
        })
    }

    /// Whether a request may bring its own instruction.
    pub(crate) fn has_instruction(&self) -> bool {
        self.has_instruction
    }

    pub(crate) fn suffix(&self) -> &[u32] {
        &self.suffix
    }

    /// Tokens of a prompt with an empty query and document and the default instruction.
    fn fixed_tokens(&self, tokenizer: &Tokenizer) -> Result<usize, LoadError> {
        let head = self.head(tokenizer, "", QueryPart::Text(""));
        let head = head.map_err(|error| LoadError::Template(error.to_string()))?;
        Ok(head.token_ids.len() + head.pending_tokens + self.suffix.len())
    }

    /// All before the document; an empty instruction is the default one.
    pub(crate) fn head(
        &self,
        tokenizer: &Tokenizer,
        instruction: &str,
        query: QueryPart<'_>,
    ) -> Result<Head, EncodeError> {
        let instruction = if instruction.is_empty() {
            &self.default_instruction
        } else {
            instruction
        };
        let mut head = Head::default();
        for segment in &self.segments {
            match segment {
                Segment::Control(id) => head.token_ids.push(*id),
                Segment::Run(parts) => {
                    let rest = open_run(tokenizer, parts, instruction, query, &mut head)?;
                    head.token_ids.extend(tokenizer.encode_segment(&rest)?);
                }
            }
        }
        let open = open_run(
            tokenizer,
            &self.before_document,
            instruction,
            query,
            &mut head,
        )?;
        let split = if self.splits_at_spaces {
            last_space_after_text(&open).unwrap_or(0)
        } else {
            0
        };
        let (certain, pending) = open.split_at(split);
        head.token_ids.extend(tokenizer.encode_segment(certain)?);
        if !pending.trim().is_empty() {
            head.pending_tokens = tokenizer.encode_segment(pending)?.len();
        }
        head.pending = pending.to_owned();
        Ok(head)
    }
}

/// The run's text with its places filled. Ids of a query cannot be read together with what stands
/// beside them: what is before them is read apart, and the rest is the text after them.
fn open_run(
    tokenizer: &Tokenizer,
    parts: &[Part],
    instruction: &str,
    query: QueryPart<'_>,
    head: &mut Head,
) -> Result<String, EncodeError> {
    match query {
        QueryPart::Text(text) => Ok(render(parts, instruction, text)),
        QueryPart::TokenIds(ids) => {
            let Some(at) = parts.iter().position(|part| *part == Part::Query) else {
                return Ok(render(parts, instruction, ""));
            };
            let before = render(&parts[..at], instruction, "");
            head.token_ids.extend(tokenizer.encode_segment(&before)?);
            head.token_ids.extend_from_slice(ids);
            Ok(render(&parts[at + 1..], instruction, ""))
        }
    }
}

fn render(parts: &[Part], instruction: &str, query: &str) -> String {
    let texts = parts.iter().map(|part| match part {
        Part::Literal(text) => text.as_str(),
        Part::Instruction => instruction,
        Part::Query => query,
    });
    texts.collect()
}

/// Where the last space begins that has a visible character before it.
fn last_space_after_text(text: &str) -> Option<usize> {
    let mut spaces = text.rmatch_indices(' ').map(|(at, _)| at);
    spaces.find(|&at| {
        let before = text[..at].chars().next_back();
        before.is_some_and(|c| !c.is_whitespace() && !c.is_control())
    })
}

/// Cuts a part of a template at its control tokens and places.
fn segments(text: &str, control: &[(String, u32)]) -> Vec<Segment> {
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

fn plain(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>, LoadError> {
    let tokens = tokenizer.encode_segment(text);
    tokens.map_err(|error| LoadError::Template(error.to_string()))
}

/// The query of a request as text or ids.
pub(crate) fn query_part(content: &Content) -> QueryPart<'_> {
    match content {
        Content::Text(text) => QueryPart::Text(text),
        Content::TokenIds(ids) => QueryPart::TokenIds(ids),
    }
}

#[cfg(test)]
#[path = "template_tests.rs"]
mod tests;
