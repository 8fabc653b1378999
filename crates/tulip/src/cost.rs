//! The price of a sequence: dense layers grow with L, attention with L².

/// `cost(L) = L + L²·attention`, in token equivalents.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CostModel {
    /// Weight of the quadratic term, per token. 0 counts plain tokens.
    pub attention: f64,
}

impl CostModel {
    /// Counts plain tokens.
    pub const TOKENS: Self = Self { attention: 0.0 };

    /// Cost of one sequence of `num_tokens`, in token equivalents, rounded up.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "cost is finite and positive"
    )]
    pub fn sequence(&self, num_tokens: usize) -> u64 {
        let length = num_tokens as f64;
        (length + length * length * self.attention).ceil() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_tokens() {
        assert_eq!(CostModel::TOKENS.sequence(512), 512);
    }

    #[test]
    fn attention_passes_the_dense_layers() {
        let cost = CostModel {
            attention: 1.0 / 4096.0,
        };
        assert_eq!(cost.sequence(4096), 8192);
        assert_eq!(cost.sequence(64), 65);
    }
}
