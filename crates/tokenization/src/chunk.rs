//! A document too long for one sequence as several, each with the query and a part of it.

use crate::encode::Query;
use crate::error::EncodeError;
use crate::tokenizer::{Content, Tokenizer};
use crate::truncation::{OverlongPolicy, Side, TruncationOptions, cut};

/// A sequence with a part of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Chunk {
    /// As the model reads it.
    pub token_ids: Vec<u32>,
    /// Index of the first token of type 1; 0 = all are of type 0.
    pub second_segment_start: u32,
    /// Index of the part's first token among the document's own.
    pub start: usize,
    /// Tokens of the part.
    pub tokens: usize,
}

/// Of a chunk, where the request does not say it.
const OVERLAP_SHARE: usize = 8;

impl Tokenizer {
    /// The pairs of a query and the parts of a document. Neighbours share `overlap` tokens (none
    /// said = an eighth), the last one ends with the document and is as long as the others.
    /// `max_document_tokens` is the ceiling of a part.
    ///
    /// # Errors
    /// The query leaves no room, the overlap is not below it, or the document cannot be tokenized.
    pub fn encode_pair_chunks(
        &self,
        query: &Query,
        document: &Content,
        truncation: &TruncationOptions,
        overlap: Option<usize>,
    ) -> Result<Vec<Chunk>, EncodeError> {
        let limit = truncation.max_tokens.min(self.options.max_sequence_tokens);
        let special_tokens = self.num_special_pair();
        let query_tokens = query.num_tokens();
        let room = limit.saturating_sub(special_tokens + query_tokens);
        let given = self.read_document(query, document, usize::MAX, Side::Right)?;
        let own_tokens = given.own_tokens();
        if room == 0 && own_tokens > 0 {
            return Err(EncodeError::NoRoom {
                query_tokens,
                special_tokens,
                limit,
            });
        }
        let part_tokens = room.min(truncation.max_document_tokens.unwrap_or(room));
        if own_tokens <= part_tokens {
            Windows::new(own_tokens, part_tokens, overlap)?.check(limit - room, truncation)?;
            let chunk = self.chunk(query, &given.token_ids, 0, own_tokens)?;
            return Ok(vec![chunk]);
        }
        let parts = self.document_parts(&given, query, document)?;
        let windows = Windows::new(parts.own().len(), part_tokens, overlap)?;
        windows.check(limit - room, truncation)?;
        let chunks = windows.starts().map(|start| {
            let tokens = windows.tokens;
            self.chunk(query, &parts.part(start, tokens), start, tokens)
        });
        chunks.collect()
    }

    /// A part of a document, with the text beside it, as a sequence.
    fn chunk(
        &self,
        query: &Query,
        part: &[u32],
        start: usize,
        tokens: usize,
    ) -> Result<Chunk, EncodeError> {
        let sequence = self.assemble_pair(&query.token_ids, part)?;
        Ok(Chunk {
            token_ids: sequence.token_ids,
            second_segment_start: sequence.second_segment_start,
            start,
            tokens,
        })
    }

    /// The parts of one text, `prompt` before each of them, as [`Tokenizer::encode_pair_chunks`].
    ///
    /// # Errors
    /// The prompt leaves no room, the overlap is not below it, or the text cannot be tokenized.
    pub fn encode_single_chunks(
        &self,
        prompt: &str,
        content: &Content,
        truncation: &TruncationOptions,
        overlap: Option<usize>,
    ) -> Result<Vec<Chunk>, EncodeError> {
        let whole = TruncationOptions {
            policy: OverlongPolicy::Error,
            ..truncation.clone()
        };
        match self.encode_single(prompt, content, &whole) {
            Ok(encoded) => {
                let tokens = encoded.token_ids.len() - self.single.num_special();
                return Ok(vec![Chunk {
                    token_ids: encoded.token_ids,
                    second_segment_start: encoded.second_segment_start,
                    start: 0,
                    tokens,
                }]);
            }
            Err(EncodeError::TooLong { .. } | EncodeError::DocumentTooLong { .. }) => {}
            Err(error) => return Err(error),
        }
        let limit = truncation.max_tokens.min(self.options.max_sequence_tokens);
        let special_tokens = self.single.num_special();
        let prompt_ids = self.encode_segment(prompt)?;
        let own = self.content("", content, usize::MAX, Side::Right)?;
        let room = limit.saturating_sub(special_tokens + prompt_ids.len());
        if room == 0 {
            return Err(EncodeError::NoRoom {
                query_tokens: 0,
                special_tokens: special_tokens + prompt_ids.len(),
                limit,
            });
        }
        let part_tokens = room.min(truncation.max_document_tokens.unwrap_or(room));
        let windows = Windows::new(own.len(), part_tokens, overlap)?;
        windows.check(limit - room, truncation)?;
        let chunks = windows.starts().map(|start| {
            let (part, _) = cut(&own[start..], part_tokens, Side::Right);
            let text = [&prompt_ids, part].concat();
            let sequence = self.single.assemble(&self.reference, &text, None)?;
            Ok(Chunk {
                token_ids: sequence.token_ids,
                second_segment_start: sequence.second_segment_start,
                start,
                tokens: part.len(),
            })
        });
        chunks.collect()
    }
}

/// Where the parts of a document begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Windows {
    /// Tokens of a part.
    tokens: usize,
    /// From one part to the next.
    step: usize,
    /// First token of the last part, which may share more with the one before it.
    last: usize,
}

impl Windows {
    /// Parts of `part_tokens` of all `total` tokens, or one of all there are.
    fn new(total: usize, part_tokens: usize, overlap: Option<usize>) -> Result<Self, EncodeError> {
        if total <= part_tokens {
            return Ok(Self {
                tokens: total,
                step: 1,
                last: 0,
            });
        }
        let overlap = overlap.unwrap_or(part_tokens / OVERLAP_SHARE);
        if overlap >= part_tokens {
            return Err(EncodeError::ChunkOverlap {
                overlap,
                room: part_tokens,
            });
        }
        Ok(Self {
            tokens: part_tokens,
            step: part_tokens - overlap,
            last: total - part_tokens,
        })
    }

    fn starts(self) -> impl Iterator<Item = usize> {
        (0..self.last).step_by(self.step).chain([self.last])
    }

    /// Refuses what would be too much, before it is made: the parts of one document can be many
    /// times the document, where they share much or each brings a long query.
    fn check(
        self,
        tokens_around: usize,
        truncation: &TruncationOptions,
    ) -> Result<(), EncodeError> {
        let count = self.last.div_ceil(self.step) + 1;
        let tokens = count.saturating_mul(tokens_around + self.tokens);
        match truncation.max_request_tokens {
            Some(limit) if tokens > limit => Err(EncodeError::RequestTooLong { tokens, limit }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_cover_all_and_share_what_they_should() {
        for total in 0..60 {
            for part in 1..12 {
                for overlap in 0..part {
                    let windows = Windows::new(total, part, Some(overlap)).unwrap();
                    let starts: Vec<_> = windows.starts().collect();
                    assert_eq!(starts[0], 0);
                    for pair in starts.windows(2) {
                        // Never less than asked for; the last one may share more.
                        assert!(pair[1] > pair[0] && pair[0] + part >= pair[1] + overlap);
                    }
                    let end = starts[starts.len() - 1] + part;
                    assert!(end == total || (starts.len() == 1 && end >= total));
                }
            }
        }
    }

    #[test]
    fn an_overlap_of_a_whole_chunk_is_refused() {
        let starts = |total, part, overlap| {
            Windows::new(total, part, overlap).map(|windows| windows.starts().collect())
        };
        let error = starts(100, 10, Some(10)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "chunk_overlap_tokens=10 must be below the 10 tokens that a chunk may have"
        );
        assert_eq!(starts(10, 10, Some(10)), Ok(vec![0]));
        assert_eq!(starts(20, 16, None), Ok(vec![0, 4]));
    }

    #[test]
    fn what_would_be_too_much_is_refused_before_it_is_made() {
        // A document of a million tokens in parts that begin at each of them.
        let windows = Windows::new(1_000_000, 512, Some(511)).unwrap();
        let count = 1_000_000 - 512 + 1;
        let check = |limit| {
            let mut truncation = TruncationOptions::to(600);
            truncation.max_request_tokens = Some(limit);
            windows.check(88, &truncation)
        };
        assert_eq!(check(count * 600), Ok(()));
        let (tokens, limit) = (count * 600, count * 600 - 1);
        let expected = EncodeError::RequestTooLong { tokens, limit };
        assert_eq!(check(limit), Err(expected));
    }
}
