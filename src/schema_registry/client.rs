//! Asks a registry, over HTTP. Statuses and codes are those of Confluent's reference:
//! https://docs.confluent.io/platform/current/schema-registry/develop/api.html

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, Response, StatusCode, Url};
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::resolve::{Assembly, Registered};
use super::{Answer, Fetched, RegistryError, SchemaId, Version};
use crate::config::payload_schemas::MAX_BYTES;
use crate::config::{HttpAuth, Pipeline, SchemaRegistry};
use crate::http_client;
use crate::preflight::Finding;
use crate::telemetry::error_chain;

/// What a registry answers in.
const PATIENCE: Duration = Duration::from_secs(10);
const CONNECTING: Duration = Duration::from_secs(3);
/// The most schemas that one refers to, over all steps.
const MOST_REFERENCED: usize = 100;

/// See the module's text. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct RegistryClient {
    http: Client,
    config: Arc<SchemaRegistry>,
}

/// What comes with a status that is no success.
#[derive(Debug, Deserialize)]
struct Fault {
    error_code: u32,
}

/// An answer of the registry itself.
enum Told<T> {
    Found(T),
    /// There is no such subject or version.
    Missing,
}

impl RegistryClient {
    pub(super) fn new(config: &Arc<SchemaRegistry>) -> Result<Self, RegistryError> {
        let set_up = |cause: String| RegistryError::SetUp {
            url: config.url.to_string(),
            cause,
        };
        let builder = http_client::builder_with(&config.tls).map_err(|error| set_up(error_chain(&error)))?;
        let http = builder
            .timeout(PATIENCE)
            .connect_timeout(CONNECTING)
            .build()
            .map_err(|error| set_up(error_chain(&error)))?;
        Ok(Self {
            http,
            config: Arc::clone(config),
        })
    }

    pub(super) fn is_of(&self, registry: &Arc<SchemaRegistry>) -> bool {
        Arc::ptr_eq(&self.config, registry)
    }

    /// Sees whether a registry answers that lets us read and keeps JSON Schemas.
    pub(super) async fn contact(&self) -> Result<(), RegistryError> {
        match self.get::<Vec<String>>(&["schemas", "types"]).await? {
            Told::Found(types) if types.iter().any(|found| found == "JSON") => Ok(()),
            Told::Found(types) => Err(RegistryError::NoJson {
                url: self.config.url.to_string(),
                types: types.join(", "),
            }),
            Told::Missing => Err(self.foreign(StatusCode::NOT_FOUND)),
        }
    }

    /// A schema, with all that it refers to.
    pub(super) async fn schema(&self, id: &SchemaId) -> Result<Answer, RegistryError> {
        let Told::Found(registered) = self.version(&id.subject, id.version).await? else {
            return Ok(Answer::Missing);
        };
        let (mut assembly, mut open) = match Assembly::new(&registered) {
            Ok(begun) => begun,
            Err(fault) => return Ok(Answer::Unusable(fault)),
        };
        while let Some(wanted) = open.pop() {
            if assembly.has(&wanted) {
                continue;
            }
            if assembly.len() == MOST_REFERENCED {
                let fault = format!("refers to more than {MOST_REFERENCED} others");
                return Ok(Answer::Unusable(fault));
            }
            let reference = &wanted.reference;
            let found = self
                .version(&reference.subject, Version::Number(reference.version))
                .await?;
            let Told::Found(registered) = found else {
                return Ok(Answer::Unusable(format!("{} is not there", wanted.place())));
            };
            match assembly.add(wanted, &registered) {
                Ok(more) => open.extend(more),
                Err(fault) => return Ok(Answer::Unusable(fault)),
            }
        }
        let version = assembly.version();
        Ok(match assembly.compile() {
            Ok(validator) => Answer::Schema(Arc::new(Fetched { version, validator })),
            Err(fault) => Answer::Unusable(fault),
        })
    }

    async fn version(&self, subject: &str, version: Version) -> Result<Told<Registered>, RegistryError> {
        self.get(&["subjects", subject, "versions", &version.to_string()]).await
    }

    async fn get<T: DeserializeOwned>(&self, path: &[&str]) -> Result<Told<T>, RegistryError> {
        let request = self.http.get(self.endpoint(path));
        let request = match &self.config.auth {
            None => request,
            Some(HttpAuth::Basic { username, password }) => {
                request.basic_auth(username, Some(password.expose_secret()))
            }
            Some(HttpAuth::Bearer { token }) => request.bearer_auth(token.expose_secret()),
        };
        let response = request.send().await.map_err(|error| self.unreachable(error))?;
        let code = response.status();
        let body = self.body(response).await?;
        match code {
            _ if code.is_success() => serde_json::from_slice(&body)
                .map(Told::Found)
                .map_err(|_| self.foreign(code)),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
                Err(RegistryError::Refused {
                    url: self.config.url.to_string(),
                    code: code.as_u16(),
                })
            }
            // Subject, version or schema not found; or a version that none can have.
            StatusCode::NOT_FOUND | StatusCode::UNPROCESSABLE_ENTITY => match serde_json::from_slice(&body) {
                Ok(Fault {
                    error_code: 40401..=40403 | 42202,
                }) => Ok(Told::Missing),
                _ => Err(self.foreign(code)),
            },
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => Err(self.busy(code)),
            _ if code.is_server_error() => Err(self.busy(code)),
            _ => Err(self.foreign(code)),
        }
    }

    /// An answer's bytes; one that never ends is none.
    async fn body(&self, mut response: Response) -> Result<Vec<u8>, RegistryError> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.unreachable(error))? {
            body.extend_from_slice(&chunk);
            if body.len() as u64 > MAX_BYTES {
                return Err(self.foreign(response.status()));
            }
        }
        Ok(body)
    }

    fn endpoint(&self, path: &[&str]) -> Url {
        let mut url = self.config.url.clone();
        // One with a host has a path.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url
    }

    fn unreachable(&self, error: reqwest::Error) -> RegistryError {
        RegistryError::Unreachable {
            url: self.config.url.to_string(),
            cause: error_chain(&error.without_url()),
        }
    }

    fn busy(&self, code: StatusCode) -> RegistryError {
        RegistryError::Unreachable {
            url: self.config.url.to_string(),
            cause: format!("it answered {}", code.as_u16()),
        }
    }

    fn foreign(&self, code: StatusCode) -> RegistryError {
        RegistryError::Foreign {
            url: self.config.url.to_string(),
            code: code.as_u16(),
        }
    }
}

/// Whether the registries of a pipeline can be read.
pub(crate) async fn preflight(pipeline: &Pipeline) -> Vec<Finding> {
    let mut findings = Vec::new();
    for registry in pipeline.schema_registries() {
        let subject = "schemas";
        let contacted = match RegistryClient::new(registry) {
            Ok(client) => client.contact().await,
            Err(error) => Err(error),
        };
        findings.push(match contacted {
            Ok(()) => Finding::good(
                subject,
                format!("schema registry {} answers, and keeps JSON Schemas", registry.url),
            ),
            Err(error) => Finding::bad(subject, error.to_string()),
        });
    }
    findings
}
