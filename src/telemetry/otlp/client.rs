//! The HTTP client of the exporter: the one that this program has anyway, with ring and the system's certificates.

use std::env;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use reqwest::Url;
use reqwest::header::HeaderMap;
use reqwest::redirect::Policy;

use crate::config::{Ssl, SslMode};
use crate::telemetry::error_chain;
use crate::tls;

use super::OtlpError;

/// Of one attempt, which is the default of `OTEL_EXPORTER_OTLP_TIMEOUT` too.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The most of an answer that is read: it says at most that some were rejected.
const MAX_ANSWER: usize = 64 * 1024;

/// See the module's text. Clones are of the same.
#[derive(Debug, Clone)]
pub(super) struct Client {
    http: reqwest::Client,
    /// What the library does not tell: why there was no answer.
    unanswered: Arc<Mutex<Option<String>>>,
}

impl Client {
    /// `OTEL_EXPORTER_OTLP_CERTIFICATE` names certificates of trusted authorities in place of the system's.
    pub(super) fn new() -> Result<Self, OtlpError> {
        let tls = tls::client_config(
            &Ssl {
                mode: SslMode::VerifyFull,
                root_cert: env::var_os("OTEL_EXPORTER_OTLP_CERTIFICATE").map(PathBuf::from),
                client_cert: None,
                client_key: None,
            },
            tls::HTTP,
        )?;
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(Arc::unwrap_or_clone(tls))
            .redirect(Policy::none())
            .timeout(TIMEOUT)
            .user_agent(concat!("tailpost/", env!("CARGO_PKG_VERSION")));
        Ok(Self {
            http: http.build()?,
            unanswered: Arc::default(),
        })
    }

    /// Why the last request had no answer.
    pub(super) fn take_unanswered(&self) -> Option<String> {
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// One attempt. Any answer is one, whatever its status; of one that is too long the body is empty.
    pub(super) async fn post(
        &self,
        url: &Url,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Response<Bytes>, reqwest::Error> {
        let request = self.http.post(url.clone()).headers(headers.clone()).body(body);
        Self::read(request.send().await?).await
    }

    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, reqwest::Error> {
        Self::read(self.http.execute(request.try_into()?).await?).await
    }

    async fn read(mut response: reqwest::Response) -> Result<Response<Bytes>, reqwest::Error> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_ANSWER {
                body.clear();
                break;
            }
        }
        let mut answer = Response::new(Bytes::from(body));
        *answer.status_mut() = response.status();
        *answer.headers_mut() = std::mem::take(response.headers_mut());
        Ok(answer)
    }
}

impl HttpClient for Client {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let answer = self.send(request).await;
            let unanswered = answer.as_ref().err().map(|error| error_chain(error));
            *self.unanswered.lock().unwrap_or_else(PoisonError::into_inner) = unanswered;
            Ok(answer?)
        })
    }
}
