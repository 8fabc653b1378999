//! TLS by rustls: certificate and key from PEM files.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::config::{ConfigError, TlsConfig};

/// Reads the files. HTTP/2 is offered before HTTP/1.1.
///
/// # Errors
/// A file cannot be read, or the two do not belong together; names the option.
pub(crate) fn acceptor(config: &TlsConfig) -> Result<TlsAcceptor, ConfigError> {
    let path = &config.certificate;
    let refused = |message: String| {
        ConfigError::new("tls_certificate", format!("{}: {message}", path.display()))
    };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| refused(error.to_string()))?;
    if chain.is_empty() {
        return Err(refused("holds no certificate".into()));
    }
    let path = &config.private_key;
    let refused =
        |message: String| ConfigError::new("tls_key", format!("{}: {message}", path.display()));
    let key = PrivateKeyDer::from_pem_file(path).map_err(|error| refused(error.to_string()))?;
    // Named here, so that whichever other libraries are in the process cannot change it.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(error.to_string()))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| refused(error.to_string()))?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(tls)))
}
