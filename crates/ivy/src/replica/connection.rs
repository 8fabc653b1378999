//! How a replica is reached: gRPC over one HTTP/2 connection, with or without TLS.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status};
use tulip_proto::v1::tulip_client::TulipClient;
use tulip_proto::v1::{
    EmbedRequest, EmbedResponse, GetModelRequest, GetModelResponse, ScoreRequest, ScoreResponse,
    TokenizeRequest, TokenizeResponse,
};

/// Bytes on their way in one call and in all of them: as the server has it.
const STREAM_WINDOW: u32 = 2 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// A replica whose host has vanished says nothing at all: it is asked for a sign of life that
/// often, and given up after that long.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(3);

/// Where a replica is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    /// Where to connect.
    pub(crate) address: SocketAddr,
    /// What the operator called it; TLS checks the certificate against it.
    pub(crate) host: String,
}

/// TLS towards replicas.
#[derive(Debug, Clone, Default)]
pub struct ReplicaTls {
    /// Authorities in PEM that sign the replicas' certificates; none = the system's.
    pub ca_pem: Option<Vec<u8>>,
    /// Certificate chain and key in PEM by which this gateway is known to the replicas.
    pub identity_pem: Option<(Vec<u8>, Vec<u8>)>,
    /// Name in the replicas' certificates; none = the host as given.
    pub domain: Option<String>,
}

impl ReplicaTls {
    /// Trusts the authorities in this PEM file, or the system's.
    ///
    /// # Errors
    /// The file cannot be read; names it.
    pub fn signed_by(authorities: Option<&Path>) -> Result<Self, String> {
        let read = |path: &Path| {
            std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
        };
        Ok(Self {
            ca_pem: authorities.map(read).transpose()?,
            ..Self::default()
        })
    }
}

/// One connection to one replica. A future that is dropped cancels its call over there.
pub(crate) trait Connection: Send + Sync + 'static {
    fn score(&self, call: Request<ScoreRequest>) -> Answer<ScoreResponse>;
    fn embed(&self, call: Request<EmbedRequest>) -> Answer<EmbedResponse>;
    fn tokenize(&self, call: Request<TokenizeRequest>) -> Answer<TokenizeResponse>;
    fn get_model(&self, call: Request<GetModelRequest>) -> Answer<GetModelResponse>;
}

pub(crate) type Answer<T> = BoxFuture<'static, Result<T, Status>>;

/// Makes connections.
pub(crate) trait Connect: Send + Sync + 'static {
    /// Connects anew; what went wrong is text for the operator.
    fn connect<'a>(
        &'a self,
        target: &'a Target,
    ) -> BoxFuture<'a, Result<Arc<dyn Connection>, String>>;
}

/// The call with the time that is left as its timeout.
pub(crate) fn until<M>(message: M, deadline: Instant) -> Request<M> {
    let mut call = Request::new(message);
    call.set_timeout(deadline.saturating_duration_since(Instant::now()));
    call
}

/// Connects by gRPC.
#[derive(Debug, Clone)]
pub(crate) struct GrpcConnect {
    pub(crate) tls: Option<ReplicaTls>,
    pub(crate) connect_timeout: Duration,
}

impl GrpcConnect {
    fn endpoint(&self, target: &Target) -> Result<Endpoint, tonic::transport::Error> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{}", target.address))?
            .tcp_nodelay(true)
            .connect_timeout(self.connect_timeout)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .keep_alive_while_idle(true);
        match &self.tls {
            None => Ok(endpoint),
            Some(tls) => endpoint.tls_config(client_tls(tls, &target.host)),
        }
    }
}

fn client_tls(tls: &ReplicaTls, host: &str) -> ClientTlsConfig {
    let config = ClientTlsConfig::new().domain_name(tls.domain.as_deref().unwrap_or(host));
    let config = match &tls.ca_pem {
        Some(pem) => config.ca_certificate(Certificate::from_pem(pem)),
        None => config.with_native_roots(),
    };
    match &tls.identity_pem {
        Some((chain, key)) => config.identity(Identity::from_pem(chain, key)),
        None => config,
    }
}

impl Connect for GrpcConnect {
    fn connect<'a>(
        &'a self,
        target: &'a Target,
    ) -> BoxFuture<'a, Result<Arc<dyn Connection>, String>> {
        Box::pin(async move {
            let endpoint = self.endpoint(target).map_err(|error| chain(&error))?;
            let connecting = tokio::time::timeout(self.connect_timeout, endpoint.connect());
            match connecting.await {
                Ok(Ok(channel)) => {
                    let connection: Arc<dyn Connection> = Arc::new(Grpc { channel });
                    Ok(connection)
                }
                Ok(Err(error)) => Err(chain(&error)),
                Err(_) => {
                    let timeout_ms = self.connect_timeout.as_millis();
                    Err(format!("no connection within {timeout_ms} ms"))
                }
            }
        })
    }
}

/// An error with its causes: the outermost one of the transport only says that there is one.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let part = error.to_string();
        if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
        cause = error.source();
    }
    text
}

#[derive(Debug)]
struct Grpc {
    channel: Channel,
}

impl Grpc {
    /// Answers may be as large as they are: the gateway asked for them.
    fn client(&self) -> TulipClient<Channel> {
        TulipClient::new(self.channel.clone())
            .max_decoding_message_size(usize::MAX)
            .max_encoding_message_size(usize::MAX)
    }
}

impl Connection for Grpc {
    fn score(&self, call: Request<ScoreRequest>) -> Answer<ScoreResponse> {
        let mut client = self.client();
        Box::pin(async move { Ok(client.score(call).await?.into_inner()) })
    }

    fn embed(&self, call: Request<EmbedRequest>) -> Answer<EmbedResponse> {
        let mut client = self.client();
        Box::pin(async move { Ok(client.embed(call).await?.into_inner()) })
    }

    fn tokenize(&self, call: Request<TokenizeRequest>) -> Answer<TokenizeResponse> {
        let mut client = self.client();
        Box::pin(async move { Ok(client.tokenize(call).await?.into_inner()) })
    }

    fn get_model(&self, call: Request<GetModelRequest>) -> Answer<GetModelResponse> {
        let mut client = self.client();
        Box::pin(async move { Ok(client.get_model(call).await?.into_inner()) })
    }
}

/// The message of a status with its causes.
pub(crate) fn chain_of(status: &Status) -> String {
    match std::error::Error::source(status) {
        None => status.message().into(),
        Some(cause) => {
            let cause = chain(cause);
            if cause.contains(status.message()) {
                cause
            } else {
                format!("{}: {cause}", status.message())
            }
        }
    }
}

/// A status for the operator, without the metadata.
pub(crate) fn text_of(status: &Status) -> String {
    format!("{}: {}", status.code().description(), chain_of(status))
}
