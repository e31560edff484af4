//! Encrypted connections.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls_platform_verifier::BuilderVerifierExt as _;
use superstep_checkpoint::CheckpointError;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error;

/// Returns TLS with the certificate authorities of the operating system.
pub(crate) fn tls() -> Result<MakeRustlsConnect, CheckpointError> {
    let provider =
        CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(ring::default_provider()));
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(error::no_tls)?
        .with_platform_verifier()
        .map_err(error::no_tls)?
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}
