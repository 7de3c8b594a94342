//! `sinks[].config` of type `http`.

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{HeaderName, HeaderValue};
use secrecy::SecretString;

use super::delivery::{HOUR, read_delays};
use super::envelope;
use super::kind::{Kinds, require_kind};
use super::template::read_change_template;
use crate::config::document::Value;
use crate::config::pipeline::{
    BatchForm, Body, Envelope, Http, HttpAuth, HttpBatch, Method, Ordering, Restart, Retry, Ssl, SslMode, StatusSet,
};
use crate::config::reader::{Field, Mapping, Read, Reader, optional};
use crate::config::shown::{describe, quoted};
use crate::config::template::{Part, Template};

pub(in crate::config) const MOST_CONCURRENT: i64 = 1000;
pub(in crate::config) const DEFAULT_CONCURRENCY: usize = 8;
pub(in crate::config) const MOST_BATCHED: i64 = 10_000;
pub(in crate::config) const DEFAULT_BATCH_BYTES: u64 = 1024 * 1024;
pub(in crate::config) const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
pub(in crate::config) const MOST_ATTEMPTS: i64 = 1_000_000;

const ATTEMPTS: &str = "a whole number, 1 or more, or `unlimited`";

impl Default for Retry {
    fn default() -> Self {
        Self {
            max_attempts: Some(5),
            delays: Restart {
                base_delay: Duration::from_secs(1),
                max_delay: Duration::from_secs(60),
                multiplier: 2.0,
                jitter: (0.75, 1.25),
            },
            attempt_timeout: Duration::from_secs(30),
        }
    }
}

/// A sink, and what the file does not say of it.
pub(super) struct HttpReading {
    pub(super) http: Http,
    /// Else it depends on what becomes of an event whose attempts are used up.
    pub(super) says_attempts: bool,
}

pub(super) fn read(reader: &mut Reader<'_>, mut mapping: Mapping<'_>) -> Read<HttpReading> {
    let id = reader
        .require(&mut mapping, "id", "a name for the sink")
        .and_then(|field| reader.filled(&field));
    let url = reader
        .require(&mut mapping, "url", URL)
        .and_then(|field| read_url(reader, &field));
    let key = optional(mapping.take("key"), |field| read_change_template(reader, field));
    let envelope = optional(mapping.take("envelope"), |field| envelope::read(reader, field));
    let method = optional(mapping.take("method"), |field| {
        reader.word(
            field,
            &[("POST", Method::Post), ("PUT", Method::Put), ("PATCH", Method::Patch)],
        )
    });
    let headers = optional(mapping.take("headers"), |field| read_headers(reader, field));
    let auth = optional(mapping.take("auth"), |field| read_auth(reader, field));
    let tls = optional(mapping.take("tls"), |field| read_tls(reader, field));
    let body = optional(mapping.take("body"), |field| {
        reader.word(field, &[("payload", Body::Payload), ("envelope", Body::Envelope)])
    });
    let batch_field = mapping.take("batch");
    let batch = optional(batch_field, |field| read_batch(reader, field));
    let concurrency = optional(mapping.take("concurrency"), |field| {
        reader.integer(field, 1..=MOST_CONCURRENT)
    });
    let connect_timeout = optional(mapping.take("connect_timeout"), |field| {
        reader.duration(field, Duration::from_millis(1)..=HOUR)
    });
    let success = optional(mapping.take("success"), |field| read_statuses(reader, field));
    let retry_field = mapping.take("retry_on");
    let retry_on = optional(retry_field.clone(), |field| read_statuses(reader, field));
    let halt_field = mapping.take("halt_on");
    let halt_on = optional(halt_field.clone(), |field| read_statuses(reader, field));
    let signature_field = mapping.take("signature");
    let signature = optional(signature_field.clone(), |field| read_signature(reader, field));
    let ordering_key = mapping.take("ordering_key");
    let ordering = read_ordering(reader, mapping.take("ordering"), ordering_key);
    let mut says_attempts = false;
    let retry = optional(mapping.take("retry"), |field| {
        read_retry(reader, field, &mut says_attempts)
    });
    reader.finish(mapping);
    let batch = batch?;
    if let (Some(_), Some(field)) = (&batch, &signature_field) {
        let message = "clashes with `batch`: a signature is over one event and its id; remove one of them";
        return Err(reader.refuse(field, message));
    }
    let success = success?.unwrap_or_else(|| StatusSet::new(vec![(200, 299)]));
    let retry_on = retry_on?.unwrap_or_else(|| StatusSet::new(vec![(408, 408), (425, 425), (429, 429), (500, 599)]));
    let halt_on = halt_on?.unwrap_or_else(|| StatusSet::new(vec![(401, 401), (403, 403), (407, 407)]));
    let clashes = [
        (&success, &retry_on, retry_field, "success"),
        (&success, &halt_on, halt_field.clone(), "success"),
        (&retry_on, &halt_on, halt_field, "retry_on"),
    ];
    for (one, other, field, name) in clashes {
        if let (Some(status), Some(field)) = (one.common(other), field) {
            return Err(reader.refuse(
                &field,
                format!("{status} is also in `{name}`: expected it in one of them"),
            ));
        }
    }
    let http = Http {
        id: id?,
        url: url?,
        key: key?,
        envelope: envelope?.unwrap_or(Envelope::Native),
        method: method?.unwrap_or(Method::Post),
        headers: headers?.unwrap_or_default(),
        auth: auth?,
        tls: tls?.unwrap_or(NO_TLS_FILES),
        body: body?.unwrap_or(Body::Payload),
        batch,
        concurrency: concurrency?
            .and_then(|count| usize::try_from(count).ok())
            .unwrap_or(DEFAULT_CONCURRENCY),
        connect_timeout: connect_timeout?.unwrap_or(DEFAULT_CONNECT_TIMEOUT),
        success,
        retry_on,
        halt_on,
        signature: signature?.unwrap_or_default(),
        ordering: ordering?,
        retry: retry?.unwrap_or_default(),
    };
    Ok(HttpReading { http, says_attempts })
}

const USERNAME: &str = "text without a colon";
const URL: &str = "an http or https URL whose host is the same for all events";
pub(super) const NO_TLS_FILES: Ssl = Ssl {
    mode: SslMode::VerifyFull,
    root_cert: None,
    client_cert: None,
    client_key: None,
};

/// A template may fill in what follows the host: where events go to is for the file to say, not for an event.
fn read_url(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Template> {
    let template = read_change_template(reader, field)?;
    let beginning = match template.parts().first() {
        Some(Part::Literal(text)) => text.as_str(),
        _ => "",
    };
    let authority = beginning
        .split_once("://")
        .map(|(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or_default());
    // A placeholder behind the host alone: with one right there, the rest of the text is all authority.
    let is_closed = authority.is_some_and(|authority| {
        let whole = beginning.find("://").unwrap_or(0) + "://".len() + authority.len();
        !authority.is_empty() && (template.is_constant() || whole < beginning.len())
    });
    let parsed = reqwest::Url::parse(beginning).ok();
    let is_sound = is_closed
        && parsed
            .as_ref()
            .is_some_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host() && url.fragment().is_none());
    if !is_sound {
        return Err(reader.unexpected(field, URL, describe(&field.node.value)));
    }
    if parsed.is_some_and(|url| !url.username().is_empty() || url.password().is_some()) {
        return Err(reader.refuse(
            field,
            "it has a user in it: write `auth` instead, which is never logged",
        ));
    }
    Ok(template)
}

/// Headers that a request's own mechanics need.
pub(crate) const RESERVED_HEADERS: [&str; 9] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

pub(super) fn read_headers(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Vec<(String, SecretString)>> {
    let mut mapping = reader.mapping(field)?;
    let headers: Vec<_> = mapping
        .take_all()
        .map(|(name, field)| {
            let legal = HeaderName::from_bytes(name.as_bytes());
            let Ok(legal) = legal else {
                return Err(reader.refuse(&field, "its name is none of an HTTP header"));
            };
            if RESERVED_HEADERS.contains(&legal.as_str()) {
                return Err(reader.refuse(&field, "a header that each request sets by itself: remove it"));
            }
            let value = reader.secret(&field, "text")?;
            match HeaderValue::from_str(&value) {
                Ok(_) => Ok((legal.as_str().to_owned(), SecretString::from(value))),
                Err(_) => Err(reader.refuse(&field, "its value is none of an HTTP header: expected visible text")),
            }
        })
        .collect();
    headers.into_iter().collect()
}

pub(super) fn read_auth(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<HttpAuth> {
    #[derive(Clone, Copy)]
    enum Type {
        Basic,
        Bearer,
    }
    let mut mapping = reader.mapping(field)?;
    let kinds = Kinds {
        here: &[("basic", Type::Basic), ("bearer", Type::Bearer)],
        later: &[],
        elsewhere: &["oauth2", "digest", "ntlm"],
    };
    let kind = require_kind(reader, &mut mapping, "authentication", &kinds);
    kind.read(|kind| match kind.unwrap_or(Type::Bearer) {
        Type::Basic => {
            let username =
                reader
                    .require(&mut mapping, "username", USERNAME)
                    .and_then(|field| match reader.filled(&field)? {
                        name if name.contains(':') => Err(reader.unexpected(&field, USERNAME, quoted(&name))),
                        name => Ok(name),
                    });
            let password = reader
                .require(&mut mapping, "password", "the password")
                .and_then(|field| reader.secret(&field, "text"));
            reader.finish(mapping);
            Ok(HttpAuth::Basic {
                username: username?,
                password: SecretString::from(password?),
            })
        }
        Type::Bearer => {
            let token = reader.require(&mut mapping, "token", "the token").and_then(|field| {
                let token = reader.secret(&field, "text")?;
                match HeaderValue::from_str(&token) {
                    Ok(_) if !token.is_empty() => Ok(token),
                    _ => Err(reader.refuse(&field, "no token: expected visible text")),
                }
            });
            reader.finish(mapping);
            Ok(HttpAuth::Bearer {
                token: SecretString::from(token?),
            })
        }
    })
}

pub(super) fn read_tls(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Ssl> {
    let mut mapping = reader.mapping(field)?;
    let mut path = |name| optional(mapping.take(name), |field| Ok(PathBuf::from(reader.filled(field)?)));
    let (ca, cert, key) = (path("ca"), path("cert"), path("key"));
    reader.finish(mapping);
    let ssl = Ssl {
        mode: SslMode::VerifyFull,
        root_cert: ca?,
        client_cert: cert?,
        client_key: key?,
    };
    if ssl.client_cert.is_some() != ssl.client_key.is_some() {
        return Err(reader.refuse(field, "`cert` and `key` go together: expected both, or none"));
    }
    Ok(ssl)
}

fn read_batch(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<HttpBatch> {
    let mut mapping = reader.mapping(field)?;
    let max_events = reader
        .require(&mut mapping, "max_events", "a whole number, 1 or more")
        .and_then(|field| reader.integer(&field, 1..=MOST_BATCHED));
    let max_bytes = optional(mapping.take("max_bytes"), |field| reader.size(field, 1..=1 << 30));
    let form = optional(mapping.take("as"), |field| {
        reader.word(field, &[("array", BatchForm::Array), ("ndjson", BatchForm::Lines)])
    });
    reader.finish(mapping);
    Ok(HttpBatch {
        max_events: usize::try_from(max_events?).unwrap_or(1),
        max_bytes: max_bytes?.unwrap_or(DEFAULT_BATCH_BYTES),
        form: form?.unwrap_or(BatchForm::Array),
    })
}

const STATUS: &str = "a status from 100 to 599, or a hundred of them such as 2xx";

/// `[200, 2xx]`.
fn read_statuses(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<StatusSet> {
    let items = reader.list(field)?;
    let ranges: Vec<_> = items
        .iter()
        .map(|item| {
            if let Value::Integer(_) = item.node.value {
                let status = reader.integer(item, 100..=599)?;
                let status = u16::try_from(status).unwrap_or(u16::MAX);
                return Ok((status, status));
            }
            let text = reader.text(item)?;
            let hundred = text
                .value
                .strip_suffix("xx")
                .and_then(|digit| digit.parse::<u16>().ok());
            match (hundred, text.value.parse::<u16>()) {
                (Some(hundred @ 1..=5), _) => Ok((hundred * 100, hundred * 100 + 99)),
                (_, Ok(status @ 100..=599)) => Ok((status, status)),
                _ => Err(reader.unexpected(item, STATUS, text.found())),
            }
        })
        .collect();
    Ok(StatusSet::new(ranges.into_iter().collect::<Read<_>>()?))
}

/// One secret, or several while they change over.
fn read_signature(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Vec<SecretString>> {
    let mut mapping = reader.mapping(field)?;
    let secrets = reader
        .require(&mut mapping, "secrets", "a list of secrets")
        .and_then(|field| {
            let items = reader.list(&field)?;
            let secrets: Vec<_> = items.iter().map(|item| read_webhook_secret(reader, item)).collect();
            let secrets = secrets.into_iter().collect::<Read<Vec<_>>>()?;
            match secrets.is_empty() {
                true => Err(reader.unexpected(&field, "at least one secret", "an empty list".to_owned())),
                false => Ok(secrets),
            }
        });
    reader.finish(mapping);
    secrets
}

/// Standard Webhooks writes its secrets as `whsec_` and base64; other text stands for its bytes.
fn read_webhook_secret(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<SecretString> {
    let secret = reader.secret(field, "a secret such as whsec_...")?;
    let bytes = match secret.strip_prefix("whsec_") {
        Some(encoded) => match STANDARD.decode(encoded) {
            Ok(bytes) => bytes.len(),
            Err(_) => return Err(reader.refuse(field, "what follows `whsec_` is not base64")),
        },
        None => secret.len(),
    };
    if bytes < 16 {
        return Err(reader.refuse(
            field,
            "too short for a secret: expected 16 bytes or more, better 24 to 64",
        ));
    }
    Ok(SecretString::from(secret))
}

fn read_ordering(reader: &mut Reader<'_>, word: Option<Field<'_>>, template: Option<Field<'_>>) -> Read<Ordering> {
    #[derive(Clone, Copy)]
    enum Word {
        Key,
        Source,
        None,
    }
    let words = [("key", Word::Key), ("source", Word::Source), ("none", Word::None)];
    let word = optional(word, |field| reader.word(field, &words));
    let key = optional(template.clone(), |field| read_change_template(reader, field));
    match (word?.unwrap_or(Word::Key), key?, template) {
        (Word::Key, Some(key), _) => Ok(Ordering::Template(key)),
        (Word::Key, None, _) => Ok(Ordering::Key),
        (_, Some(_), Some(field)) => Err(reader.refuse(&field, "has no effect without `ordering: key`")),
        (Word::Source, ..) => Ok(Ordering::Source),
        (Word::None, ..) => Ok(Ordering::Unordered),
    }
}

fn read_retry(reader: &mut Reader<'_>, field: &Field<'_>, says_attempts: &mut bool) -> Read<Retry> {
    let default = Retry::default();
    let mut mapping = reader.mapping(field)?;
    let max_attempts = optional(mapping.take("max_attempts"), |field| read_attempts(reader, field));
    *says_attempts = max_attempts.as_ref().is_ok_and(Option::is_some);
    let attempt_timeout = optional(mapping.take("attempt_timeout"), |field| {
        reader.duration(field, Duration::from_millis(1)..=HOUR)
    });
    let delays = read_delays(reader, &mut mapping, default.delays);
    reader.finish(mapping);
    Ok(Retry {
        max_attempts: max_attempts?.unwrap_or(default.max_attempts),
        delays: delays?,
        attempt_timeout: attempt_timeout?.unwrap_or(default.attempt_timeout),
    })
}

fn read_attempts(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Option<u32>> {
    match &field.node.value {
        Value::Text(text) if text == "unlimited" => reader.word(field, &[("unlimited", None)]),
        Value::Text(text) if !text.contains('$') => {
            Err(reader.unexpected(field, ATTEMPTS, describe(&field.node.value)))
        }
        _ => {
            let count = reader.integer(field, 1..=MOST_ATTEMPTS)?;
            Ok(u32::try_from(count).ok())
        }
    }
}
