//! Byte-level BPE.

use super::{FastEncoder, NotCovered, Source};

/// Buffers that stay between texts.
#[derive(Debug, Default)]
pub(crate) struct Scratch {}

/// The encoder of a BPE tokenizer.
pub(crate) fn encoder_of(_source: Source<'_>) -> Result<Box<dyn FastEncoder>, NotCovered> {
    Err(NotCovered("the model is a BPE".to_owned()))
}
