//! Segments to sequences: what is cut, and what is an error instead.

use std::borrow::Cow;

use crate::error::EncodeError;
use crate::layout::Assembled;
use crate::template::Head;
use crate::tokenizer::{Content, Tokenizer};
use crate::truncation::{
    OverlongPolicy, PairTruncation, Side, Truncated, TruncationOptions, cut, longest_first,
};

/// One sequence as the model reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Encoded {
    /// Ids, special tokens included, each below `vocab_size`.
    pub token_ids: Vec<u32>,
    /// Index of the first token of type 1; 0 = all are of type 0.
    pub second_segment_start: u32,
    /// What was cut of the document, or of the single text with its prompt.
    pub truncated: Option<Truncated>,
    /// What was cut of the query for this pair ([`PairTruncation::LongestFirst`] only).
    pub query_truncated: Option<Truncated>,
}

/// The query of a request, tokenized once for all its pairs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Query {
    /// Its own tokens, without special tokens; of a model with a template all that stands before
    /// the document.
    pub token_ids: Vec<u32>,
    /// What `max_query_tokens` cut.
    pub truncated: Option<Truncated>,
    /// Of a model with a template.
    pub(crate) templated: Option<TemplatedQuery>,
}

/// What a template adds to a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TemplatedQuery {
    /// All before the document, but its `token_ids`, which are the query's.
    pub(crate) head: Head,
    /// The query's own tokens, where it may have to be cut.
    pub(crate) own: Vec<u32>,
    /// Most tokens of the prompt around these, where the query may have to be cut.
    pub(crate) fixed: usize,
    pub(crate) instruction: String,
}

impl Query {
    /// Text that is read together with each document, and the tokens of it that must stay.
    pub(crate) fn pending(&self) -> (&str, usize) {
        match &self.templated {
            Some(one) => (&one.head.pending, one.head.pending_tokens),
            None => ("", 0),
        }
    }

    /// Tokens that stand before the document and are not cut with it.
    pub(crate) fn num_tokens(&self) -> usize {
        self.token_ids.len() + self.pending().1
    }
}

impl Tokenizer {
    /// The sequence of one text with `prompt` before it, cut to what `max_tokens` and
    /// `max_document_tokens` leave. The prompt counts as a part of the text.
    ///
    /// # Errors
    /// The text is too long and must not be cut, has no room at all, or cannot be tokenized.
    pub fn encode_single(
        &self,
        prompt: &str,
        content: &Content,
        truncation: &TruncationOptions,
    ) -> Result<Encoded, EncodeError> {
        let special_tokens = self.single.num_special();
        let limit = truncation.max_tokens.min(self.options.max_sequence_tokens);
        let room = limit.saturating_sub(special_tokens);
        let ceiling = truncation.max_document_tokens.unwrap_or(usize::MAX);
        let given = self.content(prompt, content, room.min(ceiling), truncation.side)?;
        if truncation.policy == OverlongPolicy::Error {
            check_document(given.len(), truncation)?;
            if given.len() > room {
                return Err(EncodeError::TooLong {
                    tokens: given.len() + special_tokens,
                    limit,
                });
            }
        }
        if special_tokens > limit || (room == 0 && !given.is_empty()) {
            return Err(EncodeError::NoRoom {
                query_tokens: 0,
                special_tokens,
                limit,
            });
        }
        let (kept, truncated) = cut(&given, room.min(ceiling), truncation.side);
        let sequence = self.single.assemble(&self.reference, kept, None)?;
        Ok(Encoded {
            token_ids: sequence.token_ids,
            second_segment_start: sequence.second_segment_start,
            truncated,
            query_truncated: None,
        })
    }

    /// The query of pairs, cut to `max_query_tokens`.
    ///
    /// # Errors
    /// The query passes its ceiling and must not be cut, fills more than a whole sequence and
    /// only documents may be cut, or cannot be tokenized.
    pub fn encode_query(
        &self,
        content: &Content,
        truncation: &TruncationOptions,
    ) -> Result<Query, EncodeError> {
        self.encode_query_with(content, "", truncation)
    }

    /// As [`Tokenizer::encode_query`], with an instruction for the model's template; an empty one
    /// is the template's own.
    ///
    /// # Errors
    /// As [`Tokenizer::encode_query`], or the template has no place for an instruction.
    pub fn encode_query_with(
        &self,
        content: &Content,
        instruction: &str,
        truncation: &TruncationOptions,
    ) -> Result<Query, EncodeError> {
        if !instruction.is_empty() && !self.has_instruction() {
            return Err(EncodeError::Instruction);
        }
        if let Some(template) = &self.template {
            return self.encode_templated_query(template, content, instruction, truncation);
        }
        let limit = truncation.max_tokens.min(self.options.max_sequence_tokens);
        let room = limit.saturating_sub(self.num_special_pair());
        let ceiling = truncation.max_query_tokens.unwrap_or(usize::MAX);
        let may_cut = truncation.policy == OverlongPolicy::Cut;
        // The most that can be used: with `longest_first` pairs decide it, later.
        let must_fit = !(may_cut && truncation.pair == PairTruncation::LongestFirst);
        let usable = if must_fit { room.min(ceiling) } else { ceiling };
        let given = self.content("", content, usable, truncation.side)?;
        if !may_cut && given.len() > ceiling {
            return Err(EncodeError::QueryTooLong {
                query_tokens: given.len(),
                limit: ceiling,
            });
        }
        let (kept, truncated) = cut(&given, ceiling, truncation.side);
        if must_fit && kept.len() > room {
            return Err(EncodeError::QueryTooLong {
                query_tokens: given.len(),
                limit: room,
            });
        }
        let token_ids = if truncated.is_some() {
            kept.to_vec()
        } else {
            given.into_owned()
        };
        Ok(Query {
            token_ids,
            truncated,
            templated: None,
        })
    }

    /// The sequence of a query and a document, cut to `max_tokens` and `max_document_tokens`.
    /// An empty document is a text like others.
    ///
    /// # Errors
    /// The document is too long and must not be cut, the query leaves it no room, or it cannot be
    /// tokenized.
    pub fn encode_pair(
        &self,
        query: &Query,
        document: &Content,
        truncation: &TruncationOptions,
    ) -> Result<Encoded, EncodeError> {
        let special_tokens = self.num_special_pair();
        let limit = truncation.max_tokens.min(self.options.max_sequence_tokens);
        let room = limit.saturating_sub(special_tokens);
        let side = truncation.side;
        let query_tokens = query.num_tokens();
        let ceiling = truncation.max_document_tokens.unwrap_or(usize::MAX);
        // Beyond both numbers `longest_first` too decides the same, however long the document is.
        let usable = ceiling.min(room.max(query_tokens));
        let given = self.read_document(query, document, usable, side)?;
        let given_tokens = given.own_tokens();
        let document_tokens = given_tokens.min(ceiling);
        let total = query_tokens + document_tokens;

        if truncation.policy == OverlongPolicy::Error {
            check_document(given_tokens, truncation)?;
            if total > room {
                return Err(EncodeError::TooLong {
                    tokens: total + special_tokens,
                    limit,
                });
            }
        }
        let no_room = EncodeError::NoRoom {
            query_tokens,
            special_tokens,
            limit,
        };
        let (query_lost, document_kept) = match truncation.pair {
            _ if special_tokens > limit => return Err(no_room),
            _ if total <= room => (0, document_tokens),
            PairTruncation::ProtectQuery if query_tokens > room => {
                return Err(EncodeError::QueryTooLong {
                    query_tokens,
                    limit: room,
                });
            }
            PairTruncation::ProtectQuery if query_tokens == room => return Err(no_room),
            PairTruncation::ProtectQuery => (0, room - query_tokens),
            PairTruncation::LongestFirst if room == 0 => return Err(no_room),
            PairTruncation::LongestFirst => match &query.templated {
                Some(templated) => {
                    // The rest of the prompt is cut no more than special tokens are.
                    let (own, fixed) = (templated.own.len(), templated.fixed);
                    if fixed >= room {
                        return Err(no_room);
                    }
                    match longest_first(own, document_tokens, room - fixed) {
                        (kept, _) if kept == own => (0, room - query_tokens),
                        (kept, document_kept) => (own - kept, document_kept),
                    }
                }
                None => {
                    let (kept, document_kept) = longest_first(query_tokens, document_tokens, room);
                    (query_tokens - kept, document_kept)
                }
            },
        };
        let (first, query_truncated) = self.cut_query(query, query_lost, side)?;
        // Cutting to the ceiling and then to the room keeps the same as cutting once.
        let (second, truncated) =
            self.cut_document(&given, query, document, document_kept, side)?;
        let sequence = self.assemble_pair(&first, &second)?;
        Ok(Encoded {
            token_ids: sequence.token_ids,
            second_segment_start: sequence.second_segment_start,
            truncated,
            query_truncated: query_truncated.map(|cut| Truncated {
                tokens_given: query
                    .truncated
                    .map_or(cut.tokens_given, |first| first.tokens_given),
                ..cut
            }),
        })
    }

    /// The query without `lost` of its own tokens.
    fn cut_query<'a>(
        &self,
        query: &'a Query,
        lost: usize,
        side: Side,
    ) -> Result<(Cow<'a, [u32]>, Option<Truncated>), EncodeError> {
        let Some(templated) = &query.templated else {
            let kept = query.token_ids.len().saturating_sub(lost);
            let (first, truncated) = cut(&query.token_ids, kept, side);
            return Ok((Cow::Borrowed(first), truncated));
        };
        if lost == 0 {
            return Ok((Cow::Borrowed(&query.token_ids), None));
        }
        let own_kept = templated.own.len().saturating_sub(lost);
        let (own, truncated) = cut(&templated.own, own_kept, side);
        let head = self.templated_head(&templated.instruction, own)?;
        Ok((Cow::Owned(head.token_ids), truncated))
    }

    /// Puts together what a pair is made of: special tokens, or the end of the template, whose
    /// text right after the document is in `second`.
    pub(crate) fn assemble_pair(
        &self,
        first: &[u32],
        second: &[u32],
    ) -> Result<Assembled, EncodeError> {
        match &self.template {
            Some(template) => Ok(Assembled {
                token_ids: [first, second, template.rest()].concat(),
                second_segment_start: 0,
            }),
            None => self.pair.assemble(&self.reference, first, Some(second)),
        }
    }
}

fn check_document(tokens: usize, truncation: &TruncationOptions) -> Result<(), EncodeError> {
    match truncation.max_document_tokens {
        Some(limit) if tokens > limit => Err(EncodeError::DocumentTooLong {
            document_tokens: tokens,
            limit,
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "encode_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "reference_tests.rs"]
mod reference_tests;
