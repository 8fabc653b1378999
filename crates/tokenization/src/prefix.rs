//! Reading only the beginning of a text that is far longer than what may stay of it.
//!
//! A prefix X of a text T is certain when the tokens of T begin with the tokens of X. We cut
//! where a letter is followed by a separator and another letter, and allow it only for tokenizers
//! all of whose stages are known not to look across such a place:
//!
//! - added tokens: none has a separator inside, so no match reaches over the cut;
//! - normalizers: none joins, moves or drops across a separator between letters;
//! - pre-tokenizers: the first that splits on separators ends a piece at the letter, and those
//!   before it only split more; those after it see pieces one by one;
//! - models see pieces one by one.

use tokenizers::normalizers::{NormalizerWrapper, Replace};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{NormalizedString, Normalizer, SplitDelimiterBehavior};

/// Ends of prefixes whose tokens are the first tokens of the whole text, for certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PrefixRule {
    /// Characters that end a piece after a letter.
    separators: &'static [char],
}

/// All that any rule has: no added token may have one inside.
const SEPARATORS: [char; 4] = [' ', '\n', FULL_STOP, METASPACE];
/// Of Chinese and Japanese, which have no spaces between words.
const FULL_STOP: char = '\u{3002}';
const METASPACE: char = '\u{2581}';

/// Byte-level splits of the Llama 3 and Qwen families. Neither lets a piece that ends with a
/// letter reach into white space or punctuation, nor does what follows change it.
const BYTE_LEVEL_SPLITS: [&str; 2] = [
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
];

impl PrefixRule {
    /// The rule of a tokenizer; `None` where nothing is certain.
    pub(crate) fn of(reference: &tokenizers::Tokenizer) -> Option<Self> {
        let pre_tokenizer = reference.get_pre_tokenizer()?;
        let splitter = first_splitter(pre_tokenizer)?;
        let normalizer = reference.get_normalizer();
        let keeps = |splitter| normalizer.is_none_or(|one| keeps_separators(one, splitter));
        let spaces = Splitter {
            separators: &[' '],
            ..splitter
        };
        let splitter = [splitter, spaces].into_iter().find(|&one| keeps(one))?;
        let added_tokens = reference.get_added_tokens_decoder();
        let certain = added_tokens.values().all(|token| {
            let mut normalized = NormalizedString::from(token.content.as_str());
            let normalizes = normalizer.is_none_or(|one| one.normalize(&mut normalized).is_ok());
            normalizes
                && no_separator_inside(&token.content)
                && no_separator_inside(normalized.get())
        });
        certain.then_some(Self {
            separators: splitter.separators,
        })
    }

    /// End, in bytes, of the shortest certain prefix of at least `min_bytes`.
    pub(crate) fn prefix_end(self, text: &str, min_bytes: usize) -> Option<usize> {
        let start = (min_bytes..text.len()).find(|&index| text.is_char_boundary(index))?;
        let mut characters = text[start..]
            .char_indices()
            .map(|(index, c)| (start + index, c));
        let mut before = text[..start].chars().next_back()?;
        let (mut end, mut separator) = characters.next()?;
        for (index, after) in characters {
            if is_letter(before) && self.separators.contains(&separator) && is_letter(after) {
                return Some(end);
            }
            (before, end, separator) = (separator, index, after);
        }
        None
    }
}

/// Letters and digits that no normalizer joins with a separator beside them: no marks, no
/// compatibility forms, none that draws the next character into its grapheme.
fn is_letter(c: char) -> bool {
    matches!(c,
        '0'..='9' | 'A'..='Z' | 'a'..='z'
        | '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}' | '\u{f8}'..='\u{131}' // Latin
        | '\u{391}'..='\u{3a1}' | '\u{3a3}'..='\u{3ce}' // Greek
        | '\u{400}'..='\u{481}' | '\u{48a}'..='\u{4ff}' // Cyrillic
        | '\u{5d0}'..='\u{5ea}' // Hebrew
        | '\u{621}'..='\u{63a}' | '\u{641}'..='\u{64a}' // Arabic
        | '\u{905}'..='\u{939}' // Devanagari
        | '\u{e01}'..='\u{e30}' // Thai
        | '\u{3041}'..='\u{3096}' | '\u{30a1}'..='\u{30fa}' // Kana
        | '\u{4e00}'..='\u{9fff}' // Ideographs
        | '\u{ac00}'..='\u{d7a3}') // Hangul
}

fn no_separator_inside(content: &str) -> bool {
    let separates = |c: char| c.is_whitespace() || SEPARATORS.contains(&c);
    !content.trim_start_matches(separates).contains(separates)
}

/// A pre-tokenizer that ends a piece between a letter and a separator.
#[derive(Clone, Copy)]
struct Splitter {
    separators: &'static [char],
    /// White space is in no piece, so that more or less of it changes nothing.
    drops_white_space: bool,
}

/// The first pre-tokenizer that splits on separators, if nothing before it hides them.
fn first_splitter(pre_tokenizer: &PreTokenizerWrapper) -> Option<Splitter> {
    let (separators, drops_white_space): (&'static [char], _) = match pre_tokenizer {
        PreTokenizerWrapper::BertPreTokenizer(_) | PreTokenizerWrapper::Whitespace(_) => {
            (&[' ', '\n', FULL_STOP], true)
        }
        PreTokenizerWrapper::WhitespaceSplit(_) => (&[' ', '\n'], true),
        PreTokenizerWrapper::ByteLevel(byte_level) if byte_level.use_regex => {
            (&[' ', '\n', FULL_STOP], false)
        }
        PreTokenizerWrapper::Split(split) if is_byte_level_split(split) => {
            (&[' ', '\n', FULL_STOP], false)
        }
        PreTokenizerWrapper::Metaspace(metaspace) if metaspace.split => (&[' '], false),
        PreTokenizerWrapper::Sequence(sequence) => {
            let digits = |one: &&PreTokenizerWrapper| matches!(one, PreTokenizerWrapper::Digits(_));
            return sequence
                .as_ref()
                .iter()
                .find(|one| !digits(one))
                .and_then(first_splitter);
        }
        _ => return None,
    };
    Some(Splitter {
        separators,
        drops_white_space,
    })
}

/// Whether the tokenizer surely begins a new piece at a space that follows another character, so
/// that a text may be cut there and both parts tokenized apart.
pub(crate) fn is_byte_level_split_by_spaces(reference: &tokenizers::Tokenizer) -> bool {
    let normalizer = reference.get_normalizer();
    let composes_only = normalizer.is_none_or(|one| matches!(one, NormalizerWrapper::NFC(_)));
    let Some(PreTokenizerWrapper::Sequence(stages)) = reference.get_pre_tokenizer() else {
        return false;
    };
    let [
        PreTokenizerWrapper::Split(split),
        PreTokenizerWrapper::ByteLevel(bytes),
    ] = stages.as_ref()
    else {
        return false;
    };
    let added_tokens = reference.get_added_tokens_decoder();
    let no_token_reaches_over = added_tokens
        .values()
        .all(|token| !token.lstrip && !token.rstrip && !token.content.contains(' '));
    composes_only
        && is_byte_level_split(split)
        && !bytes.use_regex
        && !bytes.add_prefix_space
        && no_token_reaches_over
}

fn is_byte_level_split(split: &Split) -> bool {
    let known = matches!(&split.pattern,
        SplitPattern::Regex(regex) if BYTE_LEVEL_SPLITS.contains(&regex.as_str()));
    known && !split.invert && split.behavior == SplitDelimiterBehavior::Isolated
}

fn keeps_separators(normalizer: &NormalizerWrapper, splitter: Splitter) -> bool {
    let only_spaces = splitter.separators == [' '];
    match normalizer {
        // Puts spaces around ideographs.
        NormalizerWrapper::BertNormalizer(_) => splitter.drops_white_space,
        NormalizerWrapper::StripNormalizer(_)
        | NormalizerWrapper::StripAccents(_)
        | NormalizerWrapper::NFC(_)
        | NormalizerWrapper::NFD(_)
        | NormalizerWrapper::NFKC(_)
        | NormalizerWrapper::NFKD(_)
        | NormalizerWrapper::Lowercase(_) => true,
        // A table of the model's own: only of the space do we know that it stays one.
        NormalizerWrapper::Precompiled(table) => {
            only_spaces && table.transform(" ").is_none_or(|replaced| replaced == " ")
        }
        NormalizerWrapper::Replace(replace) => only_spaces && joins_spaces(replace),
        NormalizerWrapper::Sequence(sequence) => sequence
            .as_ref()
            .iter()
            .all(|one| keeps_separators(one, splitter)),
        _ => false,
    }
}

/// Runs of two or more spaces become one, or one metaspace: never a space between letters.
fn joins_spaces(replace: &Replace) -> bool {
    let pattern = serde_json::to_value(replace).ok().and_then(|mut json| {
        json.get_mut("pattern")
            .map(|pattern| pattern["Regex"].take())
    });
    pattern.as_ref().and_then(serde_json::Value::as_str) == Some(" {2,}")
        && (replace.content == " " || replace.content == METASPACE.to_string())
}

#[cfg(test)]
#[path = "prefix_tests.rs"]
mod tests;
