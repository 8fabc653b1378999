//! Text Embeddings Inference.

pub(crate) mod embed;
pub(crate) mod info;
pub(crate) mod predict;
pub(crate) mod rerank;
pub(crate) mod root;
pub(crate) mod similarity;
pub(crate) mod tokenize;

use tulip_proto::v1::Truncation;

use super::call::Call;
use super::options;
use crate::error::Result;

/// `truncate` and `truncation_direction`, as all of TEI's requests have them.
fn truncation(call: &Call, truncate: Option<bool>, direction: Option<&str>) -> Result<Truncation> {
    let cut = truncate.unwrap_or(call.gateway.config.auto_truncate);
    Ok(Truncation {
        side: options::side("truncation_direction", direction)?.into(),
        ..options::cut_if(cut)
    })
}
