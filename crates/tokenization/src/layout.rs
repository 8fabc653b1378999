//! Where the model's own post-processor puts special tokens, learnt once by probing it.
//!
//! With the layout known, a pair is put together from ids and the query of a request is
//! tokenized once. A post-processor whose layout cannot be told in three constant parts is
//! called for each sequence instead; it too gets the segments that are there already.

use tokenizers::{Encoding, Token};

use crate::error::{EncodeError, LoadError};
use crate::pool;

/// The reference implementation that everything here must equal.
type Reference = tokenizers::Tokenizer;

/// A complete sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Assembled {
    pub(crate) token_ids: Vec<u32>,
    /// Index of the first token of type 1; 0 = none.
    pub(crate) second_segment_start: u32,
}

/// How segments become a sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Layout {
    /// `prefix first middle second suffix`; `middle` is empty for single texts.
    Constant {
        prefix: Vec<u32>,
        middle: Vec<u32>,
        suffix: Vec<u32>,
        /// Tokens of `middle` before the first token of type 1; none = all types are 0.
        type_1_after: Option<usize>,
    },
    /// Whatever the post-processor does, `num_special` tokens more than it was given.
    PostProcessor { num_special: usize },
}

impl Layout {
    /// The layout of single texts.
    pub(crate) fn of_single(reference: &Reference) -> Result<Self, LoadError> {
        let layout = Self::of(reference, false).map_err(LoadError::Json)?;
        // Also where the layout is not constant, at least for a text of some length.
        match processed(reference, &FIRST, None) {
            Ok((_, types)) if types.iter().any(|&token_type| token_type != 0) => {
                Err(LoadError::TokenTypes)
            }
            Ok(_) => Ok(layout),
            Err(error) => Err(LoadError::Json(error)),
        }
    }

    /// The layout of pairs.
    pub(crate) fn of_pair(reference: &Reference) -> Result<Self, LoadError> {
        Self::of(reference, true).map_err(LoadError::Json)
    }

    fn of(reference: &Reference, pair: bool) -> Result<Self, String> {
        let num_special = added_tokens(reference, pair);
        let (ids, types) = processed(reference, &FIRST, pair.then_some(&SECOND[..]))?;
        let derived = derive(&ids, &types, pair)
            .filter(|layout| layout.num_special() == num_special && layout.holds(reference, pair));
        Ok(derived.unwrap_or(Self::PostProcessor { num_special }))
    }

    /// Special tokens of a sequence.
    pub(crate) fn num_special(&self) -> usize {
        match self {
            Self::Constant {
                prefix,
                middle,
                suffix,
                ..
            } => prefix.len() + middle.len() + suffix.len(),
            Self::PostProcessor { num_special } => *num_special,
        }
    }

    /// The special tokens, as far as known.
    pub(crate) fn special_token_ids(&self) -> impl Iterator<Item = u32> {
        let parts = match self {
            Self::Constant {
                prefix,
                middle,
                suffix,
                ..
            } => [&prefix[..], middle, suffix],
            Self::PostProcessor { .. } => [&[][..]; 3],
        };
        parts.into_iter().flatten().copied()
    }

    /// What stands before and after a single text, where that is constant.
    pub(crate) fn constant_parts(&self) -> Option<(&[u32], &[u32])> {
        match self {
            Self::Constant { prefix, suffix, .. } => Some((prefix, suffix)),
            Self::PostProcessor { .. } => None,
        }
    }

    /// Puts special tokens around `first`, and `second` in a layout of pairs.
    pub(crate) fn assemble(
        &self,
        reference: &Reference,
        first: &[u32],
        second: Option<&[u32]>,
    ) -> Result<Assembled, EncodeError> {
        match self {
            Self::Constant {
                prefix,
                middle,
                suffix,
                type_1_after,
            } => {
                let token_ids = [prefix, first, middle, second.unwrap_or(&[]), suffix].concat();
                let start = type_1_after.map(|after| prefix.len() + first.len() + after);
                // With nothing behind it there is no second segment.
                let start = start.filter(|&start| start < token_ids.len());
                Ok(Assembled {
                    token_ids,
                    second_segment_start: start.map_or(0, index),
                })
            }
            Self::PostProcessor { .. } => {
                let (token_ids, types) =
                    processed(reference, first, second).map_err(EncodeError::Tokenizer)?;
                let start = first_of_type_1(&types).ok_or(EncodeError::TokenTypes)?;
                Ok(Assembled {
                    token_ids,
                    second_segment_start: start.map_or(0, index),
                })
            }
        }
    }

    /// Whether this layout is what the post-processor does with segments of any length.
    fn holds(&self, reference: &Reference, pair: bool) -> bool {
        let seconds: &[Option<&[u32]>] = if pair {
            &[Some(&[]), Some(&FIRST), Some(&[7; 40])]
        } else {
            &[None]
        };
        [&[][..], &FIRST, &[7], &[7; 40]].iter().all(|first| {
            seconds.iter().all(|second| {
                let Ok((ids, types)) = processed(reference, first, *second) else {
                    return false;
                };
                let Some(start) = first_of_type_1(&types) else {
                    return false;
                };
                let expected = Assembled {
                    token_ids: ids,
                    second_segment_start: start.map_or(0, index),
                };
                self.assemble(reference, first, *second) == Ok(expected)
            })
        })
    }
}

/// Ids that no vocabulary has, all different, so that they are found again.
const FIRST: [u32; 2] = [u32::MAX, u32::MAX - 1];
const SECOND: [u32; 2] = [u32::MAX - 2, u32::MAX - 3];

/// Reads the constant parts off one processed probe; nothing is certain yet.
fn derive(ids: &[u32], types: &[u32], pair: bool) -> Option<Layout> {
    let first = ids.windows(2).position(|window| window == FIRST)?;
    let after_first = first + FIRST.len();
    let (second, after_second) = if pair {
        let second = ids.windows(2).position(|window| window == SECOND)?;
        (second, second + SECOND.len())
    } else {
        (after_first, after_first)
    };
    let type_1_after = match first_of_type_1(types)? {
        None => None,
        // Within the middle, or with the second segment: a place that no length shifts.
        Some(start) if (after_first..=second).contains(&start) => Some(start - after_first),
        Some(_) => return None,
    };
    Some(Layout::Constant {
        prefix: ids[..first].to_vec(),
        middle: ids.get(after_first..second)?.to_vec(),
        suffix: ids[after_second..].to_vec(),
        type_1_after,
    })
}

/// Index of the first 1 in `types` if they read 0…0 1…1, `Some(None)` if all are 0, else `None`.
///
/// A pair with nothing before its first token of type 1 counts as all 0: a sequence has no other
/// way to say it, and only tokenizers without special tokens, whose models have no token types,
/// can make one (of an empty query).
fn first_of_type_1(types: &[u32]) -> Option<Option<usize>> {
    let start = types.iter().position(|&token_type| token_type != 0);
    let Some(start) = start else {
        return Some(None);
    };
    types[start..]
        .iter()
        .all(|&token_type| token_type == 1)
        .then_some(Some(start).filter(|&start| start > 0))
}

/// Ids and token types after the post-processor.
fn processed(
    reference: &Reference,
    first: &[u32],
    second: Option<&[u32]>,
) -> Result<(Vec<u32>, Vec<u32>), String> {
    let encoding = |ids: &[u32], token_type| {
        let token = |&id| Token::new(id, String::new(), (0, 0));
        Encoding::from_tokens(ids.iter().map(token).collect(), token_type)
    };
    let second = second.map(|ids| encoding(ids, 1));
    pool::caught(|| {
        let sequence = reference.post_process(encoding(first, 0), second, true)?;
        Ok((
            sequence.get_ids().to_vec(),
            sequence.get_type_ids().to_vec(),
        ))
    })
}

fn added_tokens(reference: &Reference, pair: bool) -> usize {
    use tokenizers::PostProcessor;
    reference
        .get_post_processor()
        .map_or(0, |processor| processor.added_tokens(pair))
}

/// Sequences are far shorter than 2³² tokens.
fn index(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
