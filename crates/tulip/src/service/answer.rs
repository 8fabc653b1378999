//! The forms of vectors that an Embed answer has, filled sequence by sequence.

use tulip_proto::v1::{SparseVectors, Tensor, TokenVectors};

use super::forms::Rows;
use super::serving::wire_u32;
use crate::engine::Output;
use crate::vectors::VectorFormat;

/// What is wanted of each input, and what is there already.
#[derive(Debug)]
pub(crate) struct Answer<'a> {
    wanted: &'a [Output],
    format: &'a VectorFormat,
    /// Values of a vector as the model gives it.
    width: usize,
    dense: Vec<f32>,
    /// For each dense vector the index of its input.
    dense_items: Vec<u32>,
    sparse: SparseVectors,
    tokens: Vec<f32>,
    token_offsets: Vec<u32>,
}

/// The forms as the wire has them; those that are wanted are there.
#[derive(Debug)]
pub(crate) struct Forms {
    pub(crate) dense: Option<Tensor>,
    pub(crate) sparse: Option<SparseVectors>,
    pub(crate) tokens: Option<TokenVectors>,
}

impl<'a> Answer<'a> {
    pub(crate) fn new(wanted: &'a [Output], format: &'a VectorFormat, width: usize) -> Self {
        Self {
            wanted,
            format,
            width,
            dense: Vec::new(),
            dense_items: Vec::new(),
            sparse: SparseVectors::default(),
            tokens: Vec::new(),
            token_offsets: Vec::new(),
        }
    }

    /// Adds an input; they come in order, and those that failed do not come.
    pub(crate) fn add(&mut self, item: u32, rows: &Rows<'_>) {
        if self.wants(Output::Dense) {
            self.dense.extend_from_slice(rows.dense());
            self.dense_items.push(item);
        }
        if self.wants(Output::Sparse) {
            self.begin_sparse(item as usize);
            for (id, weight) in rows.weights() {
                self.sparse.indices.push(id);
                self.sparse.values.push(weight);
            }
        }
        if self.wants(Output::Tokens) {
            self.begin_tokens(item as usize);
            for token in rows.tokens() {
                self.tokens.extend_from_slice(token);
            }
        }
    }

    /// Inputs that did not come have zeros, or no entries.
    pub(crate) fn finish(mut self, num_inputs: usize) -> Forms {
        let dense = self.wants(Output::Dense).then(|| {
            let items = &self.dense_items;
            self.format
                .tensor(num_inputs, &self.dense, self.width, items)
        });
        let tokens = self.wants(Output::Tokens).then(|| {
            self.begin_tokens(num_inputs);
            let count = self.tokens.len() / self.width.max(1);
            let every: Vec<u32> = (0..wire_u32(count)).collect();
            let vectors = self.format.tensor(count, &self.tokens, self.width, &every);
            TokenVectors {
                row_offsets: std::mem::take(&mut self.token_offsets),
                vectors: Some(vectors),
            }
        });
        let sparse = self.wants(Output::Sparse).then(|| {
            self.begin_sparse(num_inputs);
            std::mem::take(&mut self.sparse)
        });
        Forms {
            dense,
            sparse,
            tokens,
        }
    }

    fn wants(&self, form: Output) -> bool {
        self.wanted.contains(&form)
    }

    /// The offset of input `item`, and of those before it that did not come.
    fn begin_sparse(&mut self, item: usize) {
        let here = wire_u32(self.sparse.indices.len());
        self.sparse.row_offsets.resize(item + 1, here);
    }

    fn begin_tokens(&mut self, item: usize) {
        let here = wire_u32(self.tokens.len() / self.width.max(1));
        self.token_offsets.resize(item + 1, here);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{ModelInfo, Outputs, Task};
    use crate::fake_engine::FakeEngine;
    use tulip_proto::v1::DType;

    fn info() -> ModelInfo {
        let mut info = FakeEngine::model_info(Task::Embed, 2, b"");
        info.outputs = Outputs {
            kinds: vec![Output::Dense, Output::Sparse, Output::Tokens],
            dimensions: 1,
            ..Outputs::default()
        };
        info.layout.token_rows = true;
        info
    }

    #[test]
    fn inputs_that_failed_have_empty_rows() {
        let info = info();
        let format = VectorFormat {
            dimensions: 1,
            normalize: false,
            dtype: DType::DtypeInt8,
            tanh: false,
        };
        let wanted = [Output::Dense, Output::Sparse, Output::Tokens];
        let mut answer = Answer::new(&wanted, &format, 1);
        let rows = Rows {
            info: &info,
            rows: &[1.0, 0.5, -1.0, 0.25],
            token_ids: &[7, 9],
        };
        answer.add(1, &rows);
        answer.add(3, &rows);
        let forms = answer.finish(5);
        let dense = forms.dense.unwrap();
        assert_eq!(dense.shape, [5, 1]);
        assert_eq!(dense.data, [0, 127, 0, 127, 0].as_slice());
        let sparse = forms.sparse.unwrap();
        assert_eq!(sparse.row_offsets, [0, 0, 2, 2, 4, 4]);
        assert_eq!(sparse.indices, [7, 9, 7, 9]);
        assert_eq!(sparse.values, [0.5, 0.25, 0.5, 0.25]);
        let tokens = forms.tokens.unwrap();
        assert_eq!(tokens.row_offsets, [0, 0, 2, 2, 4, 4]);
        let vectors = tokens.vectors.unwrap();
        assert_eq!(vectors.shape, [4, 1]);
        assert_eq!(vectors.data, [127, 129, 127, 129].as_slice());
    }

    #[test]
    fn what_nobody_wants_is_not_there() {
        let info = info();
        let format = VectorFormat {
            dimensions: 1,
            normalize: false,
            dtype: DType::DtypeFloat32,
            tanh: false,
        };
        let mut answer = Answer::new(&[Output::Sparse], &format, 1);
        let rows = Rows {
            info: &info,
            rows: &[1.0, 0.0],
            token_ids: &[7],
        };
        answer.add(0, &rows);
        let forms = answer.finish(1);
        assert!(forms.dense.is_none() && forms.tokens.is_none());
        assert_eq!(forms.sparse.unwrap().row_offsets, [0, 0]);
    }
}
