//! Clients of HTTP: what all of them have in common. None follows a redirect, which would send what a request holds to where
//! nobody said.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Url};

use crate::config::Ssl;
use crate::tls::{self, TlsSetupError};

/// As long as a server may ask to be left alone; it is asked again then.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60 * 60);

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

/// How long a server asks to be left alone: seconds, or a date of HTTP's.
pub(crate) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let date = httpdate::parse_http_date(text).ok()?;
            date.duration_since(now).unwrap_or_default()
        }
    };
    Some(wait.min(LONGEST_RETRY_AFTER))
}
