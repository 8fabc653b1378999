//! A document that was read in parts has the score of its best part.

use super::encode::{EncodedItems, Part};
use super::score::Value;

/// One value, and one row of labels if there are any, for each document that was read.
#[derive(Debug, PartialEq)]
pub(crate) struct BestChunks {
    /// For each document of the request the first token of the part that won; empty where none
    /// was in parts.
    pub(crate) starts: Vec<u32>,
    /// The same, the tokens of that part.
    pub(crate) lengths: Vec<u32>,
    pub(crate) values: Vec<Value>,
    pub(crate) label_rows: Vec<f32>,
}

/// Keeps of neighbouring sequences of one document the one with the highest value, the first of
/// equals. A value that is not finite wins: it is the document's failure.
pub(crate) fn best_chunks(
    encoded: &mut EncodedItems,
    values: Vec<Value>,
    label_rows: Vec<f32>,
    num_documents: usize,
) -> BestChunks {
    if encoded.parts.is_empty() {
        return BestChunks {
            starts: Vec::new(),
            lengths: Vec::new(),
            values,
            label_rows,
        };
    }
    let width = label_rows.len() / values.len().max(1);
    let mut best = BestChunks {
        starts: vec![0; num_documents],
        lengths: vec![0; num_documents],
        values: Vec::new(),
        label_rows: Vec::new(),
    };
    let mut items = Vec::new();
    let mut first = 0;
    for of_one in encoded.items.chunk_by(|a, b| a == b) {
        let of_values = &values[first..first + of_one.len()];
        let mut at = first;
        for (offset, value) in of_values.iter().enumerate() {
            let better = value.best_first(&values[at]).is_lt();
            if values[at].score.is_finite() && (better || !value.score.is_finite()) {
                at = first + offset;
            }
        }
        let item = of_one[0];
        let part = encoded.parts.get(at).copied();
        let Part { start, tokens } = part.unwrap_or(Part {
            start: 0,
            tokens: 0,
        });
        best.starts[item as usize] = start;
        best.lengths[item as usize] = tokens;
        best.values.push(values[at]);
        let row = label_rows.get(at * width..(at + 1) * width);
        best.label_rows.extend_from_slice(row.unwrap_or_default());
        items.push(item);
        first += of_one.len();
    }
    encoded.items = items;
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(items: &[u32]) -> EncodedItems {
        let parts = (0..).zip(items).map(|(at, _)| Part {
            start: at * 10,
            tokens: at + 1,
        });
        EncodedItems {
            items: items.to_vec(),
            parts: parts.collect(),
            ..EncodedItems::default()
        }
    }

    fn plain(scores: &[f32]) -> Vec<Value> {
        scores.iter().copied().map(Value::plain).collect()
    }

    #[test]
    fn the_best_part_is_that_with_the_highest_logit() {
        let mut encoded = encoded(&[0, 0, 0]);
        let value = |order| Value { score: 1.0, order };
        let values = vec![value(20.0), value(30.0), value(25.0)];
        let best = best_chunks(&mut encoded, values, Vec::new(), 1);
        assert_eq!((best.starts, best.values), (vec![10], vec![value(30.0)]));
    }

    #[test]
    fn the_best_part_wins_and_brings_its_labels() {
        let mut encoded = encoded(&[0, 0, 0, 2, 3, 3]);
        let values = plain(&[0.1, 0.9, 0.9, 0.5, 0.3, 0.2]);
        let rows: Vec<f32> = (0_u8..12).map(f32::from).collect();
        let best = best_chunks(&mut encoded, values, rows, 5);
        assert_eq!(encoded.items, [0, 2, 3]);
        let expected = BestChunks {
            starts: vec![10, 0, 30, 40, 0],
            lengths: vec![2, 0, 4, 5, 0],
            values: plain(&[0.9, 0.5, 0.3]),
            label_rows: vec![2.0, 3.0, 6.0, 7.0, 8.0, 9.0],
        };
        assert_eq!(best, expected);
    }

    #[test]
    fn one_part_beyond_float32_fails_the_document() {
        let mut encoded = encoded(&[0, 0, 0]);
        let values = plain(&[0.1, f32::INFINITY, 0.9]);
        let best = best_chunks(&mut encoded, values, Vec::new(), 1);
        assert_eq!(best.values, plain(&[f32::INFINITY]));
    }

    #[test]
    fn without_parts_nothing_changes() {
        let mut encoded = EncodedItems {
            items: vec![0, 1],
            ..EncodedItems::default()
        };
        let best = best_chunks(&mut encoded, plain(&[1.0, 2.0]), Vec::new(), 2);
        assert_eq!(best.values, plain(&[1.0, 2.0]));
        assert_eq!(encoded.items, [0, 1]);
        assert!(best.starts.is_empty());
    }
}
