//! The class `rose._tulip.TextEncoder`: texts to token ids as the server makes them.

use pyo3::prelude::*;
use tulip::text_encoder::{TextEncoder, TextRole};

use crate::config::PyModelInfo;
use crate::value_error;

/// See `_tulip.pyi`.
#[pyclass(name = "TextEncoder", module = "rose._tulip", frozen)]
pub(crate) struct PyTextEncoder(TextEncoder);

/// Token ids, and the index of the first token of the second segment (0 = one segment).
type Sequences = Vec<(Vec<u32>, u32)>;

#[pymethods]
impl PyTextEncoder {
    #[new]
    fn new(py: Python<'_>, info: PyModelInfo) -> PyResult<Self> {
        let info = info.into_info()?;
        let encoder = py.detach(|| TextEncoder::new(info));
        encoder.map(Self).map_err(value_error)
    }

    #[pyo3(signature = (query, documents, instruction = ""))]
    fn pairs(
        &self,
        py: Python<'_>,
        query: &str,
        documents: Vec<String>,
        instruction: &str,
    ) -> PyResult<Sequences> {
        let sequences = py.detach(|| self.0.pairs(query, documents, instruction));
        Ok(sequences
            .map_err(value_error)?
            .into_iter()
            .map(parts)
            .collect())
    }

    #[pyo3(signature = (texts, role = "", instruction = ""))]
    fn singles(
        &self,
        py: Python<'_>,
        texts: Vec<String>,
        role: &str,
        instruction: &str,
    ) -> PyResult<Sequences> {
        let role = match role {
            "query" => TextRole::Query,
            "document" => TextRole::Document,
            "" => TextRole::Unspecified,
            other => {
                let message = format!("role: {other:?} is neither query nor document nor empty");
                return Err(value_error(message));
            }
        };
        let sequences = py.detach(|| self.0.singles(texts, role, instruction));
        Ok(sequences
            .map_err(value_error)?
            .into_iter()
            .map(parts)
            .collect())
    }
}

fn parts(sequence: tulip::sequence::Sequence) -> (Vec<u32>, u32) {
    (sequence.token_ids, sequence.second_segment_start)
}
