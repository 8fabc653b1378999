//! Protobuf on the wire, with the caller's mistakes told apart from ours.

use std::marker::PhantomData;

use bytes::Buf;
use prost::{Message, Name};
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic_prost::ProstEncoder;

use crate::entries::{MAX_ENTRIES, count_entries};

/// tonic's protobuf codec, except that a request that cannot be decoded (invalid protobuf, text
/// that is not UTF-8) is `INVALID_ARGUMENT` and names the field. A response that cannot be
/// decoded stays `INTERNAL`, as gRPC has it.
#[derive(Debug, Clone)]
pub struct TulipCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for TulipCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for TulipCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Name + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = RequestDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        RequestDecoder(PhantomData)
    }
}

/// Decodes one message type, see [`TulipCodec`].
#[derive(Debug, Clone)]
pub struct RequestDecoder<U>(PhantomData<U>);

impl<U: Message + Name + Default> Decoder for RequestDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let is_request = U::NAME.ends_with("Request");
        if is_request {
            // The whole message lies in one piece.
            let entries = count_entries(buf.chunk());
            if entries > MAX_ENTRIES {
                let message = format!("message: has {entries} entries, limit {MAX_ENTRIES}");
                return Err(Status::invalid_argument(message));
            }
        }
        U::decode(buf).map(Some).map_err(|error| {
            if is_request {
                Status::invalid_argument(error.to_string())
            } else {
                Status::internal(error.to_string())
            }
        })
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::default()
    }
}
