//! Segments to sequences: what is cut, and what is an error instead.

use crate::error::EncodeError;
use crate::tokenizer::{Content, Tokenizer};
use crate::truncation::{
    OverlongPolicy, PairTruncation, Truncated, TruncationOptions, cut, longest_first,
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
    /// Its own tokens, without special tokens.
    pub token_ids: Vec<u32>,
    /// What `max_query_tokens` cut.
    pub truncated: Option<Truncated>,
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
        let limit = truncation.max_tokens.min(self.options.max_sequence_tokens);
        let room = limit.saturating_sub(self.pair.num_special());
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
        let special_tokens = self.pair.num_special();
        let limit = truncation.max_tokens.min(self.options.max_sequence_tokens);
        let room = limit.saturating_sub(special_tokens);
        let side = truncation.side;
        let query_tokens = query.token_ids.len();
        let ceiling = truncation.max_document_tokens.unwrap_or(usize::MAX);
        // Beyond both numbers `longest_first` too decides the same, however long the document is.
        let usable = ceiling.min(room.max(query_tokens));
        let given = self.content("", document, usable, side)?;
        let document_tokens = given.len().min(ceiling);
        let total = query_tokens + document_tokens;

        if truncation.policy == OverlongPolicy::Error {
            check_document(given.len(), truncation)?;
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
        let (query_kept, document_kept) = match truncation.pair {
            _ if special_tokens > limit => return Err(no_room),
            _ if total <= room => (query_tokens, document_tokens),
            PairTruncation::ProtectQuery if query_tokens > room => {
                return Err(EncodeError::QueryTooLong {
                    query_tokens,
                    limit: room,
                });
            }
            PairTruncation::ProtectQuery if query_tokens == room => return Err(no_room),
            PairTruncation::ProtectQuery => (query_tokens, room - query_tokens),
            PairTruncation::LongestFirst if room == 0 => return Err(no_room),
            PairTruncation::LongestFirst => longest_first(query_tokens, document_tokens, room),
        };
        let (first, query_truncated) = cut(&query.token_ids, query_kept, side);
        // Cutting to the ceiling and then to the room keeps the same as cutting once.
        let (second, truncated) = cut(&given, document_kept, side);
        let sequence = self.pair.assemble(&self.reference, first, Some(second))?;
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
