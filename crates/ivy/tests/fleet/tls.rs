//! TLS towards replicas: the certificate has to be of the authority, and of the name.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ivy::backend::ReplicaState;
use ivy::{Backend as _, Fleet, FleetConfig, ReplicaTls};
use rcgen::{CertificateParams, CertifiedIssuer, KeyPair};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{self, ServerConfig};

use crate::support::{Replica, late, request, soon, until_ready};

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    fn acceptor(&self, name: &str) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }
}

/// Speaks TLS in front of a replica.
async fn in_front_of(replica: SocketAddr, acceptor: TlsAcceptor) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut stream = acceptor.accept(stream).await?;
                let mut replica = TcpStream::connect(replica).await?;
                tokio::io::copy_bidirectional(&mut stream, &mut replica).await
            });
        }
    });
    address
}

fn fleet(address: SocketAddr, tls: Option<ReplicaTls>) -> Fleet {
    Fleet::start(FleetConfig {
        replicas: vec![format!("localhost:{}", address.port()).parse().unwrap()],
        tls,
        ..FleetConfig::default()
    })
    .unwrap()
}

#[tokio::test]
async fn the_authority_and_the_name_are_checked() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let replica = Replica::start(Duration::ZERO);
    let address = in_front_of(replica.address(), authority.acceptor("localhost")).await;
    let tls = |authority: &Authority, domain: Option<&str>| ReplicaTls {
        ca_pem: Some(authority.0.pem().into_bytes()),
        domain: domain.map(str::to_owned),
        ..ReplicaTls::default()
    };
    let trusted = fleet(address, Some(tls(&authority, None)));
    until_ready(&trusted, 1).await;
    trusted.score(request(3, 8), late()).await.unwrap();

    // The same address under another name in the certificate, as behind a load balancer.
    let renamed = in_front_of(replica.address(), authority.acceptor("rose.internal")).await;
    let told = fleet(renamed, Some(tls(&authority, Some("rose.internal"))));
    until_ready(&told, 1).await;

    for refused in [
        fleet(address, Some(tls(&stranger, None))),
        fleet(renamed, Some(tls(&authority, None))),
        fleet(address, None),
    ] {
        let ready = tokio::time::timeout(Duration::from_millis(300), refused.ready());
        assert!(ready.await.is_err(), "connected all the same");
        let state = refused.load()[0].state;
        assert_eq!(state, ReplicaState::Connecting);
    }
    soon(trusted.score(request(3, 8), late())).await.unwrap();
}
