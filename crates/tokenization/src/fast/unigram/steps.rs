//! The normalizers of Unigram files, one after the other.

use memchr::memmem::Finder;
use tokenizers::normalizers::NormalizerWrapper;
use unicode_normalization_alignments::UnicodeNormalization;

use super::precompiled::Precompiled;
use crate::fast::NotCovered;

/// All normalizers of a tokenizer, in order.
#[derive(Debug)]
pub(super) struct Steps(Vec<Step>);

#[derive(Debug)]
enum Step {
    Precompiled(Box<Precompiled>),
    /// White space at either end goes.
    Strip {
        left: bool,
        right: bool,
    },
    /// Two or more spaces become one text.
    JoinSpaces(String),
    /// A text becomes another wherever it stands.
    Replace {
        find: Box<Finder<'static>>,
        content: String,
    },
    LowerCase,
    Compose {
        compatible: bool,
    },
    Decompose {
        compatible: bool,
    },
}

impl Steps {
    pub(super) fn of(normalizer: Option<&NormalizerWrapper>) -> Result<Self, NotCovered> {
        let mut steps = Vec::new();
        if let Some(normalizer) = normalizer {
            add(normalizer, &mut steps)?;
        }
        Ok(Self(steps))
    }

    /// Appends the normalized `text` to `normalized`, which is empty. `other` is a buffer.
    pub(super) fn normalize(&self, text: &str, normalized: &mut String, other: &mut String) {
        let mut text_is_current = true;
        for step in &self.0 {
            let current = if text_is_current {
                text
            } else {
                normalized.as_str()
            };
            if step.changes_nothing(current) {
                continue;
            }
            other.clear();
            step.apply(current, other);
            std::mem::swap(normalized, other);
            text_is_current = false;
        }
        if text_is_current {
            normalized.push_str(text);
        }
    }
}

fn add(normalizer: &NormalizerWrapper, steps: &mut Vec<Step>) -> Result<(), NotCovered> {
    let step = match normalizer {
        NormalizerWrapper::Sequence(sequence) => {
            return sequence.as_ref().iter().try_for_each(|one| add(one, steps));
        }
        NormalizerWrapper::Precompiled(precompiled) => {
            let json = to_json(precompiled)?;
            let charsmap = json["precompiled_charsmap"].as_str().unwrap_or_default();
            Step::Precompiled(Box::new(Precompiled::new(charsmap)?))
        }
        NormalizerWrapper::StripNormalizer(strip) => Step::Strip {
            left: strip.strip_left,
            right: strip.strip_right,
        },
        NormalizerWrapper::Replace(replace) => {
            let json = to_json(replace)?;
            let pattern = &json["pattern"];
            match (pattern["Regex"].as_str(), pattern["String"].as_str()) {
                (Some(" {2,}"), None) => Step::JoinSpaces(replace.content.clone()),
                (None, Some(text)) if !text.is_empty() => Step::Replace {
                    find: Box::new(Finder::new(text).into_owned()),
                    content: replace.content.clone(),
                },
                _ => return Err(NotCovered(format!("Unigram that replaces {pattern}"))),
            }
        }
        NormalizerWrapper::Lowercase(_) => Step::LowerCase,
        NormalizerWrapper::NFC(_) => Step::Compose { compatible: false },
        NormalizerWrapper::NFKC(_) => Step::Compose { compatible: true },
        NormalizerWrapper::NFD(_) => Step::Decompose { compatible: false },
        NormalizerWrapper::NFKD(_) => Step::Decompose { compatible: true },
        other => {
            let other: String = format!("{other:?}").chars().take(100).collect();
            return Err(NotCovered(format!("Unigram with the normalizer {other}")));
        }
    };
    steps.push(step);
    Ok(())
}

fn to_json(normalizer: &impl serde::Serialize) -> Result<serde_json::Value, NotCovered> {
    serde_json::to_value(normalizer).map_err(|error| NotCovered(error.to_string()))
}

impl Step {
    /// A quick look that spares a copy of the text.
    fn changes_nothing(&self, text: &str) -> bool {
        match self {
            Self::Precompiled(_) => false,
            Self::Strip { left, right } => stripped(text, *left, *right).len() == text.len(),
            Self::JoinSpaces(_) => memchr::memmem::find(text.as_bytes(), b"  ").is_none(),
            Self::Replace { find, .. } => find.find(text.as_bytes()).is_none(),
            Self::LowerCase => text
                .bytes()
                .all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()),
            Self::Compose { .. } | Self::Decompose { .. } => text.is_ascii(),
        }
    }

    /// Appends what becomes of `text`.
    fn apply(&self, text: &str, out: &mut String) {
        match self {
            Self::Precompiled(precompiled) => precompiled.normalize(text, out),
            Self::Strip { left, right } => out.push_str(stripped(text, *left, *right)),
            Self::JoinSpaces(content) => join_spaces(text, content, out),
            Self::Replace { find, content } => {
                let mut from = 0;
                for at in find.find_iter(text.as_bytes()) {
                    out.push_str(&text[from..at]);
                    out.push_str(content);
                    from = at + find.needle().len();
                }
                out.push_str(&text[from..]);
            }
            Self::LowerCase => out.extend(text.chars().flat_map(char::to_lowercase)),
            Self::Compose { compatible: false } => out.extend(text.nfc().map(|(c, _)| c)),
            Self::Compose { compatible: true } => out.extend(text.nfkc().map(|(c, _)| c)),
            Self::Decompose { compatible: false } => out.extend(text.nfd().map(|(c, _)| c)),
            Self::Decompose { compatible: true } => out.extend(text.nfkd().map(|(c, _)| c)),
        }
    }
}

fn stripped(text: &str, left: bool, right: bool) -> &str {
    let text = if left { text.trim_start() } else { text };
    if right { text.trim_end() } else { text }
}

fn join_spaces(text: &str, content: &str, out: &mut String) {
    let mut rest = text;
    while let Some(at) = memchr::memmem::find(rest.as_bytes(), b"  ") {
        out.push_str(&rest[..at]);
        out.push_str(content);
        rest = rest[at..].trim_start_matches(' ');
    }
    out.push_str(rest);
}
