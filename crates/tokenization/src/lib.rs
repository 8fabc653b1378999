//! Text to token ids, exactly as the model's own `tokenizer.json` says, on threads of its own.
//!
//! What happens to the texts of a request:
//!
//! 1. [`encode_batch`] or [`encode_pairs`] (`batch`) splits them over the [`Pool`] (`pool`),
//!    or does them at once when they are few;
//! 2. [`Tokenizer`] (`tokenizer`) makes a segment of each: its own tokens, nothing around them.
//!    Of a text far beyond the limit only a prefix is read, where that is provably the same
//!    (`prefix`); the query of a request is tokenized once. Ids come from our own encoder where it
//!    is known to give the same (`fast`), else from the `tokenizers` crate;
//! 3. segments are cut to the room they have (`encode`, `truncation`);
//! 4. special tokens are put around them (`layout`), or the prompt that the model wants
//!    (`template`), whose text beside a document is read together with it (`document`).
//!
//! A document too long for one sequence can become several overlapping ones (`chunk`).

mod batch;
mod chunk;
mod document;
mod encode;
mod error;
mod fast;
#[cfg(test)]
mod fixtures;
mod inspect;
mod layout;
mod pair_template;
mod pool;
mod prefix;
mod strip;
mod template;
mod templated;
mod tokenizer;
mod truncation;

pub use batch::{
    encode_batch, encode_batch_chunks, encode_pair_chunks, encode_pairs, encode_query,
    encode_query_with,
};
pub use chunk::Chunk;
pub use encode::{Encoded, Query};
pub use error::{EncodeError, LoadError, PoolError};
pub use inspect::InspectedToken;
pub use pair_template::PairTemplate;
pub use pool::Pool;
pub use tokenizer::{Content, Tokenizer, TokenizerOptions};
pub use truncation::{OverlongPolicy, PairTruncation, Side, Truncated, TruncationOptions};
