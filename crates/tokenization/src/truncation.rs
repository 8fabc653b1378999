//! How many tokens of each part remain, and which.

/// Which end is cut off.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Side {
    /// The end is cut off, the first tokens stay.
    #[default]
    Right,
    /// The beginning is cut off, the last tokens stay.
    Left,
}

/// What gives way when a pair is too long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PairTruncation {
    /// Only the document.
    #[default]
    ProtectQuery,
    /// The longer of the two, by the rule of Hugging Face's `longest_first`.
    LongestFirst,
}

/// What happens to a text that is too long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OverlongPolicy {
    /// It is cut, and the cut is reported.
    #[default]
    Cut,
    /// It is an error.
    Error,
}

/// Limits of a request's sequences, in tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TruncationOptions {
    /// What happens to a text that is too long.
    pub policy: OverlongPolicy,
    /// Which end is cut off.
    pub side: Side,
    /// What gives way in a pair.
    pub pair: PairTruncation,
    /// Ceiling of the whole sequence with special tokens, not above the model's own.
    pub max_tokens: usize,
    /// Ceiling of the query's own tokens.
    pub max_query_tokens: Option<usize>,
    /// Ceiling of each document's, or single text's, own tokens.
    pub max_document_tokens: Option<usize>,
    /// Ceiling of all sequences of the request together. Never met by cutting: what comes after
    /// it is an error.
    pub max_request_tokens: Option<usize>,
}

impl TruncationOptions {
    /// Cut at the right, protect the query, no ceilings of the parts.
    #[must_use]
    pub fn to(max_tokens: usize) -> Self {
        Self {
            policy: OverlongPolicy::default(),
            side: Side::default(),
            pair: PairTruncation::default(),
            max_tokens,
            max_query_tokens: None,
            max_document_tokens: None,
            max_request_tokens: None,
        }
    }
}

/// A cut that was made. Counts are the text's own tokens, without special tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncated {
    /// Tokens before the cut. A lower bound when the text is so far beyond the limit that the
    /// rest was not read.
    pub tokens_given: usize,
    /// Tokens after the cut.
    pub tokens_used: usize,
    /// Which end was cut off.
    pub side: Side,
}

/// The `max` tokens of `token_ids` that stay, and the report if there was a cut.
pub(crate) fn cut(token_ids: &[u32], max: usize, side: Side) -> (&[u32], Option<Truncated>) {
    let tokens_given = token_ids.len();
    if tokens_given <= max {
        return (token_ids, None);
    }
    let kept = match side {
        Side::Right => &token_ids[..max],
        Side::Left => &token_ids[tokens_given - max..],
    };
    (
        kept,
        Some(Truncated {
            tokens_given,
            tokens_used: max,
            side,
        }),
    )
}

/// Hugging Face's `longest_first`: tokens of (first, second) that stay when both together may
/// have `room`. The shorter part is cut only once the longer one is down to its length.
pub(crate) fn longest_first(first: usize, second: usize, room: usize) -> (usize, usize) {
    if first + second <= room {
        return (first, second);
    }
    let shorter = first.min(second);
    let (short_kept, long_kept) = if 2 * shorter <= room {
        (shorter, room - shorter)
    } else {
        // Both are cut to half; an odd token goes to the longer one.
        (room / 2, room - room / 2)
    };
    // Of two equally long parts the second counts as the longer.
    if first > second {
        (long_kept, short_kept)
    } else {
        (short_kept, long_kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_keeps_the_other_end() {
        let ids = [1, 2, 3, 4, 5];
        assert_eq!(cut(&ids, 5, Side::Right), (&ids[..], None));
        let report = |side| {
            Some(Truncated {
                tokens_given: 5,
                tokens_used: 2,
                side,
            })
        };
        assert_eq!(
            cut(&ids, 2, Side::Right),
            (&[1, 2][..], report(Side::Right))
        );
        assert_eq!(cut(&ids, 2, Side::Left), (&[4, 5][..], report(Side::Left)));
        assert_eq!(cut(&[], 0, Side::Left), (&[][..], None));
        assert_eq!(cut(&ids, 0, Side::Right).0, &[] as &[u32]);
    }

    #[test]
    fn longest_first_equals_the_tokenizers_crate() {
        use tokenizers::utils::truncation::{
            TruncationDirection, TruncationParams, TruncationStrategy, truncate_encodings,
        };
        use tokenizers::{Encoding, Token};
        let encoding = |length: usize| {
            let token = |id| Token::new(id, String::new(), (0, 0));
            Encoding::from_tokens((0..length as u32).map(token).collect(), 0)
        };
        for room in 1..12 {
            for first in 0..14 {
                for second in 0..14 {
                    let params = TruncationParams {
                        max_length: room,
                        stride: 0,
                        strategy: TruncationStrategy::LongestFirst,
                        direction: TruncationDirection::Right,
                    };
                    let (a, b) =
                        truncate_encodings(encoding(first), Some(encoding(second)), &params)
                            .unwrap();
                    assert_eq!(
                        longest_first(first, second, room),
                        (a.len(), b.unwrap().len()),
                        "first={first} second={second} room={room}"
                    );
                }
            }
        }
    }
}
