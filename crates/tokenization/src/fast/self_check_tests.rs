use std::collections::HashSet;

use super::*;
use crate::fast::added_tokens::AddedTokens;
use crate::fast::{FastEncoder, Scratch};
use crate::fixtures;

/// Right for all texts but those with `wrong_for` in them.
#[derive(Debug)]
struct Reference {
    reference: tokenizers::Tokenizer,
    wrong_for: Option<&'static str>,
}

impl FastEncoder for Reference {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn normalize(&self, text: &str, normalized: &mut String, _: &mut Scratch) {
        normalized.push_str(text);
    }

    fn encode_normalized(
        &self,
        text: &str,
        _: bool,
        _: usize,
        _: &mut Scratch,
        ids: &mut Vec<u32>,
    ) {
        let encoding = self.reference.encode_fast(text, false).unwrap();
        ids.extend_from_slice(encoding.get_ids());
        if self.wrong_for.is_some_and(|wrong| text.contains(wrong)) {
            ids.push(0);
        }
    }
}

fn fast(wrong_for: Option<&'static str>) -> (FastTokenizer, tokenizers::Tokenizer) {
    let mut reference = fixtures::reference(&fixtures::bert());
    reference.with_truncation(None).unwrap().with_padding(None);
    let encoder = Reference {
        reference: reference.clone(),
        wrong_for,
    };
    let added_tokens = AddedTokens::of(&reference).unwrap();
    (
        FastTokenizer::new(added_tokens, Box::new(encoder)),
        reference,
    )
}

#[test]
fn there_are_200_different_texts() {
    let texts = texts();
    assert_eq!(texts.len(), 200);
    assert_eq!(texts.iter().collect::<HashSet<_>>().len(), 200);
}

#[test]
fn one_wrong_text_is_found() {
    let (right, reference) = fast(None);
    assert_eq!(first_difference(&right, &reference), None);
    for wrong_for in ["\u{110bd}", "rock'n'roll", "   \n leading"] {
        let (wrong, reference) = fast(Some(wrong_for));
        let difference = first_difference(&wrong, &reference).unwrap();
        assert!(difference.text.contains(wrong_for), "{difference}");
    }
}
