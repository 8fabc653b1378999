//! A document with the template's text on both sides of it, which the tokenizer reads as one text:
//! a document's last mark and a line break after it can be one token.

use std::borrow::Cow;

use crate::encode::Query;
use crate::error::EncodeError;
use crate::template::CompiledTemplate;
use crate::tokenizer::{Content, Tokenizer};
use crate::truncation::{Side, Truncated, cut};

/// Tokens of a document and of the template's text beside it.
#[derive(Debug)]
pub(crate) struct ReadDocument<'a> {
    pub(crate) token_ids: Cow<'a, [u32]>,
    /// Tokens that the text before the document has by itself.
    before: usize,
    /// Tokens that the text after it has by itself.
    after: usize,
}

impl ReadDocument<'_> {
    /// The document's own tokens. One that it shares with the text after it is that text's.
    pub(crate) fn own_tokens(&self) -> usize {
        let beside = self.before + self.after;
        self.token_ids.len().saturating_sub(beside)
    }
}

/// A document that is too long for one sequence.
#[derive(Debug)]
pub(crate) struct DocumentParts<'a> {
    /// With the text on both sides of it.
    joined: &'a [u32],
    /// With the text before it.
    apart: Cow<'a, [u32]>,
    /// Tokens of `apart` that are the text before the document.
    before: usize,
    /// Of the text after the document by itself.
    after: &'a [u32],
}

impl DocumentParts<'_> {
    /// The document's own tokens.
    pub(crate) fn own(&self) -> &[u32] {
        &self.apart[self.before..]
    }

    /// The own tokens from `start` on, at most `tokens`, with the text beside the document. A part
    /// that ends with the document is read together with the text after it.
    pub(crate) fn part(&self, start: usize, tokens: usize) -> Vec<u32> {
        let (fixed, own) = self.apart.split_at(self.before);
        let end = own.len().min(start + tokens);
        let at = self.before + start;
        if end == own.len() && self.joined.get(..at) == self.apart.get(..at) {
            let joined = self.joined.get(at..).unwrap_or_default();
            if joined.len() <= end - start + self.after.len() {
                return [fixed, joined].concat();
            }
        }
        [fixed, &own[start..end], self.after].concat()
    }
}

impl Tokenizer {
    /// Reads a document together with the text beside it, or a beginning of it with more than
    /// `usable` tokens of its own. A document's own ids are joined with nothing.
    pub(crate) fn read_document<'a>(
        &self,
        query: &Query,
        document: &'a Content,
        usable: usize,
        side: Side,
    ) -> Result<ReadDocument<'a>, EncodeError> {
        let (pending, before) = query.pending();
        let (text_after, after) = self.after_document();
        let usable = usable.saturating_add(before + after.len());
        let token_ids = match document {
            Content::Text(text) if !text_after.is_empty() => {
                let whole = [pending, text, text_after].concat();
                Cow::Owned(self.segment(&whole, usable, side)?)
            }
            _ => {
                let mut token_ids = self.content(pending, document, usable, side)?;
                if !after.is_empty() {
                    token_ids.to_mut().extend_from_slice(after);
                }
                token_ids
            }
        };
        Ok(ReadDocument {
            token_ids,
            before,
            after: after.len(),
        })
    }

    /// The tokens of `given` with at most `max` of the document's own: the text beside it stays.
    pub(crate) fn cut_document<'a>(
        &self,
        given: &'a ReadDocument<'a>,
        query: &Query,
        document: &Content,
        max: usize,
        side: Side,
    ) -> Result<(Cow<'a, [u32]>, Option<Truncated>), EncodeError> {
        let ReadDocument { before, after, .. } = *given;
        if given.own_tokens() <= max {
            return Ok((Cow::Borrowed(&given.token_ids), None));
        }
        if side == Side::Right && after > 0 {
            // The end that was joined with the text after it goes: both are read apart.
            let (pending, _) = query.pending();
            let apart = self.content(pending, document, max.saturating_add(before), side)?;
            let (kept, truncated) = cut_behind(&apart, before, max, side);
            let (_, after) = self.after_document();
            return Ok((Cow::Owned([&kept, after].concat()), truncated));
        }
        let (kept, truncated) = cut_behind(&given.token_ids, before, max + after, side);
        let truncated = truncated.map(|cut| Truncated {
            tokens_given: cut.tokens_given - after,
            tokens_used: max,
            side,
        });
        Ok((kept, truncated))
    }

    /// A document as it was `given`, for parts of it.
    pub(crate) fn document_parts<'a>(
        &'a self,
        given: &'a ReadDocument<'a>,
        query: &Query,
        document: &'a Content,
    ) -> Result<DocumentParts<'a>, EncodeError> {
        let (_, after) = self.after_document();
        let apart = if after.is_empty() {
            Cow::Borrowed(&*given.token_ids)
        } else {
            let (pending, _) = query.pending();
            self.content(pending, document, usize::MAX, Side::Right)?
        };
        let before = given.before.min(apart.len());
        Ok(DocumentParts {
            joined: &given.token_ids,
            apart,
            before,
            after,
        })
    }

    /// Bytes of the text that is read together with each document.
    pub(crate) fn bytes_beside(&self, query: &Query) -> usize {
        query.pending().0.len() + self.after_document().0.len()
    }

    /// The template's text that is read together with the document's end, and its tokens by itself.
    pub(crate) fn after_document(&self) -> (&str, &[u32]) {
        let template = self.template.as_ref();
        template.map_or(("", &[]), CompiledTemplate::after_document)
    }
}

/// As [`cut`], but the first `fixed` tokens are not counted and stay.
fn cut_behind(
    given: &[u32],
    fixed: usize,
    max: usize,
    side: Side,
) -> (Cow<'_, [u32]>, Option<Truncated>) {
    let (fixed, own) = given.split_at(fixed.min(given.len()));
    let (kept, truncated) = cut(own, max, side);
    if truncated.is_none() || fixed.is_empty() {
        let whole = if truncated.is_none() { given } else { kept };
        return (Cow::Borrowed(whole), truncated);
    }
    (Cow::Owned([fixed, kept].concat()), truncated)
}

#[cfg(test)]
#[path = "document_tests.rs"]
mod tests;
