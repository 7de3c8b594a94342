//! Splits a DSN, a URL or key=value pairs, into its settings. Knows no option but those that a URL has places for.

use super::DsnError;

/// One option as it was given. Bytes, because a percent-encoded password need not be UTF-8.
pub(super) struct Setting {
    /// Counts from 1: the pairs, or a URL's options after the `?`. 0 for what has its own place in a URL.
    pub(super) number: usize,
    pub(super) name: String,
    pub(super) value: Vec<u8>,
}

/// What a URL has after its scheme: `user:password@host:port,host:port/database?option=value&option=value`.
///
/// The places are called user, password, host, port and dbname; one that is empty is no setting. `expected` is for the
/// error about a text of another shape.
pub(super) fn url_settings(text: &str, expected: &'static str) -> Result<Vec<Setting>, DsnError> {
    let mut settings = Vec::new();
    let mut push = |name: &str, value: Vec<u8>| {
        if !value.is_empty() {
            settings.push(Setting {
                number: 0,
                name: name.to_owned(),
                value,
            });
        }
    };
    let mut rest = text;
    // As libpq does: what comes before the first `@` is the user's, unless a `/` comes sooner.
    if let Some(at) = text.find(['@', '/']).filter(|&at| text[at..].starts_with('@')) {
        let credentials = &text[..at];
        rest = &text[at + 1..];
        let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
        push("user", percent_decode(user, "user")?);
        push("password", percent_decode(password, "password")?);
    }
    let (before_query, query) = rest
        .split_once('?')
        .map_or((rest, None), |(before, query)| (before, Some(query)));
    let (authority, database) = before_query.split_once('/').unwrap_or((before_query, ""));
    if authority.contains('@') || database.contains('@') || database.contains('/') {
        return Err(DsnError::Unencoded {
            part: "part before the host",
        });
    }
    let shape = || DsnError::Shape { expected };
    let (hosts, ports) = hosts_and_ports(authority, shape)?;
    push("host", hosts);
    push("port", ports);
    push("dbname", percent_decode(database, "database")?);
    let pairs = query
        .into_iter()
        .flat_map(|query| query.split('&'))
        .filter(|pair| !pair.is_empty());
    for (index, pair) in pairs.enumerate() {
        let (name, value) = pair.split_once('=').ok_or_else(shape)?;
        let name = String::from_utf8(percent_decode(name, "option")?).map_err(|_| shape())?;
        settings.push(Setting {
            number: index + 1,
            name,
            value: percent_decode(value, "option")?,
        });
    }
    Ok(settings)
}

fn hosts_and_ports(authority: &str, shape: impl Fn() -> DsnError) -> Result<(Vec<u8>, Vec<u8>), DsnError> {
    let (mut hosts, mut ports) = (Vec::new(), Vec::new());
    let mut names_port = false;
    for (index, place) in authority.split(',').enumerate() {
        let (host, port) = match place.strip_prefix('[') {
            Some(inside) => {
                let (address, after) = inside.split_once(']').ok_or_else(&shape)?;
                (
                    address,
                    if after.is_empty() {
                        ""
                    } else {
                        after.strip_prefix(':').ok_or_else(&shape)?
                    },
                )
            }
            None => place.split_once(':').unwrap_or((place, "")),
        };
        if index > 0 {
            hosts.push(b',');
            ports.push(b',');
        }
        names_port |= !port.is_empty();
        hosts.extend(percent_decode(host, "host")?);
        ports.extend(percent_decode(port, "port")?);
    }
    // Without any, the option `port` may still say it.
    Ok((hosts, if names_port { ports } else { Vec::new() }))
}

/// `name=value` pairs between blanks. A value in single quotes may hold blanks; a backslash takes the next character as it is.
pub(super) fn pair_settings(text: &str, expected: &'static str) -> Result<Vec<Setting>, DsnError> {
    let shape = || DsnError::Shape { expected };
    let mut settings = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=').ok_or_else(shape)?;
        let name = name.trim_end();
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(shape());
        }
        let (value, after) = pair_value(after.trim_start())?;
        let number = settings.len() + 1;
        settings.push(Setting {
            number,
            name: name.to_owned(),
            value: value.into_bytes(),
        });
        rest = after.trim_start();
    }
    if settings.is_empty() {
        Err(shape())
    } else {
        Ok(settings)
    }
}

fn pair_value(text: &str) -> Result<(String, &str), DsnError> {
    let quoted = text.strip_prefix('\'');
    let mut value = String::new();
    let mut chars = quoted.unwrap_or(text).chars();
    loop {
        let before = chars.as_str();
        match chars.next() {
            Some('\\') => value.extend(chars.next()),
            Some('\'') if quoted.is_some() => return Ok((value, chars.as_str())),
            Some(c) if c.is_whitespace() && quoted.is_none() => return Ok((value, before)),
            Some(c) => value.push(c),
            None if quoted.is_some() => return Err(DsnError::Quote),
            None => return Ok((value, "")),
        }
    }
}

fn percent_decode(text: &str, part: &'static str) -> Result<Vec<u8>, DsnError> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || {
            bytes
                .next()
                .and_then(|byte| char::from(byte).to_digit(16))
                .and_then(|digit| u8::try_from(digit).ok())
        };
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err(DsnError::Percent { part });
        };
        decoded.push(high << 4 | low);
    }
    Ok(decoded)
}

/// Encodes all that has a meaning in a URL, or cannot stand in a line.
pub(crate) fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// A host as a URL has it.
pub(super) fn bracketed(name: &str) -> String {
    if name.contains(':') {
        format!("[{name}]")
    } else {
        percent_encode(name)
    }
}
