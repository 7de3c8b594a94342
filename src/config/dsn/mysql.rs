//! Data source names of MySQL and MariaDB: a URL, with the options of the mysql client.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;

use super::syntax::{Setting, bracketed, percent_encode, url_settings};
use super::{DsnError, filled, readable, word};
use crate::config::pipeline::{Ssl, SslMode};
use crate::config::suggest::nearest;

const SHAPE: &str = "a URL (`mysql://user:password@host:3306/database`)";
const DEFAULT_PORT: u16 = 3306;
/// What stands for this machine, in a URL with an option `socket`.
const LOCAL: &str = "localhost";

/// Where and how to connect. Its Debug and Display leave the password out.
#[derive(Clone)]
pub struct MysqlDsn {
    pub user: String,
    /// None: the account has none.
    pub password: Option<SecretString>,
    /// Never empty. Several are servers that replicate from one another: the first that takes writes is meant.
    pub hosts: Vec<MysqlHost>,
    pub database: Option<String>,
    /// None: the program's own.
    pub connect_timeout: Option<Duration>,
    /// What is verified, and with which files.
    pub ssl: Ssl,
}

/// Where one server listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum MysqlHost {
    Tcp {
        /// A name or an address.
        name: String,
        port: u16,
    },
    /// A unix socket's path. There is no TLS over it.
    Socket(PathBuf),
}

/// For messages.
impl fmt::Display for MysqlHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { name, port } if name.contains(':') => write!(f, "[{name}]:{port}"),
            Self::Tcp { name, port } => write!(f, "{name}:{port}"),
            Self::Socket(path) => path.display().fmt(f),
        }
    }
}

const OPTIONS: [&str; 6] = ["ssl-mode", "ssl-ca", "ssl-cert", "ssl-key", "connect-timeout", "socket"];

/// What other programs call these, and what to write here.
const FOREIGN: [(&str, &[&str]); 6] = [
    (
        "say by `ssl-mode` what is verified: disabled, preferred, required, verify-ca or verify-identity",
        &[
            "require_ssl",
            "verify_ca",
            "verify_identity",
            "built_in_roots",
            "useSSL",
            "requireSSL",
            "verifyServerCertificate",
            "ssl-verify-server-cert",
            "ssl",
            "tls",
        ],
    ),
    (
        "name the authorities' certificates, in PEM, by `ssl-ca`",
        &["trustCertificateKeyStoreUrl", "serverSslCert", "ssl-capath"],
    ),
    (
        "name certificate and key, in PEM, by `ssl-cert` and `ssl-key`",
        &["clientCertificateKeyStoreUrl", "keyStore"],
    ),
    (
        "say it by `connect-timeout`, in seconds",
        &["connectTimeout", "timeout"],
    ),
    ("name the path by `socket`", &["unix_socket", "localSocket"]),
    (
        "write it before the options: `mysql://user:password@host:3306/database`",
        &["user", "username", "password", "host", "port", "database", "dbname"],
    ),
];

/// What the clients know besides. Some would weaken or strengthen the connection, so none is passed over in silence.
const UNSUPPORTED: [&str; 42] = [
    // of the mysql client
    "ssl-cipher",
    "ssl-crl",
    "ssl-crlpath",
    "ssl-fips-mode",
    "tls-version",
    "tls-ciphersuites",
    "default-auth",
    "get-server-public-key",
    "server-public-key-path",
    "compression",
    "default-character-set",
    // of mysql_async
    "prefer_socket",
    "pool_min",
    "pool_max",
    "inactive_connection_ttl",
    "ttl_check_interval",
    "conn_ttl",
    "abs_conn_ttl",
    "abs_conn_ttl_jitter",
    "tcp_keepalive",
    "tcp_nodelay",
    "max_allowed_packet",
    "wait_timeout",
    "stmt_cache_size",
    "secure_auth",
    "client_found_rows",
    "enable_cleartext_plugin",
    "reset_connection",
    // of JDBC
    "serverTimezone",
    "allowPublicKeyRetrieval",
    "useUnicode",
    "characterEncoding",
    "autoReconnect",
    "zeroDateTimeBehavior",
    "tinyInt1isBit",
    "rewriteBatchedStatements",
    "useLegacyDatetimeCode",
    "socketTimeout",
    // of drivers of other languages
    "charset",
    "collation",
    "parseTime",
    "loc",
];

impl MysqlDsn {
    /// Reads a DSN, and looks whether the files that it names can be opened.
    ///
    /// An option's name has `-` or `_` between its words. `ssl-mode` is `preferred` where it isn't given, as in the mysql
    /// client, and `verify-ca` with an `ssl-ca`. A host that begins with `/` is a unix socket's path, as is the option
    /// `socket`; `localhost` alone is the address.
    ///
    /// # Errors
    /// Everything that is wrong, not only the first.
    pub fn parse(text: &str) -> Result<Self, Vec<DsnError>> {
        let rest = text
            .strip_prefix("mysql://")
            .or_else(|| text.strip_prefix("mariadb://"))
            .ok_or_else(|| vec![DsnError::Shape { expected: SHAPE }])?;
        let mut builder = Builder::default();
        for setting in url_settings(rest, SHAPE).map_err(|err| vec![err])? {
            if let Err(error) = builder.apply(setting) {
                builder.errors.push(error);
            }
        }
        builder.build()
    }

    /// The DSN as a URL without password and options.
    pub fn redacted(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for MysqlDsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mysql://{}@", percent_encode(&self.user))?;
        for (index, host) in self.hosts.iter().enumerate() {
            f.write_str(if index > 0 { "," } else { "" })?;
            match host {
                MysqlHost::Socket(path) => f.write_str(&percent_encode(&path.to_string_lossy()))?,
                MysqlHost::Tcp { name, port } => write!(f, "{}:{port}", bracketed(name))?,
            }
        }
        match &self.database {
            Some(database) => write!(f, "/{}", percent_encode(database)),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for MysqlDsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlDsn")
            .field("url", &self.to_string())
            .field("ssl", &self.ssl)
            .finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Builder {
    given: Vec<&'static str>,
    errors: Vec<DsnError>,
    user: Option<String>,
    password: Option<SecretString>,
    hosts: Vec<String>,
    ports: Vec<u16>,
    socket: Option<PathBuf>,
    database: Option<String>,
    connect_timeout: Option<Duration>,
    mode: Option<SslMode>,
    root_cert: Option<PathBuf>,
    client_cert: Option<PathBuf>,
    client_key: Option<PathBuf>,
}

impl Builder {
    fn apply(&mut self, setting: Setting) -> Result<(), DsnError> {
        let option = if setting.number == 0 {
            place(&setting.name)
        } else {
            option(&setting)
        }?;
        if self.given.contains(&option) {
            return Err(DsnError::Repeated { option });
        }
        self.given.push(option);
        if setting.value.contains(&0) {
            return Err(DsnError::Zero { server: "MySQL" });
        }
        let value = String::from_utf8(setting.value).map_err(|_| DsnError::Value {
            option,
            expected: "UTF-8 text",
            suggestion: None,
        })?;
        self.set(option, value)
    }

    fn set(&mut self, option: &'static str, value: String) -> Result<(), DsnError> {
        let wrong = |expected| DsnError::Value {
            option,
            expected,
            suggestion: None,
        };
        match option {
            "user" => self.user = Some(value),
            "password" => self.password = Some(value.into()),
            "host" if value.starts_with('/') && !value.contains(',') => self.socket = Some(value.into()),
            "host" => {
                let hosts: Vec<String> = value.split(',').map(str::to_owned).collect();
                if hosts.iter().any(|host| host.is_empty() || host.starts_with('/')) {
                    return Err(wrong("a name or an address between two commas"));
                }
                self.hosts = hosts;
            }
            "port" => {
                let port = |text: &str| match text {
                    "" => Some(DEFAULT_PORT),
                    text => text.parse().ok().filter(|&port| port > 0),
                };
                let ports: Option<Vec<u16>> = value.split(',').map(port).collect();
                self.ports = ports.ok_or_else(|| wrong("a port number from 1 to 65535"))?;
            }
            "database" => self.database = Some(value),
            "connect-timeout" => {
                let seconds: u32 = value.parse().unwrap_or(0);
                if seconds == 0 {
                    return Err(wrong("whole seconds, 1 or more"));
                }
                self.connect_timeout = Some(Duration::from_secs(seconds.into()));
            }
            "socket" if !value.starts_with('/') => return Err(wrong("a path that begins with `/`")),
            "socket" if self.socket.is_some() => return Err(DsnError::HostAndSocket),
            "socket" => self.socket = Some(value.into()),
            "ssl-mode" => self.mode = Some(ssl_mode(option, &value)?),
            "ssl-ca" => self.root_cert = Some(readable(option, filled(option, &value)?)?),
            "ssl-cert" => self.client_cert = Some(readable(option, filled(option, &value)?)?),
            "ssl-key" => self.client_key = Some(readable(option, filled(option, &value)?)?),
            _ => return Err(DsnError::Unsupported { option }),
        }
        Ok(())
    }

    fn build(mut self) -> Result<MysqlDsn, Vec<DsnError>> {
        let given = |option: &str| self.given.contains(&option);
        for (present, missing) in [("ssl-cert", "ssl-key"), ("ssl-key", "ssl-cert")] {
            if given(present) && !given(missing) {
                self.errors.push(DsnError::Pair { present, missing });
            }
        }
        if !given("user") {
            self.errors.push(DsnError::NoUser);
        }
        if !given("host") && !given("socket") {
            self.errors.push(DsnError::NoHost {
                socket: "the path of a unix socket",
            });
        }
        if self.socket.is_some() && self.hosts.iter().any(|host| host != LOCAL) {
            self.errors.push(DsnError::HostAndSocket);
        }
        let mode = match self.mode {
            Some(mode) => mode,
            None if given("ssl-ca") => SslMode::VerifyCa,
            None => SslMode::Prefer,
        };
        // A mode that was not understood can contradict nothing.
        if self.mode.is_some() || !given("ssl-mode") {
            self.errors.extend(contradiction(mode, self.socket.is_some(), given));
        }
        match self.user {
            Some(user) if self.errors.is_empty() => Ok(MysqlDsn {
                user,
                password: self.password,
                hosts: hosts(self.hosts, self.ports, self.socket),
                database: self.database,
                connect_timeout: self.connect_timeout,
                ssl: Ssl {
                    mode,
                    root_cert: self.root_cert,
                    client_cert: self.client_cert,
                    client_key: self.client_key,
                },
            }),
            _ => Err(self.errors),
        }
    }
}

/// A URL gives as many ports as hosts, or none.
fn hosts(names: Vec<String>, ports: Vec<u16>, socket: Option<PathBuf>) -> Vec<MysqlHost> {
    if let Some(path) = socket {
        return vec![MysqlHost::Socket(path)];
    }
    let ports = ports.into_iter().chain(std::iter::repeat(DEFAULT_PORT));
    let hosts = names.into_iter().zip(ports);
    hosts.map(|(name, port)| MysqlHost::Tcp { name, port }).collect()
}

/// What cannot be had with this mode, or would pass for more than it is.
fn contradiction(mode: SslMode, over_socket: bool, given: impl Fn(&str) -> bool) -> Option<DsnError> {
    let word = mode.as_mysql_str();
    let verifies = matches!(mode, SslMode::VerifyCa | SslMode::VerifyFull);
    if over_socket && (verifies || mode == SslMode::Require) {
        Some(DsnError::SocketTls { mode: word })
    } else if given("ssl-ca") && !verifies {
        Some(DsnError::NoEffect {
            option: "ssl-ca",
            mode: word,
            expected: "verify-ca or verify-identity",
        })
    } else if given("ssl-cert") && mode == SslMode::Disable {
        Some(DsnError::NoEffect {
            option: "ssl-cert",
            mode: word,
            expected: "preferred, required, verify-ca or verify-identity",
        })
    } else if mode == SslMode::VerifyCa && !given("ssl-ca") {
        Some(DsnError::WeakSystemRoots {
            given: "ssl-mode=verify-ca",
            needed: "ssl-ca",
        })
    } else {
        None
    }
}

/// One of a URL's own places.
fn place(name: &str) -> Result<&'static str, DsnError> {
    match name {
        "user" => Ok("user"),
        "password" => Ok("password"),
        "host" => Ok("host"),
        "port" => Ok("port"),
        "dbname" => Ok("database"),
        _ => Err(DsnError::Shape { expected: SHAPE }),
    }
}

/// One of the options behind the `?`.
fn option(setting: &Setting) -> Result<&'static str, DsnError> {
    let name = setting.name.replace('_', "-");
    if let Some(option) = OPTIONS.into_iter().find(|option| *option == name) {
        return Ok(option);
    }
    let is_meant = |option: &&str| option.replace('_', "-").eq_ignore_ascii_case(&name);
    for (remedy, options) in FOREIGN {
        if let Some(option) = options.iter().copied().find(is_meant) {
            return Err(DsnError::Foreign { option, remedy });
        }
    }
    Err(match UNSUPPORTED.into_iter().find(is_meant) {
        Some(option) => DsnError::Unsupported { option },
        None => DsnError::UnknownOption {
            number: setting.number,
            suggestion: nearest(&name, OPTIONS),
        },
    })
}

fn ssl_mode(option: &'static str, value: &str) -> Result<SslMode, DsnError> {
    const EXPECTED: &str = "disabled, preferred, required, verify-ca or verify-identity";
    let modes = [
        SslMode::Disable,
        SslMode::Prefer,
        SslMode::Require,
        SslMode::VerifyCa,
        SslMode::VerifyFull,
    ];
    let value = value.to_ascii_lowercase().replace('_', "-");
    // The words of PostgreSQL's DSNs, for who has both.
    if let Some(mode) = modes
        .into_iter()
        .find(|mode| mode.as_str() == value && mode.as_mysql_str() != value)
    {
        return Err(DsnError::Value {
            option,
            expected: EXPECTED,
            suggestion: Some(mode.as_mysql_str()),
        });
    }
    word(option, &value, &modes.map(|mode| (mode.as_mysql_str(), mode)), EXPECTED)
}

#[cfg(test)]
mod tests;
