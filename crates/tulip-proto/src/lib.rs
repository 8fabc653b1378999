//! The wire contract `protos/tulip/v1/tulip.proto` as Rust types, client and server.
//!
//! The code under `generated/` is checked in, so that a build needs no protobuf compiler;
//! `tests/regenerate.rs` makes it anew and compares.

mod code;
mod codec;
mod entries;
mod message;

pub use code::code_name;
pub use codec::{RequestDecoder, TulipCodec};
pub use message::{quoted, shortened};

/// Package `tulip.v1`: messages, `tulip_client` and `tulip_server`.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::needless_pass_by_value
)]
#[allow(clippy::semicolon_if_nothing_returned, rustdoc::all)]
pub mod v1 {
    include!("generated/tulip.v1.rs");
}

/// Serialized `google.protobuf.FileDescriptorSet` of the contract, for reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/tulip.v1.binpb");
