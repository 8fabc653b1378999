//! Added tokens, which split a text before anything else sees it.
//!
//! The rules are those of the `tokenizers` crate, odd ones included: a match that is refused
//! (`single_word`) still hides the matches inside it, and white space that one match took on its
//! right may be taken once more by the next.

use std::collections::HashMap;

use aho_corasick::{AhoCorasick, FindIter, MatchKind};
use tokenizers::{AddedToken, NormalizedString, Normalizer};

use super::NotCovered;

/// All added tokens of a tokenizer.
#[derive(Debug)]
pub(super) struct AddedTokens {
    /// Matched against the text as it came.
    pub(super) raw: TokenMatcher,
    /// Matched against normalized text.
    pub(super) normalized: TokenMatcher,
}

impl AddedTokens {
    pub(super) fn of(reference: &tokenizers::Tokenizer) -> Result<Self, NotCovered> {
        let hide_special = reference.get_encode_special_tokens();
        let (mut raw, mut normalized) = (Vec::new(), Vec::new());
        for (&id, token) in &reference.get_added_tokens_decoder() {
            let ignored = hide_special && token.special;
            if token.normalized {
                let mut content = NormalizedString::from(token.content.as_str());
                if let Some(normalizer) = reference.get_normalizer() {
                    normalizer
                        .normalize(&mut content)
                        .map_err(|error| NotCovered(error.to_string()))?;
                }
                normalized.push((content.get().to_owned(), Rule::new(id, token, ignored)));
            } else {
                raw.push((token.content.clone(), Rule::new(id, token, ignored)));
            }
        }
        Ok(Self {
            raw: TokenMatcher::new(raw)?,
            normalized: TokenMatcher::new(normalized)?,
        })
    }

    /// Whether any token is matched against normalized text.
    pub(super) fn has_normalized(&self) -> bool {
        self.normalized.automaton.is_some()
    }
}

/// A part of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part<'a> {
    /// An added token.
    Token(u32),
    /// Text between added tokens, not empty, from byte `start` on.
    Text { text: &'a str, start: usize },
}

/// What to do with a match of one token.
#[derive(Debug, Clone, Copy)]
struct Rule {
    id: u32,
    single_word: bool,
    /// Takes the white space on its left.
    lstrip: bool,
    /// Takes the white space on its right.
    rstrip: bool,
    /// Its text is text.
    ignored: bool,
}

impl Rule {
    fn new(id: u32, token: &AddedToken, ignored: bool) -> Self {
        Self {
            id,
            single_word: token.single_word,
            lstrip: token.lstrip,
            rstrip: token.rstrip,
            ignored,
        }
    }
}

/// Finds a set of added tokens; of those that match at one place the longest.
#[derive(Debug)]
pub(super) struct TokenMatcher {
    /// `None` without tokens.
    automaton: Option<AhoCorasick>,
    /// By pattern of `automaton`.
    rules: Vec<Rule>,
}

impl TokenMatcher {
    fn new(tokens: Vec<(String, Rule)>) -> Result<Self, NotCovered> {
        // One empty pattern would match everywhere, and of two equal ones no rule says which.
        let mut seen = HashMap::new();
        for (content, rule) in &tokens {
            if content.is_empty() {
                return Err(NotCovered(format!("added token {} is empty", rule.id)));
            }
            if let Some(other) = seen.insert(content, rule.id) {
                let id = rule.id;
                return Err(NotCovered(format!(
                    "added tokens {id} and {other} are equal"
                )));
            }
        }
        let automaton = (!tokens.is_empty())
            .then(|| {
                AhoCorasick::builder()
                    .match_kind(MatchKind::LeftmostLongest)
                    .build(tokens.iter().map(|(content, _)| content))
            })
            .transpose()
            .map_err(|error| NotCovered(error.to_string()))?;
        Ok(Self {
            automaton,
            rules: tokens.into_iter().map(|(_, rule)| rule).collect(),
        })
    }

    /// The parts of `text`, in order.
    pub(super) fn split<'a>(&'a self, text: &'a str) -> Parts<'a> {
        Parts {
            text,
            rules: &self.rules,
            matches: self.automaton.as_ref().map(|one| one.find_iter(text)),
            start: 0,
            token: None,
        }
    }
}

/// See [`TokenMatcher::split`].
pub(super) struct Parts<'a> {
    text: &'a str,
    rules: &'a [Rule],
    matches: Option<FindIter<'a, 'a>>,
    /// End of what was returned.
    start: usize,
    /// Found, but the text before it was returned first.
    token: Option<u32>,
}

impl<'a> Iterator for Parts<'a> {
    type Item = Part<'a>;

    fn next(&mut self) -> Option<Part<'a>> {
        if let Some(id) = self.token.take() {
            return Some(Part::Token(id));
        }
        while let Some(found) = self.matches.as_mut().and_then(Iterator::next) {
            let rule = self.rules[found.pattern().as_usize()];
            if rule.ignored || (rule.single_word && self.touches_word(found.start(), found.end())) {
                continue;
            }
            let (mut token_start, mut token_end) = (found.start(), found.end());
            if rule.lstrip {
                let trimmed = self.text[..token_start].trim_end().len();
                token_start = trimmed.max(self.start);
            }
            if rule.rstrip {
                let after = &self.text[token_end..];
                token_end += after.len() - after.trim_start().len();
            }
            let start = std::mem::replace(&mut self.start, token_end);
            if start < token_start {
                self.token = Some(rule.id);
                return Some(Part::Text {
                    text: &self.text[start..token_start],
                    start,
                });
            }
            return Some(Part::Token(rule.id));
        }
        self.matches = None;
        let start = std::mem::replace(&mut self.start, self.text.len());
        (start < self.text.len()).then(|| Part::Text {
            text: &self.text[start..],
            start,
        })
    }
}

impl Parts<'_> {
    /// Whether a word character is beside the match.
    fn touches_word(&self, start: usize, end: usize) -> bool {
        let is_word = |c: Option<char>| {
            // Only fails without the tables, which are compiled in.
            c.is_some_and(|c| regex_syntax::try_is_word_character(c).unwrap_or(true))
        };
        is_word(self.text[..start].chars().next_back()) || is_word(self.text[end..].chars().next())
    }
}

#[cfg(test)]
#[path = "added_tokens_tests.rs"]
mod tests;
