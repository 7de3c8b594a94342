//! Clients of HTTP: what all of them have in common. None follows a redirect, which would send what a request holds to where
//! nobody said.

use std::sync::Arc;

use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Url};

use crate::config::Ssl;
use crate::tls::{self, TlsSetupError};

/// What keeps a client from being set up.
#[derive(Debug, thiserror::Error)]
pub enum HttpClientError {
    #[error("set up TLS")]
    Tls(#[from] TlsSetupError),
    #[error("set up the HTTP client")]
    Client(#[from] reqwest::Error),
}

/// A client with the system's certificates.
pub(crate) fn builder() -> ClientBuilder {
    // Which provider of cryptography it takes; a second one in a process changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    plain()
}

/// A client with the certificates of a pipeline file.
///
/// # Errors
/// When a certificate or key cannot be used.
pub(crate) fn builder_with(ssl: &Ssl) -> Result<ClientBuilder, HttpClientError> {
    let tls = tls::client_config(ssl, tls::HTTP)?;
    Ok(plain().tls_backend_preconfigured(Arc::unwrap_or_clone(tls)))
}

fn plain() -> ClientBuilder {
    Client::builder()
        .redirect(Policy::none())
        .user_agent(concat!("tailpost/", env!("CARGO_PKG_VERSION")))
}

/// A URL with a host that such a client can ask.
pub(crate) fn parse_url(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    (matches!(url.scheme(), "http" | "https") && url.has_host()).then_some(url)
}
