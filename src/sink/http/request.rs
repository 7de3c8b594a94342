//! What a request says: body and headers of one event, or of a batch.
//!
//! One event's headers become the request's. A name that HTTP does not allow and a null are left out, and in a value the bytes that
//! HTTP does not allow are percent-encoded. CloudEvents' attributes, which Kafka's binding calls `ce_id`, are `ce-id` in HTTP's.
//! A batch has no place for headers: they are in its body where that is `envelope`.

use std::fmt::Write as _;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;

use crate::config::{self, BatchForm, Body, HttpAuth, RESERVED_HEADERS};
use crate::record::{Header, Record};
use crate::sink::json_line;

use super::lanes::Item;

/// What each request is made with.
#[derive(Debug)]
pub(super) struct Requests {
    body: Body,
    batch: Option<BatchForm>,
    /// Those of the file, which stand above an event's.
    headers: HeaderMap,
    secrets: Vec<SecretString>,
}

/// An event that cannot be in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NotJson {
    /// Among the items.
    pub(super) index: usize,
}

impl Requests {
    pub(super) fn new(config: &config::Http) -> Self {
        let mut headers = HeaderMap::new();
        for (name, value) in &config.headers {
            // The file's reader has let through what HTTP allows.
            if let (Ok(name), Some(value)) = (HeaderName::try_from(name.as_str()), secret_value(value.expose_secret()))
            {
                headers.append(name, value);
            }
        }
        let authorization = config.auth.as_ref().map(|auth| match auth {
            HttpAuth::Basic { username, password } => {
                let both = format!("{username}:{}", password.expose_secret());
                format!("Basic {}", STANDARD.encode(both))
            }
            HttpAuth::Bearer { token } => format!("Bearer {}", token.expose_secret()),
        });
        if let Some(value) = authorization.as_deref().and_then(secret_value) {
            headers.insert(AUTHORIZATION, value);
        }
        Self {
            body: config.body,
            batch: config.batch.map(|batch| batch.form),
            headers,
            secrets: config.signature.clone(),
        }
    }

    /// The body of a request.
    ///
    /// # Errors
    /// In a batch, an event whose value is not JSON and would spoil the rest.
    pub(super) fn body(&self, items: &[Item]) -> Result<Bytes, NotJson> {
        let mut out = Vec::new();
        let Some(form) = self.batch else {
            return Ok(match (items.first(), self.body) {
                (None, _) => Bytes::new(),
                (Some(item), Body::Payload) => item.record.value.clone().unwrap_or_default(),
                (Some(item), Body::Envelope) => {
                    json_line::write(&mut out, &item.record, false);
                    Bytes::from(out)
                }
            });
        };
        if form == BatchForm::Array {
            out.push(b'[');
        }
        for (index, item) in items.iter().enumerate() {
            if index > 0 && form == BatchForm::Array {
                out.push(b',');
            }
            match (self.body, &item.record.value) {
                (Body::Envelope, _) => json_line::write(&mut out, &item.record, false),
                (Body::Payload, None) => out.extend_from_slice(b"null"),
                (Body::Payload, Some(value)) if json_line::is_json(value) => match form {
                    BatchForm::Array => out.extend_from_slice(value),
                    BatchForm::Lines => json_line::write_in_one_line(&mut out, value),
                },
                (Body::Payload, Some(_)) => return Err(NotJson { index }),
            }
            if form == BatchForm::Lines {
                out.push(b'\n');
            }
        }
        if form == BatchForm::Array {
            out.push(b']');
        }
        Ok(Bytes::from(out))
    }

    /// The headers of a request with this body. `now`: in seconds since 1970, of this attempt.
    pub(super) fn headers(&self, items: &[Item], body: &[u8], now: u64) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let default = match self.batch {
            Some(BatchForm::Lines) => "application/x-ndjson",
            Some(BatchForm::Array) | None => "application/json",
        };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(default));
        if let (None, [item]) = (self.batch, items) {
            if self.body == Body::Payload {
                add_own(&mut headers, &item.record);
            }
            self.sign(&mut headers, &item.record, body, now);
        }
        for name in self.headers.keys() {
            headers.remove(name);
        }
        headers.extend(self.headers.clone());
        headers
    }

    /// Signs one event as Standard Webhooks has it: https://github.com/standard-webhooks/standard-webhooks (spec, "Signature scheme").
    fn sign(&self, headers: &mut HeaderMap, record: &Record, body: &[u8], now: u64) {
        if self.secrets.is_empty() {
            return;
        }
        let id = record.about.as_ref().map_or("", |about| about.event_id.as_str());
        let id = encoded(id.as_bytes(), |_| false);
        let signatures = self.secrets.iter().filter_map(|secret| {
            let secret = secret.expose_secret();
            let key = match secret.strip_prefix("whsec_") {
                Some(encoded) => STANDARD.decode(encoded).ok()?,
                None => secret.as_bytes().to_vec(),
            };
            let mut mac = Hmac::<Sha256>::new_from_slice(&key).ok()?;
            mac.update(format!("{id}.{now}.").as_bytes());
            mac.update(body);
            Some(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
        });
        let signatures = signatures.collect::<Vec<_>>().join(" ");
        let all = [
            ("webhook-id", id),
            ("webhook-timestamp", now.to_string()),
            ("webhook-signature", signatures),
        ];
        for (name, value) in all {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(name, value);
            }
        }
    }
}

/// Kept out of logs.
fn secret_value(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn add_own(headers: &mut HeaderMap, record: &Record) {
    let mut seen = Vec::new();
    for Header { name, value } in &record.headers {
        let attribute = name.strip_prefix("ce_");
        let is_attribute = attribute.is_some();
        let name = match attribute {
            Some(attribute) => HeaderName::try_from(format!("ce-{attribute}")),
            None => HeaderName::try_from(&**name),
        };
        let (Ok(name), Some(value)) = (name, value) else {
            continue;
        };
        if RESERVED_HEADERS.contains(&name.as_str()) {
            continue;
        }
        let text = match is_attribute {
            true => encoded(value, |byte| b" \"".contains(&byte)),
            false => encoded(value, |_| false),
        };
        let Ok(value) = HeaderValue::from_str(&text) else {
            continue;
        };
        // An event's own takes the place of a default.
        if seen.contains(&name) {
            headers.append(name, value);
        } else {
            headers.insert(name.clone(), value);
            seen.push(name);
        }
    }
}

/// Printable ASCII as it is, but for `%`, blanks at the edges, which HTTP drops, and what else is asked for; everything else
/// percent-encoded. CloudEvents asks so for its attributes, with blanks and double quotes (HTTP binding 1.0.2, 3.1.3.2).
fn encoded(value: &[u8], more: impl Fn(u8) -> bool) -> String {
    let last = value.len().saturating_sub(1);
    let mut out = String::with_capacity(value.len());
    for (index, &byte) in value.iter().enumerate() {
        let is_edge = byte == b' ' && (index == 0 || index == last);
        match byte {
            b' '..=b'~' if byte != b'%' && !is_edge && !more(byte) => out.push(char::from(byte)),
            // Writing to a string cannot fail.
            _ => _ = write!(out, "%{byte:02X}"),
        }
    }
    out
}

#[cfg(test)]
mod tests;
