//! Data source names of PostgreSQL: a URL or key=value pairs, as libpq reads them.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{ChannelBinding, Host, LoadBalanceHosts, TargetSessionAttrs};

use super::syntax::{Setting, bracketed, pair_settings, percent_encode, url_settings};
use super::{DsnError, filled, readable, word};
use crate::config::pipeline::{Ssl, SslMode};
use crate::config::suggest::nearest;

const SHAPE: &str = "a URL (`postgres://user@host:5432/database`) or key=value pairs (`host=... user=...`)";

/// Where and how to connect. Its Debug and Display leave the password out.
#[derive(Clone)]
pub struct PostgresDsn {
    /// Everything but certificates. Its own `ssl_mode` only says whether to ask for TLS; [`Ssl::mode`] says what is verified.
    pub config: Config,
    /// What is verified, and with which files.
    pub ssl: Ssl,
}

const OPTIONS: [&str; 22] = [
    "host",
    "hostaddr",
    "port",
    "user",
    "password",
    "dbname",
    "options",
    "application_name",
    "connect_timeout",
    "tcp_user_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_count",
    "keepalives_retries",
    "target_session_attrs",
    "channel_binding",
    "load_balance_hosts",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
];

/// What libpq knows besides. Some would weaken or strengthen the connection, so none is passed over in silence.
const UNSUPPORTED: [&str; 19] = [
    "sslnegotiation",
    "sslpassword",
    "sslcrl",
    "sslcrldir",
    "sslsni",
    "sslcompression",
    "sslcertmode",
    "ssl_min_protocol_version",
    "ssl_max_protocol_version",
    "gssencmode",
    "gssdelegation",
    "krbsrvname",
    "passfile",
    "service",
    "requirepeer",
    "require_auth",
    "client_encoding",
    "fallback_application_name",
    "replication",
];

impl PostgresDsn {
    /// Reads a DSN, and looks whether the files that it names can be opened.
    ///
    /// `sslmode` is `prefer` where it isn't given; `require` with an `sslrootcert` verifies the authority, as in libpq;
    /// `allow` is refused; `sslrootcert=system` is the same as none given, with `verify-full`.
    ///
    /// # Errors
    /// Everything that is wrong, not only the first.
    pub fn parse(text: &str) -> Result<Self, Vec<DsnError>> {
        let settings = settings(text).map_err(|err| vec![err])?;
        let mut builder = Builder::default();
        for setting in settings {
            builder.apply(setting);
        }
        builder.build()
    }

    /// The DSN as a URL without password and options.
    pub fn redacted(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for PostgresDsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("postgres://")?;
        if let Some(user) = self.config.get_user() {
            write!(f, "{}@", percent_encode(user))?;
        }
        let ports = self.config.get_ports();
        let port_of = |index: usize| ports.get(index).or(ports.first()).copied().unwrap_or(5432);
        let names: Vec<String> = match self.config.get_hosts() {
            [] => self
                .config
                .get_hostaddrs()
                .iter()
                .map(|address| bracketed(&address.to_string()))
                .collect(),
            hosts => hosts.iter().map(host_text).collect(),
        };
        for (index, name) in names.iter().enumerate() {
            write!(f, "{}{name}:{}", if index > 0 { "," } else { "" }, port_of(index))?;
        }
        match self.config.get_dbname() {
            Some(database) => write!(f, "/{}", percent_encode(database)),
            None => Ok(()),
        }
    }
}

fn host_text(host: &Host) -> String {
    match host {
        Host::Tcp(name) => bracketed(name),
        #[cfg(unix)]
        Host::Unix(folder) => percent_encode(&folder.to_string_lossy()),
    }
}

impl fmt::Debug for PostgresDsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresDsn")
            .field("url", &self.to_string())
            .field("ssl", &self.ssl)
            .finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Builder {
    config: Config,
    given: Vec<&'static str>,
    errors: Vec<DsnError>,
    hosts: usize,
    addresses: usize,
    ports: usize,
    mode: Option<SslMode>,
    system_roots: bool,
    root_cert: Option<PathBuf>,
    client_cert: Option<PathBuf>,
    client_key: Option<PathBuf>,
}

impl Builder {
    fn apply(&mut self, setting: Setting) {
        let name = setting.name.as_str();
        let Some(option) = OPTIONS.into_iter().find(|option| *option == name) else {
            let error = match UNSUPPORTED.into_iter().find(|option| *option == name) {
                Some(option) => DsnError::Unsupported { option },
                None => DsnError::UnknownOption {
                    number: setting.number,
                    suggestion: nearest(name, OPTIONS),
                },
            };
            return self.errors.push(error);
        };
        if self.given.contains(&option) {
            return self.errors.push(DsnError::Repeated { option });
        }
        self.given.push(option);
        if setting.value.contains(&0) {
            return self.errors.push(DsnError::Zero { server: "PostgreSQL" });
        }
        if option == "password" {
            self.config.password(setting.value);
            return;
        }
        let Ok(value) = String::from_utf8(setting.value) else {
            return self.errors.push(DsnError::Value {
                option,
                expected: "UTF-8 text",
                suggestion: None,
            });
        };
        if let Err(error) = self.set(option, &value) {
            self.errors.push(error);
        }
    }

    fn set(&mut self, option: &'static str, value: &str) -> Result<(), DsnError> {
        let wrong = |expected| DsnError::Value {
            option,
            expected,
            suggestion: None,
        };
        match option {
            "user" => {
                self.config.user(filled(option, value)?);
            }
            "dbname" => {
                self.config.dbname(filled(option, value)?);
            }
            "options" => {
                self.config.options(value);
            }
            "application_name" => {
                self.config.application_name(value);
            }
            "host" => {
                for host in value.split(',') {
                    self.hosts += 1;
                    self.config.host(filled(option, host)?);
                }
            }
            "hostaddr" => {
                for address in value.split(',') {
                    self.addresses += 1;
                    self.config
                        .hostaddr(address.parse().map_err(|_| wrong("IP addresses, comma separated"))?);
                }
            }
            "port" => {
                for port in value.split(',') {
                    self.ports += 1;
                    let number: u16 = if port.is_empty() {
                        5432
                    } else {
                        port.parse().unwrap_or(0)
                    };
                    if number == 0 {
                        return Err(wrong("port numbers from 1 to 65535, comma separated"));
                    }
                    self.config.port(number);
                }
            }
            "connect_timeout" => {
                // As in libpq, nothing and less than nothing is to wait without end.
                if let Some(limit) = seconds(value).ok_or_else(|| wrong("whole seconds"))? {
                    self.config.connect_timeout(limit);
                }
            }
            "tcp_user_timeout" => match value.parse::<u32>() {
                Ok(millis) => {
                    self.config.tcp_user_timeout(Duration::from_millis(millis.into()));
                }
                Err(_) => return Err(wrong("whole milliseconds")),
            },
            "keepalives" => {
                self.config
                    .keepalives(word(option, value, &[("1", true), ("0", false)], "0 or 1")?);
            }
            "keepalives_idle" => {
                if let Some(idle) = seconds(value).ok_or_else(|| wrong("whole seconds"))? {
                    self.config.keepalives_idle(idle);
                }
            }
            "keepalives_interval" => {
                if let Some(interval) = seconds(value).ok_or_else(|| wrong("whole seconds"))? {
                    self.config.keepalives_interval(interval);
                }
            }
            "keepalives_count" | "keepalives_retries" => {
                let count = value.parse().map_err(|_| wrong("a whole number"))?;
                if count > 0 {
                    self.config.keepalives_retries(count);
                }
            }
            "target_session_attrs" => {
                let words = [
                    ("any", TargetSessionAttrs::Any),
                    ("read-write", TargetSessionAttrs::ReadWrite),
                    ("read-only", TargetSessionAttrs::ReadOnly),
                ];
                self.config
                    .target_session_attrs(word(option, value, &words, "any, read-write or read-only")?);
            }
            "channel_binding" => {
                let words = [
                    ("disable", ChannelBinding::Disable),
                    ("prefer", ChannelBinding::Prefer),
                    ("require", ChannelBinding::Require),
                ];
                self.config
                    .channel_binding(word(option, value, &words, "disable, prefer or require")?);
            }
            "load_balance_hosts" => {
                let words = [
                    ("disable", LoadBalanceHosts::Disable),
                    ("random", LoadBalanceHosts::Random),
                ];
                self.config
                    .load_balance_hosts(word(option, value, &words, "disable or random")?);
            }
            "sslmode" => {
                let words = [
                    ("disable", SslMode::Disable),
                    ("prefer", SslMode::Prefer),
                    ("require", SslMode::Require),
                    ("verify-ca", SslMode::VerifyCa),
                    ("verify-full", SslMode::VerifyFull),
                ];
                const EXPECTED: &str = "disable, prefer, require, verify-ca or verify-full";
                if value == "allow" {
                    return Err(DsnError::Value {
                        option,
                        expected: EXPECTED,
                        suggestion: Some("prefer"),
                    });
                }
                self.mode = Some(word(option, value, &words, EXPECTED)?);
            }
            "sslrootcert" if value == "system" => self.system_roots = true,
            "sslrootcert" => self.root_cert = Some(readable(option, value)?),
            "sslcert" => self.client_cert = Some(readable(option, value)?),
            "sslkey" => self.client_key = Some(readable(option, value)?),
            _ => return Err(DsnError::Unsupported { option }),
        }
        Ok(())
    }

    fn build(mut self) -> Result<PostgresDsn, Vec<DsnError>> {
        let given = |option: &str| self.given.contains(&option);
        for (present, missing) in [("sslcert", "sslkey"), ("sslkey", "sslcert")] {
            if given(present) && !given(missing) {
                self.errors.push(DsnError::Pair { present, missing });
            }
        }
        if given("keepalives_count") && given("keepalives_retries") {
            self.errors.push(DsnError::Repeated {
                option: "keepalives_count",
            });
        }
        if !given("host") && !given("hostaddr") {
            self.errors.push(DsnError::NoHost {
                socket: "the folder of a unix socket",
            });
        }
        let hosts = self.hosts.max(self.addresses);
        if self.hosts > 0 && self.addresses > 0 && self.hosts != self.addresses {
            self.errors.push(DsnError::Uneven {
                what: "addresses",
                hosts: self.hosts,
            });
        }
        if self.ports > 1 && hosts > 0 && self.ports != hosts {
            self.errors.push(DsnError::Uneven { what: "ports", hosts });
        }
        let mode = match self.mode {
            None if self.system_roots => SslMode::VerifyFull,
            Some(mode) if self.system_roots && mode != SslMode::VerifyFull => {
                self.errors.push(DsnError::WeakSystemRoots {
                    given: "sslrootcert=system",
                    needed: "sslmode=verify-full",
                });
                mode
            }
            Some(SslMode::Require) if self.root_cert.is_some() => SslMode::VerifyCa,
            Some(mode) => mode,
            None => SslMode::Prefer,
        };
        if !self.errors.is_empty() {
            return Err(self.errors);
        }
        self.config.ssl_mode(match mode {
            SslMode::Disable => tokio_postgres::config::SslMode::Disable,
            SslMode::Prefer => tokio_postgres::config::SslMode::Prefer,
            SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => tokio_postgres::config::SslMode::Require,
        });
        let ssl = Ssl {
            mode,
            root_cert: self.root_cert,
            client_cert: self.client_cert,
            client_key: self.client_key,
        };
        Ok(PostgresDsn {
            config: self.config,
            ssl,
        })
    }
}

/// A URL's settings, or those of pairs.
fn settings(text: &str) -> Result<Vec<Setting>, DsnError> {
    match text
        .strip_prefix("postgres://")
        .or_else(|| text.strip_prefix("postgresql://"))
    {
        Some(rest) => url_settings(rest, SHAPE),
        // Another scheme's URL: a key never has a colon.
        None if text.find("://").is_some_and(|at| !text[..at].contains(['=', ' '])) => {
            Err(DsnError::Shape { expected: SHAPE })
        }
        None => pair_settings(text, SHAPE),
    }
}

/// None: no number. Some(None): no limit.
fn seconds(value: &str) -> Option<Option<Duration>> {
    let seconds: i32 = value.parse().ok()?;
    Some(
        u64::try_from(seconds)
            .ok()
            .filter(|&seconds| seconds > 0)
            .map(Duration::from_secs),
    )
}

#[cfg(test)]
mod tests;
