//! Who may change how a pipeline runs over HTTP.
//!
//! Reading is open to whoever reaches the address; a change is not. Where `run` was given a token, it takes that, from
//! anywhere. Where it was not, only from this machine, and not by what a page in a browser of this machine can send: a form cannot set a header of its
//! own, a script of another origin may not, and one whose name was rebound to this machine betrays itself by `Host`. What a
//! proxy passes on comes from this machine and says nothing of who sent it: it is turned away where the proxy tells that it is one.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, StatusCode, Uri, header};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

/// Must be there, with any value, where there is no token.
pub const REQUEST_HEADER: &str = "tailpost-request";

const FORWARDED: [&str; 4] = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];

/// Who is let in.
#[derive(Debug, Clone, Default)]
pub struct Access {
    pub token: Option<SecretString>,
}

/// A request that is turned away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Denied {
    pub(super) code: StatusCode,
    /// Why, and what to do.
    pub(super) text: &'static str,
}

impl Access {
    /// # Errors
    /// What is missing.
    pub(super) fn admit(&self, peer: SocketAddr, headers: &HeaderMap) -> Result<(), Denied> {
        if let Some(given) = headers.get(header::AUTHORIZATION) {
            // One that is wrong is a mistake, wherever it comes from.
            let given = given.as_bytes().strip_prefix(b"Bearer ").unwrap_or_default();
            return match &self.token {
                Some(token) if is_same(token.expose_secret().as_bytes(), given) => Ok(()),
                Some(_) => Err(unauthorized(
                    "the bearer token is not the one of tailpost run --http-token\n",
                )),
                None => Err(forbidden(
                    "there is no token to compare with: give tailpost run one with --http-token or TAILPOST_HTTP_TOKEN\n",
                )),
            };
        }
        let is_passed_on = FORWARDED.iter().any(|name| headers.contains_key(*name));
        // Where there is a token, it says who asks: a proxy that adds no header of its own cannot be told from this machine.
        if self.token.is_some() || !peer.ip().to_canonical().is_loopback() || is_passed_on {
            return Err(match self.token {
                Some(_) => unauthorized(
                    "this takes the header `Authorization: Bearer TOKEN`: tailpost pause and resume send it with --http-token or \
                     TAILPOST_HTTP_TOKEN\n",
                ),
                None => forbidden(
                    "from another machine, or through a proxy, this takes a token: give tailpost run one with --http-token or \
                     TAILPOST_HTTP_TOKEN, and send it as `Authorization: Bearer TOKEN`\n",
                ),
            });
        }
        if !headers.contains_key(REQUEST_HEADER) {
            return Err(forbidden(
                "this takes the header `Tailpost-Request: 1`, which no form of a web page can send\n",
            ));
        }
        match host(headers) {
            Some(host) if is_of_this_machine(&host) => Ok(()),
            _ => Err(forbidden(
                "`Host` is not an address of this machine or localhost; with a token any other name will do\n",
            )),
        }
    }
}

fn unauthorized(text: &'static str) -> Denied {
    let code = StatusCode::UNAUTHORIZED;
    Denied { code, text }
}

fn forbidden(text: &'static str) -> Denied {
    let code = StatusCode::FORBIDDEN;
    Denied { code, text }
}

/// In a time that does not tell how much of it is right.
fn is_same(token: &[u8], given: &[u8]) -> bool {
    let (token, given) = (Sha256::digest(token), Sha256::digest(given));
    let differing = token.iter().zip(given.iter());
    differing.fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

fn host(headers: &HeaderMap) -> Option<String> {
    let host = headers.get(header::HOST)?.to_str().ok()?;
    let uri: Uri = host.parse().ok()?;
    Some(uri.host()?.trim_matches(['[', ']']).to_owned())
}

/// An address cannot be rebound to another one; of names only this one cannot.
fn is_of_this_machine(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn admit(token: Option<&str>, peer: &str, headers: &[(&str, &str)]) -> u16 {
        let access = Access {
            token: token.map(SecretString::from),
        };
        let headers = headers.iter().map(|(name, value)| {
            let name: HeaderName = name.parse().unwrap();
            (name, HeaderValue::from_str(value).unwrap())
        });
        match access.admit(peer.parse().unwrap(), &headers.collect()) {
            Ok(()) => 200,
            Err(denied) => denied.code.as_u16(),
        }
    }

    const HERE: [(&str, &str); 2] = [("host", "127.0.0.1:9095"), (REQUEST_HEADER, "1")];

    #[test]
    fn this_machine_is_let_in_by_the_header_that_browsers_do_not_send_for_a_page() {
        for peer in ["127.0.0.1:5000", "[::1]:5000", "[::ffff:127.0.0.1]:5000"] {
            assert_eq!(admit(None, peer, &HERE), 200, "{peer}");
            assert_eq!(admit(Some("secret"), peer, &HERE), 401, "{peer}");
            assert_eq!(admit(None, peer, &HERE[..1]), 403, "as a form sends it");
        }
        for (host, code) in [
            ("localhost:9095", 200),
            ("[::1]:9095", 200),
            ("rebound.example:9095", 403),
            ("localhost.example", 403),
            ("", 403),
        ] {
            assert_eq!(
                admit(None, "127.0.0.1:5000", &[("host", host), (REQUEST_HEADER, "1")]),
                code,
                "{host}"
            );
        }
    }

    #[test]
    fn from_elsewhere_and_through_a_proxy_it_takes_the_token() {
        let remote = "10.0.0.7:5000";
        assert_eq!(admit(None, remote, &HERE), 403);
        assert_eq!(admit(Some("secret"), remote, &HERE), 401);
        let [host, request] = HERE;
        for header in FORWARDED {
            let passed_on = [host, request, (header, "10.0.0.7")];
            assert_eq!(admit(None, "127.0.0.1:5000", &passed_on), 403, "{header}");
        }
        for (token, given, code) in [
            (Some("secret"), "Bearer secret", 200),
            (Some("secret"), "Bearer secre", 401),
            (Some("secret"), "Bearer ", 401),
            (Some("secret"), "Basic secret", 401),
            (None, "Bearer ", 403),
        ] {
            for peer in [remote, "127.0.0.1:5000"] {
                let headers = [("host", "tailpost.example"), ("authorization", given)];
                assert_eq!(admit(token, peer, &headers), code, "{token:?} {given} {peer}");
            }
        }
    }
}
