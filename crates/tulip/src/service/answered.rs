//! The rows of an Embed request in the forms that its answer has.

use tulip_proto::v1::{SparseVectors, Tensor, TokenVectors};

use super::forms::Rows;
use super::serving::wire_u32;
use crate::engine::ModelInfo;
use crate::job::JobOutput;
use crate::vectors::VectorFormat;

/// What the model gave for the inputs of one request.
#[derive(Debug)]
pub(crate) struct Answered<'a> {
    pub(crate) info: &'a ModelInfo,
    pub(crate) output: &'a JobOutput,
    /// Of each sequence, where the model has a row for each token.
    pub(crate) token_ids: &'a [Vec<u32>],
    /// For each sequence the index of its input, ascending.
    pub(crate) items: &'a [u32],
    pub(crate) num_inputs: usize,
}

impl Answered<'_> {
    /// One vector for each input, zeros where there is none.
    pub(crate) fn dense(&self, format: &VectorFormat) -> Tensor {
        let (output, info) = (self.output, self.info);
        if output.not_finite.is_empty() && !info.layout.token_rows {
            return format.tensor(self.num_inputs, &output.rows, output.width, self.items);
        }
        let (mut rows, mut items) = (Vec::new(), Vec::new());
        for (item, one) in self.finite() {
            rows.extend_from_slice(one.dense());
            items.push(item);
        }
        format.tensor(self.num_inputs, &rows, info.dimensions(), &items)
    }

    /// Weights of tokens for each input.
    pub(crate) fn sparse(&self) -> SparseVectors {
        let mut vectors = SparseVectors::default();
        let mut finite = self.finite().peekable();
        for input in 0..wire_u32(self.num_inputs) {
            vectors.row_offsets.push(wire_u32(vectors.indices.len()));
            if let Some((_, rows)) = finite.next_if(|(item, _)| *item == input) {
                for (id, weight) in rows.weights() {
                    vectors.indices.push(id);
                    vectors.values.push(weight);
                }
            }
        }
        vectors.row_offsets.push(wire_u32(vectors.indices.len()));
        vectors
    }

    /// A vector for each token of each input.
    pub(crate) fn tokens(&self, format: &VectorFormat) -> TokenVectors {
        let (mut rows, mut row_offsets, mut count) = (Vec::new(), Vec::new(), 0);
        let mut finite = self.finite().peekable();
        for input in 0..wire_u32(self.num_inputs) {
            row_offsets.push(count);
            if let Some((_, one)) = finite.next_if(|(item, _)| *item == input) {
                for token in one.tokens() {
                    rows.extend_from_slice(token);
                    count += 1;
                }
            }
        }
        row_offsets.push(count);
        let every: Vec<u32> = (0..count).collect();
        let dimensions = self.info.dimensions();
        let vectors = format.tensor(count as usize, &rows, dimensions, &every);
        TokenVectors {
            row_offsets,
            vectors: Some(vectors),
        }
    }

    /// Inputs that have rows, ascending.
    fn finite(&self) -> impl Iterator<Item = (u32, Rows<'_>)> {
        let sequences = self.items.iter().enumerate();
        let finite = sequences
            .filter(|(sequence, _)| self.output.not_finite.binary_search(sequence).is_err());
        finite.map(|(sequence, &item)| {
            let rows = Rows {
                info: self.info,
                rows: self.output.of(sequence),
                token_ids: self.token_ids.get(sequence).map_or(&[], Vec::as_slice),
            };
            (item, rows)
        })
    }
}
