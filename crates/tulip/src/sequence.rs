//! What the engine computes on: one sequence of token ids, one row of output.

/// One sequence as the model reads it, special tokens included. At least one token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    /// Token ids, each below the model's `vocab_size`.
    pub token_ids: Vec<u32>,
    /// Index of the first token of the second segment (token type 1); 0 = one segment.
    pub second_segment_start: u32,
}

impl Sequence {
    /// Number of tokens.
    #[must_use]
    pub fn num_tokens(&self) -> usize {
        self.token_ids.len()
    }

    /// Token type of the token at `position`: 0 or 1.
    #[must_use]
    pub fn token_type(&self, position: usize) -> i32 {
        let start = self.second_segment_start as usize;
        i32::from(start > 0 && position >= start)
    }
}

impl From<Vec<u32>> for Sequence {
    fn from(token_ids: Vec<u32>) -> Self {
        Self {
            token_ids,
            second_segment_start: 0,
        }
    }
}
