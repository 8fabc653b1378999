use serde_json::{Value, json};

use super::*;
use crate::fixtures;

fn pair_layout(post_processor: Value) -> Layout {
    Layout::of_pair(&with(post_processor)).unwrap()
}

fn with(post_processor: Value) -> Reference {
    let mut tokenizer = fixtures::bert();
    tokenizer["post_processor"] = post_processor;
    tokenizer["truncation"] = json!(null);
    tokenizer["padding"] = json!(null);
    fixtures::reference(&tokenizer)
}

fn constant(prefix: &[u32], middle: &[u32], suffix: &[u32], type_1_after: Option<usize>) -> Layout {
    Layout::Constant {
        prefix: prefix.to_vec(),
        middle: middle.to_vec(),
        suffix: suffix.to_vec(),
        type_1_after,
    }
}

const TOKENS: [(&str, u32); 2] = [("[CLS]", 2), ("[SEP]", 3)];

#[test]
fn bert() {
    let processor = json!({"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]});
    assert_eq!(
        pair_layout(processor.clone()),
        constant(&[2], &[3], &[3], Some(1))
    );
    assert_eq!(
        Layout::of_single(&with(processor)).unwrap(),
        constant(&[2], &[], &[3], None)
    );
}

#[test]
fn roberta_has_one_type() {
    let processor = fixtures::roberta()["post_processor"].clone();
    assert_eq!(pair_layout(processor), constant(&[0], &[1, 1], &[1], None));
}

#[test]
fn type_1_may_start_with_a_special_token() {
    let processor =
        fixtures::template("[CLS]:0 $A:0", "[CLS]:0 $A:0 [SEP]:1 [SEP]:1 $B:1", &TOKENS);
    assert_eq!(
        pair_layout(processor),
        constant(&[2], &[3, 3], &[], Some(0))
    );
}

#[test]
fn no_post_processor() {
    let layout = pair_layout(json!(null));
    assert_eq!(layout, constant(&[], &[], &[], Some(0)));
    let reference = with(json!(null));
    let assembled = layout.assemble(&reference, &[5, 6], Some(&[7])).unwrap();
    assert_eq!(
        assembled,
        Assembled {
            token_ids: vec![5, 6, 7],
            second_segment_start: 2
        }
    );
}

#[test]
fn what_is_not_constant_is_left_to_the_post_processor() {
    let cases = [
        (
            "document first",
            "[CLS]:0 $B:0 [SEP]:0 $A:1 [SEP]:1",
            [2, 7, 3, 5, 6, 3].as_slice(),
            3,
        ),
        (
            "query again",
            "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1 $A:1",
            &[2, 5, 6, 3, 7, 3, 5, 6],
            4,
        ),
        (
            "type 1 late",
            "[CLS]:0 $A:0 [SEP]:0 $B:0 [SEP]:1",
            &[2, 5, 6, 3, 7, 3],
            5,
        ),
    ];
    for (name, pair, token_ids, second_segment_start) in cases {
        let processor = fixtures::template("[CLS]:0 $A:0 [SEP]:0", pair, &TOKENS);
        let reference = with(processor);
        let layout = Layout::of_pair(&reference).unwrap();
        assert!(
            matches!(layout, Layout::PostProcessor { .. }),
            "{name}: {layout:?}"
        );
        let assembled = layout.assemble(&reference, &[5, 6], Some(&[7])).unwrap();
        assert_eq!(
            assembled,
            Assembled {
                token_ids: token_ids.to_vec(),
                second_segment_start
            },
            "{name}"
        );
    }
}

#[test]
fn token_types_that_cannot_be_told_are_an_error() {
    let back = fixtures::template("[CLS]:0 $A:0", "[CLS]:1 $A:0 [SEP]:0 $B:1", &TOKENS);
    let reference = with(back);
    let layout = Layout::of_pair(&reference).unwrap();
    assert_eq!(
        layout.assemble(&reference, &[5], Some(&[6])),
        Err(EncodeError::TokenTypes)
    );
    let single = fixtures::template("[CLS]:2 $A:0", "[CLS]:0 $A:0 $B:1", &TOKENS);
    assert_eq!(Layout::of_single(&with(single)), Err(LoadError::TokenTypes));
}

#[test]
fn a_constant_layout_is_the_post_processor_for_all_lengths() {
    for (name, tokenizer) in fixtures::all() {
        let mut reference = fixtures::reference(&tokenizer);
        reference.with_truncation(None).unwrap().with_padding(None);
        let layout = Layout::of_pair(&reference).unwrap();
        assert!(matches!(layout, Layout::Constant { .. }), "{name}");
        for first in 0..4 {
            for second in 0..4 {
                let (first, second) = (vec![9; first], vec![9; second]);
                let (ids, types) = processed(&reference, &first, Some(&second)).unwrap();
                let assembled = layout.assemble(&reference, &first, Some(&second)).unwrap();
                assert_eq!(assembled.token_ids, ids, "{name}");
                let start = assembled.second_segment_start as usize;
                let ours = (0..ids.len()).map(|index| u32::from(start > 0 && index >= start));
                assert_eq!(ours.collect::<Vec<_>>(), types, "{name}");
            }
        }
    }
}
