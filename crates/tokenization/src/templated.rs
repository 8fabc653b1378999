//! Queries of models with a template.

use crate::encode::{Query, TemplatedQuery};
use crate::error::EncodeError;
use crate::template::{CompiledTemplate, Head, QueryPart, query_part};
use crate::tokenizer::{Content, Tokenizer};
use crate::truncation::{OverlongPolicy, PairTruncation, TruncationOptions, cut};

impl Tokenizer {
    /// All before the documents of a request. The query is read together with the template's text
    /// around it, unless it has to be cut, or came as ids.
    pub(crate) fn encode_templated_query(
        &self,
        template: &CompiledTemplate,
        content: &Content,
        instruction: &str,
        truncation: &TruncationOptions,
    ) -> Result<Query, EncodeError> {
        let may_cut = truncation.policy != OverlongPolicy::Error;
        let ceiling = truncation.max_query_tokens.unwrap_or(usize::MAX);
        let yields = may_cut && truncation.pair == PairTruncation::LongestFirst;
        let by_ids = matches!(content, Content::TokenIds(_));
        let mut own = Vec::new();
        let mut truncated = None;
        if yields || by_ids || truncation.max_query_tokens.is_some() {
            let given = self.content("", content, ceiling, truncation.side)?;
            if !may_cut && given.len() > ceiling {
                return Err(EncodeError::QueryTooLong {
                    query_tokens: given.len(),
                    limit: ceiling,
                });
            }
            let (kept, cut) = cut(&given, ceiling, truncation.side);
            own = kept.to_vec();
            truncated = cut;
        }
        let part = if truncated.is_some() {
            QueryPart::TokenIds(&own)
        } else {
            query_part(content)
        };
        let mut head = template.head(self, instruction, part)?;
        let mut fixed = 0;
        if yields {
            // A query that is cut is read apart from the text beside it, which can be more tokens.
            let apart = template.head(self, instruction, QueryPart::TokenIds(&own))?;
            let num_tokens = head.num_tokens().max(apart.num_tokens());
            fixed = num_tokens.saturating_sub(own.len());
            if head.pending_tokens > 0 {
                // What is read together with the documents must not hold a query that may be cut.
                head = apart;
            }
        }
        let token_ids = std::mem::take(&mut head.token_ids);
        let query = Query {
            token_ids,
            truncated,
            templated: Some(TemplatedQuery {
                head,
                own,
                fixed,
                instruction: instruction.to_owned(),
            }),
        };
        let limit = truncation.max_tokens.min(self.options.max_sequence_tokens);
        let room = limit.saturating_sub(self.num_special_pair());
        // A query that may be cut needs room for one token of it.
        let needed = if yields {
            fixed + 1
        } else {
            query.num_tokens()
        };
        if needed > room && !instruction.is_empty() {
            let instruction_tokens = self.encode_segment(instruction)?.len();
            let limit = room.saturating_sub(needed.saturating_sub(instruction_tokens));
            if limit > 0 {
                return Err(EncodeError::InstructionTooLong {
                    instruction_tokens,
                    limit,
                });
            }
        }
        if !yields && query.num_tokens() > room {
            return Err(EncodeError::QueryTooLong {
                query_tokens: query.num_tokens(),
                limit: room,
            });
        }
        Ok(query)
    }

    /// The head with other tokens of the query.
    pub(crate) fn templated_head(
        &self,
        instruction: &str,
        query: &[u32],
    ) -> Result<Head, EncodeError> {
        match &self.template {
            Some(template) => template.head(self, instruction, QueryPart::TokenIds(query)),
            None => Ok(Head::default()),
        }
    }
}
