//! The forms of a vector, taken from the rows of one sequence.

use std::collections::BTreeMap;

use crate::engine::{ModelInfo, Output};

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
        &self.rows[..self.info.dimensions()]
    }

    /// A vector for each token that has one.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = &'a [f32]> + Clone + use<'a> {
        let dimensions = self.info.dimensions();
        // The first row holds the dense vector, where there is one.
        let first = usize::from(self.info.outputs.kinds.contains(&Output::Dense));
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
        match self.info.outputs.kinds.first() {
            None | Some(Output::Dense) => {
                self.info.similarity.between(self.dense(), document.dense())
            }
            Some(Output::Sparse) => product(&self.weights(), &document.weights()),
            Some(Output::Tokens) => max_sim(self.tokens(), &document.tokens()),
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

/// For each token of the query its best token of the document, summed (`ColBERT`'s MaxSim).
#[expect(
    clippy::cast_possible_truncation,
    reason = "scores are float32 on the wire"
)]
fn max_sim<'a>(
    query: impl Iterator<Item = &'a [f32]>,
    document: &(impl Iterator<Item = &'a [f32]> + Clone),
) -> f32 {
    use crate::engine::Similarity;
    let best = query.filter_map(|token| {
        let products = document
            .clone()
            .map(|other| Similarity::Dot.between(token, other));
        products.reduce(f32::max).map(f64::from)
    });
    best.sum::<f64>() as f32
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
            int8_of_tanh: false,
        };
        info.layout.token_rows = token_rows;
        info
    }

    #[test]
    fn a_model_of_three_forms_has_them_in_its_token_rows() {
        let info = info(&[Output::Dense, Output::Sparse, Output::Tokens], true, 3, 2);
        let rows = Rows {
            info: &info,
            rows: &[0.6, 0.8, 0.9, 1.0, 0.0, 0.5, 0.0, 1.0, 0.7, 0.1, 0.2, 0.0],
            token_ids: &[0, 7, 7, 5],
        };
        assert_eq!(rows.dense(), [0.6, 0.8]);
        let tokens: Vec<&[f32]> = rows.tokens().collect();
        assert_eq!(tokens, [[1.0, 0.0], [0.0, 1.0], [0.1, 0.2]]);
        // The first is a special token, the last has no weight, the highest of two counts.
        assert_eq!(rows.weights(), Weights::from([(7, 0.7)]));
    }

    #[test]
    fn a_sparse_row_is_a_weight_for_each_entry_of_the_vocabulary() {
        let info = info(&[Output::Sparse], false, 4, 0);
        let rows = |rows: &'static [f32]| Rows {
            info: &info,
            rows,
            token_ids: &[],
        };
        let query = rows(&[0.0, 2.0, 0.0, 0.5]);
        assert_eq!(query.weights(), Weights::from([(1, 2.0), (3, 0.5)]));
        assert_eq!(query.nearness(&rows(&[9.0, 3.0, 1.0, 4.0])), 8.0);
    }

    #[test]
    fn each_token_of_the_query_finds_its_best_one() {
        let info = info(&[Output::Tokens], true, 2, 2);
        let query = Rows {
            info: &info,
            rows: &[1.0, 0.0, 0.0, 1.0],
            token_ids: &[],
        };
        let document = Rows {
            info: &info,
            rows: &[0.5, 0.25, 0.75, -1.0, 0.0, 0.125],
            token_ids: &[],
        };
        assert_eq!(query.nearness(&document), 0.75 + 0.25);
    }
}
