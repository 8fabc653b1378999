//! The forms of a vector, taken from the rows of one sequence.

use std::collections::BTreeMap;

use crate::engine::{ModelInfo, Output, Similarity};

/// Weights of tokens, ascending by id.
pub(crate) type Weights = BTreeMap<u32, f32>;

/// The rows of one sequence, and what they mean.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub(crate) info: &'a ModelInfo,
    pub(crate) rows: &'a [f32],
    /// Of the sequence; needed for weights of a model with a row for each token.
    pub(crate) token_ids: &'a [u32],
}

impl<'a> Rows<'a> {
    /// The one vector of the sequence.
    pub(crate) fn dense(&self) -> &'a [f32] {
        let start = self.info.outputs.dense_start;
        &self.rows[start..start + self.info.dimensions()]
    }

    /// A vector for each token that has one.
    pub(crate) fn tokens(&self) -> impl ExactSizeIterator<Item = &'a [f32]> + Clone + use<'a> {
        let dimensions = self.info.dimensions();
        let first = usize::from(self.info.outputs.skip_first_token);
        let rows = self.rows.chunks_exact(self.info.output_width.max(1));
        rows.skip(first).map(move |row| &row[..dimensions])
    }

    /// Weights above 0. A token that is there twice has its highest one.
    pub(crate) fn weights(&self) -> Weights {
        let mut weights = Weights::new();
        if self.info.layout.token_rows {
            let rows = self.rows.chunks_exact(self.info.output_width.max(1));
            for (&id, row) in self.token_ids.iter().zip(rows) {
                let weight = row[row.len() - 1];
                if weight > 0.0 && !self.info.outputs.skip_token_ids.contains(&id) {
                    let highest = weights.entry(id).or_insert(weight);
                    *highest = highest.max(weight);
                }
            }
        } else {
            let weighted = (0..).zip(self.rows).filter(|(_, weight)| **weight > 0.0);
            weights.extend(weighted.map(|(id, &weight)| (id, weight)));
        }
        weights
    }

    /// How near a document is to this query, by the first form that the model has.
    pub(crate) fn nearness(&self, document: &Rows<'_>) -> f32 {
        let outputs = &self.info.outputs;
        match outputs.kinds.first() {
            Some(Output::Tokens) => {
                max_sim(self.tokens(), &document.tokens(), outputs.max_sim_mean)
            }
            Some(Output::Sparse) if self.info.layout.token_rows => {
                product(&self.weights(), &document.weights())
            }
            // A row of a sparse model is a vector too.
            None | Some(Output::Dense | Output::Sparse) => {
                self.info.similarity.between(self.dense(), document.dense())
            }
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "scores are float32 on the wire"
)]
fn product(query: &Weights, document: &Weights) -> f32 {
    let terms = query.iter().filter_map(|(id, weight)| {
        let other = document.get(id)?;
        Some(f64::from(*weight) * f64::from(*other))
    });
    terms.sum::<f64>() as f32
}

/// For each token of the query the product with its best token of the document: the sum of them
/// (`ColBERT`), or the mean (bge-m3). Where one of the two has no vectors it is 0.
#[expect(
    clippy::cast_possible_truncation,
    reason = "scores are float32 on the wire"
)]
fn max_sim<'a, 'b>(
    query: impl ExactSizeIterator<Item = &'a [f32]>,
    document: &(impl Iterator<Item = &'b [f32]> + Clone),
    mean: bool,
) -> f32 {
    let count = if mean { query.len().max(1) } else { 1 };
    let best = query.filter_map(|token| {
        let products = document
            .clone()
            .map(|other| Similarity::Dot.between(token, other));
        products.reduce(f32::max).map(f64::from)
    });
    (best.sum::<f64>() / count as f64) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Outputs, Task};
    use crate::fake_engine::FakeEngine;

    fn info(kinds: &[Output], token_rows: bool, width: usize, dimensions: usize) -> ModelInfo {
        let mut info = FakeEngine::model_info(Task::Embed, width, b"");
        info.outputs = Outputs {
            kinds: kinds.to_vec(),
            dimensions,
            skip_token_ids: vec![0],
            ..Outputs::default()
        };
        info.layout.token_rows = token_rows;
        info
    }

    fn rows<'a>(info: &'a ModelInfo, rows: &'a [f32], token_ids: &'a [u32]) -> Rows<'a> {
        Rows {
            info,
            rows,
            token_ids,
        }
    }

    #[test]
    fn a_model_of_three_forms_has_them_in_its_token_rows() {
        let mut info = info(&[Output::Dense, Output::Sparse, Output::Tokens], true, 3, 2);
        info.outputs.skip_first_token = true;
        let values = [0.6, 0.8, 0.9, 1.0, 0.0, 0.5, 0.0, 1.0, 0.7, 0.1, 0.2, 0.0];
        let rows = rows(&info, &values, &[0, 7, 7, 5]);
        assert_eq!(rows.dense(), [0.6, 0.8]);
        let tokens: Vec<&[f32]> = rows.tokens().collect();
        assert_eq!(tokens, [[1.0, 0.0], [0.0, 1.0], [0.1, 0.2]]);
        // The first is a special token, the last has no weight, the highest of two counts.
        assert_eq!(rows.weights(), Weights::from([(7, 0.7)]));
    }

    #[test]
    fn a_dense_vector_can_stand_beside_the_first_tokens_own() {
        let mut info = info(&[Output::Dense, Output::Tokens], true, 4, 2);
        info.outputs.dense_start = 2;
        let rows = rows(&info, &[1.0, 0.0, 0.6, 0.8, 0.0, 1.0, 9.0, 9.0], &[]);
        assert_eq!(rows.dense(), [0.6, 0.8]);
        let tokens: Vec<&[f32]> = rows.tokens().collect();
        assert_eq!(tokens, [[1.0, 0.0], [0.0, 1.0]]);
    }

    #[test]
    fn a_sparse_row_is_a_weight_for_each_entry_of_the_vocabulary() {
        let mut info = info(&[Output::Sparse], false, 4, 0);
        info.similarity = Similarity::Dot;
        let query = rows(&info, &[0.0, 2.0, 0.0, 0.5], &[]);
        assert_eq!(query.weights(), Weights::from([(1, 2.0), (3, 0.5)]));
        assert_eq!(
            query.nearness(&rows(&info, &[9.0, 3.0, 1.0, 4.0], &[])),
            8.0
        );
    }

    #[test]
    fn each_token_of_the_query_finds_its_best_one() {
        let mut info = info(&[Output::Tokens], true, 2, 2);
        let (query, document) = ([1.0, 0.0, 0.0, 1.0], [0.5, 0.25, 0.75, -1.0, 0.0, 0.125]);
        let nearness = |info: &ModelInfo, query: &[f32], document: &[f32]| {
            rows(info, query, &[]).nearness(&rows(info, document, &[]))
        };
        assert_eq!(nearness(&info, &query, &document), 0.75 + 0.25);
        info.outputs.max_sim_mean = true;
        assert_eq!(nearness(&info, &query, &document), 0.5);
        // Only a first token, which is skipped: nothing to compare.
        info.outputs.skip_first_token = true;
        assert_eq!(nearness(&info, &query[..2], &document), 0.0);
        assert_eq!(nearness(&info, &query, &document[..2]), 0.0);
    }
}
