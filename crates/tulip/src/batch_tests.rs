use super::*;
use crate::job::{Priority, Submission};

fn batch(sequences: Vec<Sequence>) -> Batch {
    let count = sequences.len();
    let submission = Submission {
        sequences,
        priority: Priority::Interactive,
        deadline: None,
    };
    let (job, _reply) = Job::new(submission, Instant::now());
    let job = Arc::new(job);
    let mut batch = Batch::default();
    for index in 0..count {
        batch.push(&job, index, 1);
    }
    batch
}

fn pair(token_ids: &[u32], second_segment_start: u32) -> Sequence {
    Sequence {
        token_ids: token_ids.to_vec(),
        second_segment_start,
    }
}

#[test]
fn exact_layout() {
    let batch = batch(vec![pair(&[7, 8, 9], 2), pair(&[5], 0)]);
    let layout = BatchLayout {
        token_types: true,
        ..BatchLayout::default()
    };
    let mut out = [-1; 16];
    let shape = batch.write_packed(&layout, &mut out).unwrap();
    assert_eq!(
        (
            shape.padded_tokens,
            shape.padded_sequences,
            shape.max_seqlen
        ),
        (4, 2, 3)
    );
    assert_eq!(out[..3], [0, 3, 4], "cu_seqlens");
    assert_eq!(out[3..7], [7, 8, 9, 5], "token ids");
    assert_eq!(out[7..11], [0, 1, 2, 0], "positions");
    assert_eq!(out[11..15], [0, 0, 1, 0], "token types");
    assert_eq!(out[15], -1, "nothing beyond");
}

#[test]
fn padding_rows_are_a_sequence_of_their_own() {
    let batch = batch(vec![pair(&[7, 8], 0), pair(&[5], 0)]);
    let layout = BatchLayout {
        token_buckets: vec![4, 8],
        sequence_tiers: vec![2, 5],
        token_types: false,
        position_offset: 2,
        token_rows: false,
    };
    let mut out = [-1; 14];
    let shape = batch.write_packed(&layout, &mut out).unwrap();
    // Two real sequences and the padding one do not fit the tier of 2.
    assert_eq!((shape.padded_tokens, shape.padded_sequences), (4, 5));
    assert_eq!(out[..6], [0, 2, 3, 4, 4, 4], "cu_seqlens");
    assert_eq!(out[6..10], [7, 8, 5, 0], "token ids");
    assert_eq!(out[10..14], [2, 3, 2, 2], "positions");
}

#[test]
fn a_full_bucket_needs_no_padding_sequence() {
    let layout = BatchLayout {
        token_buckets: vec![4],
        sequence_tiers: vec![2],
        ..BatchLayout::default()
    };
    let shape = layout.shape(4, 2, 3);
    assert_eq!(
        (
            shape.padded_tokens,
            shape.padded_sequences,
            shape.max_seqlen
        ),
        (4, 2, 3)
    );
}

#[test]
fn beyond_the_largest_bucket_and_tier_it_is_exact() {
    let layout = BatchLayout {
        token_buckets: vec![4],
        sequence_tiers: vec![2],
        ..BatchLayout::default()
    };
    let shape = layout.shape(9, 7, 2);
    assert_eq!((shape.padded_tokens, shape.padded_sequences), (9, 7));
}

#[test]
fn a_long_padding_sequence_counts_for_max_seqlen() {
    let layout = BatchLayout {
        token_buckets: vec![64],
        ..BatchLayout::default()
    };
    assert_eq!(layout.shape(10, 2, 5).max_seqlen, 54);
}

#[test]
fn a_short_buffer_is_an_error_that_says_how_much() {
    let batch = batch(vec![pair(&[7, 8], 0)]);
    let error = batch
        .write_packed(&BatchLayout::default(), &mut [0; 3])
        .unwrap_err();
    assert_eq!(
        error,
        BufferTooSmall {
            needed: 6,
            capacity: 3
        }
    );
}
