//! The text that a model wants around a query and a document, where it reads a prompt and not a
//! pair of its tokenizer.
//!
//! A template is cut into control tokens (`<|im_start|>`) and the runs of text between them. The
//! tokenizer reads a run as one text, so ids are those of the rendered prompt; what the caller
//! wrote can never become a control token. All before the document's run is read once for a
//! request, all after it once for the model.

use serde_json::Value;

use crate::error::{EncodeError, LoadError};
use crate::pair_template::{PairTemplate, Part, Segment, mark_control_tokens, render, segments};
use crate::prefix::is_byte_level_split_by_spaces;
use crate::tokenizer::{Content, Tokenizer, TokenizerOptions};

/// A template in the ids of one tokenizer.
#[derive(Debug)]
pub(crate) struct CompiledTemplate {
    default_instruction: String,
    has_instruction: bool,
    /// All before the document, where there is an instruction and where there is none.
    instructed: Opening,
    plain: Opening,
    /// The run that the document is in, from its end on: read together with the document.
    after_document: String,
    /// How many tokens `after_document` has by itself.
    after_tokens: usize,
    /// All after the document, read by itself: first the `after_tokens`.
    suffix: Vec<u32>,
    /// A space after another character always begins a piece of its own.
    splits_at_spaces: bool,
}

/// All of a template before the document.
#[derive(Debug, Clone)]
struct Opening {
    segments: Vec<Segment>,
    /// The run that the document is in, up to it.
    before_document: Vec<Part>,
}

impl Opening {
    fn new(text: &str, control: &[(String, u32)]) -> Self {
        let mut segments = segments(text, control);
        let before_document = match segments.pop() {
            Some(Segment::Run(parts)) => parts,
            last => {
                segments.extend(last);
                Vec::new()
            }
        };
        Self {
            segments,
            before_document,
        }
    }

    fn begins_with_control(&self) -> bool {
        matches!(self.segments.first(), Some(Segment::Control(_)))
    }

    fn controls(&self) -> impl Iterator<Item = u32> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Control(id) => Some(*id),
            Segment::Run(_) | Segment::Split => None,
        })
    }
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

impl Head {
    pub(crate) fn num_tokens(&self) -> usize {
        self.token_ids.len() + self.pending_tokens
    }
}

/// The query's place, filled.
#[derive(Debug, Clone, Copy)]
pub(crate) enum QueryPart<'a> {
    Text(&'a str),
    TokenIds(&'a [u32]),
}

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
        let max_sequence_tokens = tokenizer.options.max_sequence_tokens;
        if num_special >= max_sequence_tokens {
            let tokens = plain(&tokenizer, &template.default_instruction)?.len();
            let template_tokens = num_special.saturating_sub(tokens);
            // At least one token of the texts.
            let limit = max_sequence_tokens.saturating_sub(template_tokens + 1);
            return Err(if limit > 0 && tokens > limit && compiled.has_instruction {
                LoadError::InstructionTooLong {
                    tokens,
                    limit,
                    template_tokens,
                    max_sequence_tokens,
                }
            } else {
                LoadError::TemplateTooLong {
                    tokens: num_special,
                    max_sequence_tokens,
                }
            });
        }
        tokenizer.template = Some(compiled);
        Ok(tokenizer)
    }
}

impl CompiledTemplate {
    fn new(
        tokenizer: &Tokenizer,
        template: &PairTemplate,
        control: &[(String, u32)],
    ) -> Result<Self, LoadError> {
        let [mut instructed, mut plain_opening] =
            [true, false].map(|with| Opening::new(&template.before(with), control));
        let after = segments(template.after(), control);
        let after_document = match after.first() {
            Some(Segment::Run(parts)) => render(parts, "", ""),
            _ => String::new(),
        };
        let after_tokens = plain(tokenizer, &after_document)?.len();
        let mut suffix = Vec::new();
        for segment in after {
            match segment {
                Segment::Control(id) => suffix.push(id),
                Segment::Run(parts) => suffix.extend(plain(tokenizer, &render(&parts, "", ""))?),
                Segment::Split => {}
            }
        }
        // A prompt that begins with a control token is complete. Around others go the tokens that
        // the tokenizer puts around every text.
        let complete = instructed.begins_with_control();
        if complete != plain_opening.begins_with_control() {
            let message = "begins with a control token only with, or only without, an instruction";
            return Err(LoadError::Template(message.into()));
        }
        if !complete {
            let (prefix, end) = tokenizer.single.constant_parts().ok_or_else(|| {
                LoadError::Template("the post-processor has no constant layout".into())
            })?;
            for opening in [&mut instructed, &mut plain_opening] {
                let prefix = prefix.iter().map(|&id| Segment::Control(id));
                opening.segments.splice(..0, prefix);
            }
            suffix.extend_from_slice(end);
        }
        let vocab_size = tokenizer.options.vocab_size;
        if let Some(id) = instructed
            .controls()
            .chain(plain_opening.controls())
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
            instructed,
            plain: plain_opening,
            after_document,
            after_tokens,
            suffix,
            splits_at_spaces: is_byte_level_split_by_spaces(&tokenizer.reference),
        })
    }

    /// Whether a request may bring its own instruction.
    pub(crate) fn has_instruction(&self) -> bool {
        self.has_instruction
    }

    /// All after the document, read by itself.
    pub(crate) fn suffix(&self) -> &[u32] {
        &self.suffix
    }

    /// The text that is read together with the document's end, and its tokens by itself.
    pub(crate) fn after_document(&self) -> (&str, &[u32]) {
        (&self.after_document, &self.suffix[..self.after_tokens])
    }

    /// What follows that text.
    pub(crate) fn rest(&self) -> &[u32] {
        &self.suffix[self.after_tokens..]
    }

    /// Tokens of a prompt with an empty query and document and the default instruction.
    fn fixed_tokens(&self, tokenizer: &Tokenizer) -> Result<usize, LoadError> {
        let head = self.head(tokenizer, "", QueryPart::Text(""));
        let head = head.map_err(|error| LoadError::Template(error.to_string()))?;
        Ok(head.num_tokens() + self.suffix.len())
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
        let opening = if instruction.is_empty() {
            &self.plain
        } else {
            &self.instructed
        };
        let mut head = Head::default();
        for segment in &opening.segments {
            match segment {
                Segment::Control(id) => head.token_ids.push(*id),
                Segment::Run(parts) => {
                    let rest = open_run(tokenizer, parts, instruction, query, &mut head)?;
                    head.token_ids.extend(tokenizer.encode_segment(&rest)?);
                }
                Segment::Split => {}
            }
        }
        let open = open_run(
            tokenizer,
            &opening.before_document,
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

/// Where the last space begins that has a visible character before it.
fn last_space_after_text(text: &str) -> Option<usize> {
    let mut spaces = text.rmatch_indices(' ').map(|(at, _)| at);
    spaces.find(|&at| {
        let before = text[..at].chars().next_back();
        before.is_some_and(|c| !c.is_whitespace() && !c.is_control())
    })
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
