use std::collections::BTreeMap;

use serde_json::json;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::{NormalizedString, Normalizer};

use super::*;
use crate::fast::random_text::RandomText;

/// Compiles rules the way SentencePiece does, but with a block of its own for each node.
fn charsmap(rules: &[(&str, &str)]) -> String {
    let mut nodes: Vec<(BTreeMap<u8, usize>, Option<u32>)> = vec![(BTreeMap::new(), None)];
    let mut texts = String::new();
    for (find, content) in rules {
        let mut node = 0;
        for byte in find.bytes() {
            node = match nodes[node].0.get(&byte) {
                Some(&child) => child,
                None => {
                    nodes.push((BTreeMap::new(), None));
                    let child = nodes.len() - 1;
                    nodes[node].0.insert(byte, child);
                    child
                }
            };
        }
        nodes[node].1 = Some(texts.len() as u32);
        texts.push_str(content);
        texts.push('\0');
    }
    let block = |node: usize| (node + 1) * 256;
    let mut units = vec![0_u32; block(nodes.len())];
    let mut places = vec![0; nodes.len()];
    for node in 0..nodes.len() {
        let (children, value) = nodes[node].clone();
        units[places[node]] |= ((places[node] ^ block(node)) as u32) << 10;
        if let Some(value) = value {
            units[places[node]] |= 1 << 8;
            units[block(node)] = value | 1 << 31;
        }
        for (byte, child) in children {
            places[child] = block(node) ^ usize::from(byte);
            units[places[child]] = u32::from(byte);
        }
    }
    let mut bytes = (units.len() as u32 * 4).to_le_bytes().to_vec();
    bytes.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
    bytes.extend_from_slice(texts.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

const RULES: [(&str, &str); 17] = [
    ("\t", " "),
    ("\n", " "),
    ("\r", " "),
    ("\u{1}", ""),
    ("\u{ad}", ""),
    ("\u{200d}", ""),
    ("e\u{301}", "\u{e9}"),
    ("\u{301}", "!"),
    ("a\u{308}", "\u{e4}"),
    ("\u{bd}", "1\u{2044}2"),
    ("\u{fb01}", "fi"),
    ("\u{3000}", " "),
    ("\u{ff76}\u{ff9e}", "\u{30ac}"),
    ("\u{1100}", "G"),
    ("\u{1f1e9}", "D"),
    ("\u{ac00}", "ga"),
    ("\u{20001}", "\u{4e00}\u{4e01}"),
];

struct Both {
    ours: Precompiled,
    theirs: NormalizerWrapper,
}

impl Both {
    fn new() -> Self {
        let charsmap = charsmap(&RULES);
        let json = json!({"type": "Precompiled", "precompiled_charsmap": charsmap});
        Self {
            ours: Precompiled::new(&charsmap).unwrap(),
            theirs: serde_json::from_value(json).unwrap(),
        }
    }

    fn assert_equal(&self, text: &str) {
        let mut ours = String::new();
        self.ours.normalize(text, &mut ours);
        let mut theirs = NormalizedString::from(text);
        self.theirs.normalize(&mut theirs).unwrap();
        assert_eq!(ours, theirs.get(), "{text:?}");
    }
}

#[test]
fn the_rules_are_applied() {
    let both = Both::new();
    let normalized = |text: &str| {
        both.assert_equal(text);
        let mut out = String::new();
        both.ours.normalize(text, &mut out);
        out
    };
    assert_eq!(normalized("cafe\u{301}s"), "caf\u{e9}s");
    assert_eq!(normalized("\u{bd}\u{301}a"), "1\u{2044}2a"); // the mark goes with the cluster
    assert_eq!(normalized("a\r\nb\n\nc"), "a b  c");
    assert_eq!(normalized("n\u{301}"), "n!");
    assert_eq!(normalized(""), "");
}

#[test]
fn random_text_equals_the_crate() {
    let both = Both::new();
    let pieces = RULES.map(|(find, _)| find.to_owned()).to_vec();
    let mut random = RandomText::new(11, pieces);
    for _ in 0..8_000 {
        both.assert_equal(&random.text());
    }
}

#[test]
fn each_character_equals_the_crate_beside_others() {
    let both = Both::new();
    let mut text = String::new();
    for c in '\0'..'\u{20300}' {
        text.extend([
            'a', c, 'e', c, '\u{301}', c, c, '\u{200d}', c, '\u{1100}', c, '\r',
        ]);
        if text.len() > 4_000 {
            both.assert_equal(&text);
            text.clear();
        }
    }
    both.assert_equal(&text);
}

#[test]
fn malformed_rules_are_refused() {
    for charsmap in ["", "AAA", "!", "/////w=="] {
        assert!(Precompiled::new(charsmap).is_err(), "{charsmap:?}");
    }
}
