//! The other side of `tailpost run --http`: what commands ask a running process.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use reqwest::{Response, Url};
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::http_client;
use crate::telemetry::http::{Paused, REQUEST_HEADER};
use crate::telemetry::report::Report;

/// What a process that runs answers in.
const PATIENCE: Duration = Duration::from_secs(10);

/// Which process is asked.
#[derive(Debug, Args)]
pub(super) struct ServerArguments {
    /// Address at which a running tailpost answers, as its --http says, or a URL in front of it.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9095")]
    pub(super) http: Server,
}

/// The URL under which its endpoints are.
#[derive(Debug, Clone)]
pub(super) struct Server(Url);

impl FromStr for Server {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "expected an address such as 127.0.0.1:9095, or an http:// or https:// URL";
        let url = match text.contains("://") {
            true => Url::parse(text),
            false => Url::parse(&format!("http://{text}")),
        };
        let url = url.map_err(|_| EXPECTED)?;
        let is_plain = url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
        let is_http = matches!(url.scheme(), "http" | "https") && url.has_host();
        (is_http && is_plain).then_some(Self(url)).ok_or(EXPECTED)
    }
}

impl Server {
    fn endpoint(&self, segments: &[&str]) -> Url {
        let mut url = self.0.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        url
    }
}

/// Why a process could not be asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    #[error("set up the HTTP client")]
    SetUp(#[source] reqwest::Error),
    #[error(
        "no answer from {url}. Remedy: see whether tailpost run is up, and give its --http address with --http ({cause})"
    )]
    Unreachable { url: Url, cause: String },
    #[error("{url} answered {code}: {text}")]
    Refused { url: Url, code: u16, text: String },
    #[error("what answers at {url} is no tailpost of this version. Remedy: give another address with --http")]
    Answer {
        url: Url,
        #[source]
        source: reqwest::Error,
    },
    #[error("what answers at {url} is no tailpost of this version. Remedy: give another address with --http")]
    Report {
        url: Url,
        #[source]
        source: serde_json::Error,
    },
}

/// Asks one process.
#[derive(Debug)]
pub(super) struct Client {
    http: reqwest::Client,
    server: Server,
}

impl Client {
    pub(super) fn new(server: Server) -> Result<Self, ClientError> {
        // The process's own machine, or one beside it: what is set for the way out of the network is not meant for it.
        let http = builder().no_proxy().build().map_err(ClientError::SetUp)?;
        Ok(Self { http, server })
    }

    /// What `/status` says, as it came and as it is understood.
    pub(super) async fn status(&self) -> Result<(Value, Report), ClientError> {
        let url = self.server.endpoint(&["status"]);
        let json: Value = read(url.clone(), self.http.get(url.clone()).send().await).await?;
        let report = serde_json::from_value(json.clone()).map_err(|source| ClientError::Report { url, source })?;
        Ok((json, report))
    }

    /// Holds a pipeline, or all of them, back, or lets it go on.
    pub(super) async fn hold(
        &self,
        pipeline: Option<&str>,
        paused: bool,
        token: Option<&SecretString>,
    ) -> Result<Paused, ClientError> {
        let action = if paused { "pause" } else { "resume" };
        let segments: Vec<&str> = ["pipelines"].into_iter().chain(pipeline).chain([action]).collect();
        let url = self.server.endpoint(&segments);
        let mut request = self.http.post(url.clone()).header(REQUEST_HEADER, "1");
        if let Some(token) = token {
            request = request.bearer_auth(token.expose_secret());
        }
        read(url, request.send().await).await
    }
}

/// A client that has patience, and no more of it.
pub(super) fn builder() -> reqwest::ClientBuilder {
    http_client::builder().timeout(PATIENCE)
}

async fn read<T: DeserializeOwned>(url: Url, answer: Result<Response, reqwest::Error>) -> Result<T, ClientError> {
    let response = match answer {
        Ok(response) => response,
        Err(error) => {
            let cause = crate::telemetry::error_chain(&error.without_url());
            return Err(ClientError::Unreachable { url, cause });
        }
    };
    let code = response.status();
    if !code.is_success() {
        let text = response.text().await.unwrap_or_default();
        let text = text.trim().chars().take(500).collect();
        let code = code.as_u16();
        return Err(ClientError::Refused { url, code, text });
    }
    let read = response.json().await;
    read.map_err(|source| ClientError::Answer {
        url,
        source: source.without_url(),
    })
}

/// Runs a command's requests.
pub(super) fn block_on<T>(work: impl Future<Output = T>) -> std::io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(work))
}

/// A token as it can stand in a header.
pub(super) fn parse_token(text: &str) -> Result<SecretString, &'static str> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    is_plain
        .then(|| SecretString::from(text))
        .ok_or("expected a token of visible ASCII characters without blanks")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_or_a_url_names_the_process() {
        for (text, status) in [
            ("127.0.0.1:9095", "http://127.0.0.1:9095/status"),
            ("[::1]:9095", "http://[::1]:9095/status"),
            ("tailpost.example:80", "http://tailpost.example/status"),
            ("https://ops.example/tailpost", "https://ops.example/tailpost/status"),
            ("https://ops.example/tailpost/", "https://ops.example/tailpost/status"),
        ] {
            let server: Server = text.parse().unwrap();
            assert_eq!(server.endpoint(&["status"]).as_str(), status);
        }
        let server: Server = "h:1".parse().unwrap();
        let url = server.endpoint(&["pipelines", "a/../b?", "pause"]);
        assert_eq!(url.as_str(), "http://h:1/pipelines/a%2F..%2Fb%3F/pause");
        for text in ["", "ftp://h", "http://", "h:port", "http://u:p@h", "http://h/?a"] {
            assert!(text.parse::<Server>().is_err(), "{text}");
        }
    }
}
