//! What a BPE encoder needs of a model, and which models are covered.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use tokenizers::models::bpe::BPE;
use tokenizers::{Model as _, ModelWrapper};

use super::word_cache::TOKEN_ID_BITS;
use crate::fast::{NotCovered, Source};

/// Vocabulary and merges.
pub(super) struct Model {
    pub(super) vocabulary: HashMap<String, u32>,
    /// Left token, right token and their product, in the order of the file.
    pub(super) merges: Vec<(u32, u32, u32)>,
    /// A word that is a token is that token, whatever the merges say.
    pub(super) ignores_merges: bool,
    /// A character without a token becomes the tokens of its bytes.
    pub(super) has_byte_fallback: bool,
}

pub(super) fn not_covered(what: impl Into<String>) -> NotCovered {
    NotCovered(what.into())
}

impl Model {
    /// The model of `source`.
    ///
    /// # Errors
    /// It does something that no encoder of ours knows.
    pub(super) fn of(source: Source<'_>) -> Result<Self, NotCovered> {
        let ModelWrapper::BPE(model) = source.reference.get_model() else {
            return Err(not_covered("the model is no BPE"));
        };
        check_options(model)?;
        let vocabulary = model.get_vocab();
        check_ids(&vocabulary)?;
        Ok(Self {
            merges: merges_of(source.tokenizer_json, model)?,
            vocabulary,
            ignores_merges: model.ignore_merges,
            has_byte_fallback: model.byte_fallback,
        })
    }
}

fn check_options(model: &BPE) -> Result<(), NotCovered> {
    if model.dropout.is_some_and(|dropout| dropout != 0.0) {
        return Err(not_covered("the BPE has dropout"));
    }
    let affixes = [&model.continuing_subword_prefix, &model.end_of_word_suffix];
    if affixes.into_iter().flatten().any(|affix| !affix.is_empty()) {
        return Err(not_covered(
            "the BPE has continuing_subword_prefix or end_of_word_suffix",
        ));
    }
    Ok(())
}

/// Ids must name their token: then a pair that has changed cannot merge to the same as before,
/// which the order of merging depends on.
fn check_ids(vocabulary: &HashMap<String, u32>) -> Result<(), NotCovered> {
    let mut ids: Vec<u32> = vocabulary.values().copied().collect();
    ids.sort_unstable();
    if ids.windows(2).any(|two| two[0] == two[1]) {
        return Err(not_covered("two tokens of the BPE have the same id"));
    }
    if ids.last().is_some_and(|&id| id >> TOKEN_ID_BITS != 0) {
        return Err(not_covered(format!(
            "a token id of the BPE has more than {TOKEN_ID_BITS} bits"
        )));
    }
    Ok(())
}

#[derive(Deserialize)]
struct TokenizerFile<'a> {
    #[serde(borrow)]
    model: ModelFile<'a>,
}

#[derive(Deserialize)]
struct ModelFile<'a> {
    #[serde(borrow)]
    merges: Vec<MergeLine<'a>>,
}

/// A merge as newer files have it, or in one string, as older ones. There are hundreds of
/// thousands, so nothing is copied that need not be.
enum MergeLine<'a> {
    Pair(Token<'a>, Token<'a>),
    Joined(Cow<'a, str>),
}

#[derive(Deserialize)]
struct Token<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for MergeLine<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MergeLineVisitor)
    }
}

struct MergeLineVisitor;

impl<'de> Visitor<'de> for MergeLineVisitor {
    type Value = MergeLine<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a merge: two tokens, in an array or with a space between")
    }

    fn visit_borrowed_str<E: de::Error>(self, line: &'de str) -> Result<Self::Value, E> {
        Ok(MergeLine::Joined(Cow::Borrowed(line)))
    }

    fn visit_str<E: de::Error>(self, line: &str) -> Result<Self::Value, E> {
        Ok(MergeLine::Joined(Cow::Owned(line.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut tokens: A) -> Result<Self::Value, A::Error> {
        match (tokens.next_element()?, tokens.next_element()?) {
            (Some(left), Some(right)) => Ok(MergeLine::Pair(left, right)),
            _ => Err(de::Error::custom("a merge of less than two tokens")),
        }
    }
}

fn merges_of(tokenizer_json: &[u8], model: &BPE) -> Result<Vec<(u32, u32, u32)>, NotCovered> {
    let file: TokenizerFile<'_> = serde_json::from_slice(tokenizer_json)
        .map_err(|error| not_covered(format!("merges: {error}")))?;
    let mut product = String::new();
    let mut merges = Vec::with_capacity(file.model.merges.len());
    for line in &file.model.merges {
        let (left, right) = match line {
            MergeLine::Pair(left, right) => (&*left.0, &*right.0),
            MergeLine::Joined(line) if line.starts_with("#version") => continue,
            MergeLine::Joined(line) => line
                .split_once(' ')
                .ok_or_else(|| not_covered(format!("merge {line:?} has no space")))?,
        };
        product.clear();
        product.push_str(left);
        product.push_str(right);
        let id = |token: &str| {
            model
                .token_to_id(token)
                .ok_or_else(|| not_covered(format!("{token:?} of a merge is no token")))
        };
        merges.push((id(left)?, id(right)?, id(&product)?));
    }
    Ok(merges)
}
