//! SentencePiece's compiled normalization rules, applied as the `tokenizers` crate applies them:
//! to whole grapheme clusters where these are short, and of several rules that match a cluster's
//! beginning the shortest, which then replaces all of it.
//!
//! A character that is a cluster by itself, wherever it stands beside others of its kind, has its
//! replacement in a table. Only where a character occurs that can be joined to a neighbour is the
//! text really cut into clusters.

use base64::Engine as _;
use unicode_segmentation::UnicodeSegmentation;

use crate::fast::NotCovered;
use crate::fast::code_points::CodePointTable;

/// Longer clusters are replaced character by character.
const MAX_CLUSTER_BYTES: usize = 5;

/// An entry of the table: a cluster by itself that stays as it is.
const KEPT: u32 = 0;
/// Can be joined to a neighbour.
const JOINS: u32 = 1;
/// Others are 2 + index into `replacements`.
const FIRST_REPLACEMENT: u32 = 2;

/// The rules, and a table made of them.
#[derive(Debug)]
pub(super) struct Precompiled {
    rules: Rules,
    table: CodePointTable,
    /// Whether the table says `KEPT`.
    ascii_kept: [bool; 128],
    /// Start and end in `rules.texts`.
    replacements: Vec<(u32, u32)>,
}

impl Precompiled {
    /// From `precompiled_charsmap` as it stands in `tokenizer.json`, in base64.
    pub(super) fn new(charsmap: &str) -> Result<Self, NotCovered> {
        let charsmap = base64::engine::general_purpose::STANDARD
            .decode(charsmap)
            .map_err(|error| NotCovered(format!("precompiled_charsmap: {error}")))?;
        let rules = Rules::new(&charsmap)
            .ok_or_else(|| NotCovered("precompiled_charsmap is malformed".to_owned()))?;
        let mut replacements = Vec::new();
        let mut cluster = String::new();
        let table = CodePointTable::new(JOINS, |c| {
            if joins(c, &mut cluster) {
                return JOINS;
            }
            match rules.replacement(c.encode_utf8(&mut [0; 4]).as_bytes()) {
                None => KEPT,
                Some((start, end)) => {
                    replacements.push((start as u32, end as u32));
                    FIRST_REPLACEMENT + replacements.len() as u32 - 1
                }
            }
        });
        let ascii_kept = std::array::from_fn(|code| table.get(char::from(code as u8)) == KEPT);
        Ok(Self {
            rules,
            table,
            ascii_kept,
            replacements,
        })
    }

    /// Appends the normalized `text`.
    pub(super) fn normalize(&self, text: &str, normalized: &mut String) {
        let mut at = 0;
        // A run of kept characters is copied at once; its last may still be joined to the next.
        let mut kept_from = 0;
        // The last cluster, if it is one character that may still be joined: its start here and
        // in `normalized`.
        let mut last: Option<(usize, usize)> = None;
        loop {
            let ascii = text.as_bytes()[at..]
                .iter()
                .take_while(|&&byte| self.ascii_kept.get(usize::from(byte)) == Some(&true))
                .count();
            if ascii > 0 {
                at += ascii;
                last = None;
            }
            let Some(c) = text[at..].chars().next() else {
                break;
            };
            let entry = self.table.get(c);
            match entry {
                KEPT => {
                    last = None;
                    at += c.len_utf8();
                    continue;
                }
                JOINS => {}
                _ => {
                    normalized.push_str(&text[kept_from..at]);
                    last = Some((at, normalized.len()));
                    let index = (entry - FIRST_REPLACEMENT) as usize;
                    if let Some(&(start, end)) = self.replacements.get(index) {
                        normalized.push_str(&self.rules.texts[start as usize..end as usize]);
                    }
                    at += c.len_utf8();
                    kept_from = at;
                    continue;
                }
            }
            // Back to the start of the cluster that this character may belong to.
            let start = if kept_from < at {
                let before = text[kept_from..at]
                    .chars()
                    .next_back()
                    .map_or(0, char::len_utf8);
                normalized.push_str(&text[kept_from..at - before]);
                at - before
            } else if let Some((start, end_before)) = last {
                normalized.truncate(end_before);
                start
            } else {
                at
            };
            at = start;
            // Clusters, until one is followed by a character that joins nothing before it.
            for cluster in text[start..].graphemes(true) {
                self.push_cluster(cluster, normalized);
                at += cluster.len();
                if self.is_alone(&text[at..]) {
                    break;
                }
            }
            kept_from = at;
            last = None;
        }
        normalized.push_str(&text[kept_from..]);
    }

    /// Whether `rest` begins with a character, or ends, that joins nothing before it.
    fn is_alone(&self, rest: &str) -> bool {
        rest.chars()
            .next()
            .is_none_or(|c| self.table.get(c) != JOINS)
    }

    fn push_cluster(&self, cluster: &str, normalized: &mut String) {
        if cluster.len() <= MAX_CLUSTER_BYTES
            && let Some((start, end)) = self.rules.replacement(cluster.as_bytes())
        {
            normalized.push_str(&self.rules.texts[start..end]);
            return;
        }
        for (index, c) in cluster.char_indices() {
            let part = &cluster[index..index + c.len_utf8()];
            match self.rules.replacement(part.as_bytes()) {
                Some((start, end)) => normalized.push_str(&self.rules.texts[start..end]),
                None => normalized.push(c),
            }
        }
    }
}

/// Whether `c` is ever in one cluster with a character beside it: marks and joiners, characters
/// that are put before others, regional indicators, Hangul letters, and the carriage return.
/// `cluster` is a buffer.
fn joins(c: char, cluster: &mut String) -> bool {
    const HANGUL_LETTER: char = '\u{1100}';
    const HANGUL_SYLLABLE: char = '\u{ac00}';
    if c == '\r' {
        return true;
    }
    // Precomposed Hangul is joined by letters only, which are found here themselves.
    [
        ['a', c],
        [c, 'a'],
        [c, c],
        [c, HANGUL_LETTER],
        [HANGUL_SYLLABLE, c],
    ]
    .iter()
    .any(|pair| {
        cluster.clear();
        cluster.extend(pair);
        cluster.graphemes(true).nth(1).is_none()
    })
}

/// The rules as SentencePiece compiles them: a double array whose values are places in `texts`.
#[derive(Debug)]
struct Rules {
    units: Vec<u32>,
    /// Replacements, each ended by NUL.
    texts: String,
}

impl Rules {
    /// Length of the array in bytes, the array, the texts; all little-endian.
    fn new(charsmap: &[u8]) -> Option<Self> {
        let (length, rest) = charsmap.split_first_chunk::<4>()?;
        let length = u32::from_le_bytes(*length) as usize / 4 * 4;
        let (units, texts) = (rest.get(..length)?, rest.get(length..)?);
        Some(Self {
            units: units
                .chunks_exact(4)
                .map(|unit| unit.try_into().map(u32::from_le_bytes))
                .collect::<Result<_, _>>()
                .ok()?,
            texts: String::from_utf8(texts.to_vec()).ok()?,
        })
    }

    /// Start and end in `texts` of what replaces the shortest beginning of `key` that has a rule.
    fn replacement(&self, key: &[u8]) -> Option<(usize, usize)> {
        let mut at = offset(*self.units.first()?);
        for &byte in key {
            if byte == 0 {
                return None;
            }
            at ^= usize::from(byte);
            let unit = *self.units.get(at)?;
            // The label, and the bit that marks values, which are no nodes.
            if unit & (1 << 31 | 0xff) != u32::from(byte) {
                return None;
            }
            at ^= offset(unit);
            if unit >> 8 & 1 == 1 {
                let start = (self.units.get(at)? & !(1 << 31)) as usize;
                let length = self.texts.get(start..)?.find('\0');
                return Some((
                    start,
                    length.map_or(self.texts.len(), |length| start + length),
                ));
            }
        }
        None
    }
}

/// From a node to the node of its children.
fn offset(unit: u32) -> usize {
    ((unit >> 10) << ((unit & 1 << 9) >> 6)) as usize
}

#[cfg(test)]
#[path = "precompiled_tests.rs"]
mod tests;
