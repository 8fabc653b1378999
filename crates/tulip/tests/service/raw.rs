//! Messages that need not be protobuf.

use bytes::{BufMut as _, Bytes};
use http::uri::PathAndQuery;
use tokio_stream::StreamExt as _;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Request, Status};

/// Calls `Score` with these bytes as the request.
pub(crate) async fn score_bytes(channel: &Channel, bytes: Vec<u8>) -> Result<(), Status> {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.unwrap();
    let path = PathAndQuery::from_static("/tulip.v1.Tulip/Score");
    client
        .unary(Request::new(Bytes::from(bytes)), path, RawCodec)
        .await
        .map(|_| ())
}

/// Calls `Score`, sends this of a request and never ends it. `timeout` is `grpc-timeout`.
pub(crate) async fn score_stalled(
    channel: &Channel,
    message: Option<Bytes>,
    timeout: Option<&str>,
) -> Result<(), Status> {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.unwrap();
    let path = PathAndQuery::from_static("/tulip.v1.Tulip/Score");
    let messages = tokio_stream::iter(message).chain(tokio_stream::pending());
    let mut request = Request::new(messages);
    if let Some(timeout) = timeout {
        let metadata = request.metadata_mut();
        metadata.insert("grpc-timeout", timeout.parse().unwrap());
    }
    client
        .client_streaming(request, path, RawCodec)
        .await
        .map(|_: tonic::Response<()>| ())
}

/// Bytes as they are.
struct RawCodec;

impl Codec for RawCodec {
    type Encode = Bytes;
    type Decode = ();
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::default()
    }
}

impl Decoder for RawCodec {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, _: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        Ok(Some(()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::default()
    }
}
