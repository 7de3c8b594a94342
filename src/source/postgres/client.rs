//! A replication connection: start-up, TLS, authentication, simple queries and START_REPLICATION.
//!
//! `postgres-protocol` has the messages; what it lacks is CopyBoth, which is all that a replication stream is made of.
//! Protocol: PostgreSQL documentation, "Frontend/Backend Protocol" and "Streaming Replication Protocol".

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{self, ScramSha256};
use postgres_protocol::message::backend::{self, DataRowBody, Message};
use postgres_protocol::message::frontend;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_postgres::config::{ChannelBinding, Host};
use tokio_rustls::TlsConnector;

use crate::config::{PostgresDsn, SslMode};

use super::error::{PostgresError, ServerError};
use crate::source::transport::Transport;
use crate::tls::{is_tls_verdict, server_end_point};

const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Before streaming the server sends only short messages; more is not PostgreSQL.
const MAX_SETUP_FRAME: u64 = 1 << 20;

/// Makes the server print values in one way, whatever the role's or database's settings: the text of a value is part of
/// what we publish.
const TEXT_SETTINGS: [(&str, &str); 5] = [
    ("client_encoding", "UTF8"),
    ("DateStyle", "ISO"),
    ("IntervalStyle", "postgres"),
    ("TimeZone", "UTC"),
    ("extra_float_digits", "3"),
];

/// For a connection up to the end of its log-in.
pub(super) fn connect_timeout(dsn: &PostgresDsn) -> Duration {
    let given = dsn.config.get_connect_timeout().copied();
    given
        .filter(|limit| !limit.is_zero())
        .unwrap_or(DEFAULT_CONNECT_TIMEOUT)
}

/// One of the DSN's servers.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    pub(super) host: Host,
    pub(super) port: u16,
}

impl Endpoint {
    /// The DSN's servers, in its order.
    pub(super) fn all(dsn: &PostgresDsn) -> Vec<Self> {
        let config = &dsn.config;
        let hosts: Vec<Host> = match (config.get_hosts(), config.get_hostaddrs()) {
            ([], []) => vec![Host::Unix(PathBuf::from("/var/run/postgresql"))],
            ([], addresses) => addresses.iter().map(|address| Host::Tcp(address.to_string())).collect(),
            (hosts, _) => hosts.to_vec(),
        };
        let ports = config.get_ports();
        let port = |index: usize| ports.get(index).or(ports.first()).copied().unwrap_or(5432);
        hosts
            .into_iter()
            .enumerate()
            .map(|(index, host)| Self {
                host,
                port: port(index),
            })
            .collect()
    }

    pub(super) fn address(&self) -> String {
        match &self.host {
            Host::Tcp(host) if host.contains(':') => format!("[{host}]:{}", self.port),
            Host::Tcp(host) => format!("{host}:{}", self.port),
            Host::Unix(folder) => format!("{}/.s.PGSQL.{}", folder.display(), self.port),
        }
    }
}

/// An authenticated connection in replication mode.
#[derive(Debug)]
pub(super) struct ReplicationClient {
    transport: Transport,
    /// Received and not yet read.
    buffer: BytesMut,
    /// The server process's id, which `pg_replication_slots.active_pid` names.
    pid: i32,
}

/// A stream that the server has started.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) transport: Transport,
    /// Received behind the server's answer.
    pub(super) buffer: BytesMut,
    /// The server process at the other end.
    pub(super) pid: i32,
}

/// A row of a simple query, as text.
pub(super) type TextRow = Vec<Option<String>>;

impl ReplicationClient {
    /// Connects to one server and logs in.
    ///
    /// # Errors
    /// Connection failures can heal; refusals cannot.
    pub(super) async fn connect(
        dsn: &PostgresDsn,
        endpoint: &Endpoint,
        tls: &Arc<ClientConfig>,
    ) -> Result<Self, PostgresError> {
        let limit = connect_timeout(dsn);
        timeout(limit, Self::connect_unbounded(dsn, endpoint, tls))
            .await
            .unwrap_or_else(|_| {
                Err(PostgresError::ConnectTimeout {
                    address: endpoint.address(),
                    timeout: limit,
                })
            })
    }

    async fn connect_unbounded(
        dsn: &PostgresDsn,
        endpoint: &Endpoint,
        tls: &Arc<ClientConfig>,
    ) -> Result<Self, PostgresError> {
        let transport = open(dsn, endpoint, tls).await?;
        let mut client = Self {
            transport,
            buffer: BytesMut::with_capacity(8 << 10),
            pid: 0,
        };
        match client.log_in(dsn).await {
            Ok(()) => Ok(client),
            // In TLS 1.3 the server's word on our certificate comes after the handshake, with the first bytes read.
            Err(PostgresError::Malformed { source }) if is_tls_verdict(&source) => Err(PostgresError::Tls {
                address: endpoint.address(),
                source,
            }),
            Err(error) => Err(error),
        }
    }

    pub(super) fn is_tls(&self) -> bool {
        self.transport.is_tls()
    }

    async fn log_in(&mut self, dsn: &PostgresDsn) -> Result<(), PostgresError> {
        let config = &dsn.config;
        let user = config.get_user().unwrap_or("postgres");
        // A server that lost us must not keep the slot for long: the next instance waits for it. Any role may set it.
        let mut options = String::from("-c bytea_output=hex");
        let given = config.get_options().unwrap_or_default();
        if !given.contains("wal_sender_timeout") {
            options.push_str(" -c wal_sender_timeout=10s");
        }
        options.push(' ');
        options.push_str(given);
        let parameters = [
            ("user", user),
            ("database", config.get_dbname().unwrap_or(user)),
            ("replication", "database"),
            ("application_name", config.get_application_name().unwrap_or("tailpost")),
            ("options", options.as_str()),
        ];
        let mut out = BytesMut::new();
        frontend::startup_message(parameters.into_iter().chain(TEXT_SETTINGS), &mut out).map_err(writing)?;
        self.send(&mut out).await?;
        self.authenticate(dsn, user).await?;
        loop {
            match self.message().await? {
                Message::BackendKeyData(body) => self.pid = body.process_id(),
                Message::ParameterStatus(_) => {}
                Message::ReadyForQuery(_) => return Ok(()),
                Message::ErrorResponse(body) => {
                    return Err(PostgresError::server(
                        "open a replication connection",
                        server_error(&body)?,
                    ));
                }
                other => return Err(unexpected(&other, "the server's parameters")),
            }
        }
    }

    async fn authenticate(&mut self, dsn: &PostgresDsn, user: &str) -> Result<(), PostgresError> {
        let config = &dsn.config;
        let password = || config.get_password().ok_or(PostgresError::PasswordMissing);
        let bound_only = config.get_channel_binding() == ChannelBinding::Require;
        let mut out = BytesMut::new();
        loop {
            match self.message().await? {
                Message::AuthenticationOk if bound_only => {
                    return Err(PostgresError::ChannelBinding {
                        reason: "the server asked for no SCRAM",
                    });
                }
                Message::AuthenticationOk => return Ok(()),
                Message::AuthenticationCleartextPassword if !bound_only => {
                    frontend::password_message(password()?, &mut out).map_err(writing)?;
                    self.send(&mut out).await?;
                }
                Message::AuthenticationMd5Password(body) if !bound_only => {
                    let hash = md5_hash(user.as_bytes(), password()?, body.salt());
                    frontend::password_message(hash.as_bytes(), &mut out).map_err(writing)?;
                    self.send(&mut out).await?;
                }
                Message::AuthenticationSasl(body) => {
                    return self
                        .authenticate_scram(&body, password()?, config.get_channel_binding())
                        .await;
                }
                Message::AuthenticationGss | Message::AuthenticationSspi | Message::AuthenticationKerberosV5 => {
                    return Err(PostgresError::AuthenticationMethod {
                        method: "GSSAPI or SSPI",
                    });
                }
                Message::AuthenticationCleartextPassword | Message::AuthenticationMd5Password(_) => {
                    return Err(PostgresError::ChannelBinding {
                        reason: "the server asked for a plain password or md5",
                    });
                }
                Message::ErrorResponse(body) => {
                    return Err(PostgresError::server("log in to PostgreSQL", server_error(&body)?));
                }
                other => return Err(unexpected(&other, "an authentication request")),
            }
        }
    }

    async fn authenticate_scram(
        &mut self,
        body: &backend::AuthenticationSaslBody,
        password: &[u8],
        binding: ChannelBinding,
    ) -> Result<(), PostgresError> {
        let mut plain = false;
        let mut plus = false;
        let mut mechanisms = body.mechanisms();
        while let Some(mechanism) = fallible_iterator::FallibleIterator::next(&mut mechanisms).map_err(malformed)? {
            plain |= mechanism == sasl::SCRAM_SHA_256;
            plus |= mechanism == sasl::SCRAM_SHA_256_PLUS;
        }
        let end_point = self.end_point_hash();
        let (mechanism, channel) = match (plus, end_point) {
            (true, Some(hash)) if binding != ChannelBinding::Disable => (
                sasl::SCRAM_SHA_256_PLUS,
                sasl::ChannelBinding::tls_server_end_point(hash),
            ),
            _ if binding == ChannelBinding::Require => {
                let reason = if plus {
                    "the certificate's signature has no hash to bind to"
                } else {
                    "the server offers no SCRAM-SHA-256-PLUS"
                };
                return Err(PostgresError::ChannelBinding { reason });
            }
            // "Unrequested" tells a server that does offer it that somebody took the offer away on its way to us.
            (false, Some(_)) if plain && binding != ChannelBinding::Disable => {
                (sasl::SCRAM_SHA_256, sasl::ChannelBinding::unrequested())
            }
            _ if plain => (sasl::SCRAM_SHA_256, sasl::ChannelBinding::unsupported()),
            _ => {
                return Err(PostgresError::AuthenticationMethod {
                    method: "SASL without SCRAM-SHA-256",
                });
            }
        };
        let mut scram = ScramSha256::new(password, channel);
        let mut out = BytesMut::new();
        frontend::sasl_initial_response(mechanism, scram.message(), &mut out).map_err(writing)?;
        self.send(&mut out).await?;
        let refused = |error: io::Error| PostgresError::Scram {
            reason: error.to_string(),
        };
        let mut proved = false;
        loop {
            match self.message().await? {
                Message::AuthenticationSaslContinue(body) => {
                    scram.update(body.data()).map_err(refused)?;
                    frontend::sasl_response(scram.message(), &mut out).map_err(writing)?;
                    self.send(&mut out).await?;
                }
                Message::AuthenticationSaslFinal(body) => {
                    scram.finish(body.data()).map_err(refused)?;
                    proved = true;
                }
                Message::AuthenticationOk if proved => return Ok(()),
                // An impostor could leave out the proof that it knows the password too.
                Message::AuthenticationOk => {
                    return Err(PostgresError::Scram {
                        reason: "the server did not prove that it knows the password".to_owned(),
                    });
                }
                Message::ErrorResponse(body) => {
                    return Err(PostgresError::server("log in to PostgreSQL", server_error(&body)?));
                }
                other => return Err(unexpected(&other, "the next SCRAM message")),
            }
        }
    }

    fn end_point_hash(&self) -> Option<Vec<u8>> {
        let Transport::Tls(stream) = &self.transport else {
            return None;
        };
        let (_, connection) = stream.get_ref();
        connection.peer_certificates()?.first().and_then(server_end_point)
    }

    /// Runs one statement by the simple protocol and gives its rows.
    pub(super) async fn query(&mut self, statement: &str) -> Result<Vec<TextRow>, PostgresError> {
        let mut out = BytesMut::new();
        frontend::query(statement, &mut out).map_err(writing)?;
        self.send(&mut out).await?;
        let mut rows = Vec::new();
        let mut failed = None;
        loop {
            match self.message().await? {
                Message::DataRow(body) => rows.push(text_row(&body)?),
                Message::ErrorResponse(body) => failed = Some(server_error(&body)?),
                Message::ReadyForQuery(_) => break,
                Message::RowDescription(_)
                | Message::CommandComplete(_)
                | Message::ParameterStatus(_)
                | Message::EmptyQueryResponse => {}
                other => return Err(unexpected(&other, "a statement's result")),
            }
        }
        match failed {
            // The first word names the command; the rest may hold names that say nothing more.
            Some(error) => Err(PostgresError::server(
                statement.split(' ').next().unwrap_or_default().to_owned(),
                error,
            )),
            None => Ok(rows),
        }
    }

    /// Starts streaming and gives up the socket and what was already received behind the answer.
    ///
    /// # Errors
    /// What the server says of the slot; see [`PostgresError::recovery`].
    pub(super) async fn start_replication(mut self, command: &str) -> Result<Started, PostgresError> {
        let mut out = BytesMut::new();
        frontend::query(command, &mut out).map_err(writing)?;
        self.send(&mut out).await?;
        loop {
            // CopyBothResponse, which the message parser does not know.
            if self.next_tag().await? == b'W' {
                self.skip_frame().await?;
                return Ok(Started {
                    transport: self.transport,
                    buffer: self.buffer,
                    pid: self.pid,
                });
            }
            match self.frame().await? {
                Message::NoticeResponse(body) => show_notice(&server_fields(body.fields())?),
                Message::ErrorResponse(body) => {
                    return Err(PostgresError::server("start replication", server_error(&body)?));
                }
                Message::ParameterStatus(_) => {}
                other => return Err(unexpected(&other, "the start of a replication stream")),
            }
        }
    }

    async fn send(&mut self, out: &mut BytesMut) -> Result<(), PostgresError> {
        self.transport.write_all(out).await.map_err(writing)?;
        self.transport.flush().await.map_err(writing)?;
        out.clear();
        Ok(())
    }

    /// The next message that is not a notice; notices are shown as they come.
    async fn message(&mut self) -> Result<Message, PostgresError> {
        loop {
            // NegotiateProtocolVersion: the server leaves out options we did not ask for.
            if self.next_tag().await? == b'v' {
                self.skip_frame().await?;
                continue;
            }
            match self.frame().await? {
                Message::NoticeResponse(body) => show_notice(&server_fields(body.fields())?),
                message => return Ok(message),
            }
        }
    }

    async fn frame(&mut self) -> Result<Message, PostgresError> {
        let header = self.header().await?;
        self.fill(frame_len(&header)?).await?;
        Message::parse(&mut self.buffer)
            .map_err(malformed)?
            .ok_or(PostgresError::Closed)
    }

    async fn next_tag(&mut self) -> Result<u8, PostgresError> {
        Ok(self.header().await?.tag())
    }

    async fn skip_frame(&mut self) -> Result<(), PostgresError> {
        let length = frame_len(&self.header().await?)?;
        self.fill(length).await?;
        self.buffer.advance(length);
        Ok(())
    }

    async fn header(&mut self) -> Result<backend::Header, PostgresError> {
        self.fill(5).await?;
        let header = backend::Header::parse(&self.buffer)
            .map_err(malformed)?
            .ok_or(PostgresError::Closed)?;
        let length = frame_len(&header)? as u64;
        if length > MAX_SETUP_FRAME {
            return Err(PostgresError::Frame {
                tag: header.tag(),
                length,
                limit: MAX_SETUP_FRAME,
            });
        }
        Ok(header)
    }

    async fn fill(&mut self, length: usize) -> Result<(), PostgresError> {
        while self.buffer.len() < length {
            if self.transport.read_buf(&mut self.buffer).await.map_err(reading)? == 0 {
                return Err(PostgresError::Closed);
            }
        }
        Ok(())
    }
}

/// The whole frame's length: the header's counts itself and not the tag.
fn frame_len(header: &backend::Header) -> Result<usize, PostgresError> {
    usize::try_from(header.len())
        .map(|length| length + 1)
        .map_err(|_| PostgresError::Frame {
            tag: header.tag(),
            length: u64::MAX,
            limit: MAX_SETUP_FRAME,
        })
}

async fn open(dsn: &PostgresDsn, endpoint: &Endpoint, tls: &Arc<ClientConfig>) -> Result<Transport, PostgresError> {
    let address = endpoint.address();
    let connect = |source| PostgresError::Connect {
        address: address.clone(),
        source,
    };
    let host = match &endpoint.host {
        Host::Unix(folder) => {
            let socket = folder.join(format!(".s.PGSQL.{}", endpoint.port));
            return Transport::unix(&socket).await.map_err(connect);
        }
        Host::Tcp(host) => host,
    };
    let keepalive_idle = dsn.config.get_keepalives_idle().min(Duration::from_secs(60));
    let plain = || Transport::tcp(host, endpoint.port, keepalive_idle);
    let mut stream = plain().await.map_err(connect)?;
    let mode = dsn.ssl.mode;
    if mode == SslMode::Disable {
        return Ok(Transport::Tcp(stream));
    }
    let mut request = BytesMut::new();
    frontend::ssl_request(&mut request);
    stream.write_all(&request).await.map_err(connect)?;
    if stream.read_u8().await.map_err(connect)? != b'S' {
        if mode == SslMode::Prefer {
            return Ok(Transport::Tcp(stream));
        }
        return Err(PostgresError::TlsRefused {
            address,
            mode: mode.as_str(),
        });
    }
    let name = ServerName::try_from(host.clone())
        .map_err(|error| connect(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
    match TlsConnector::from(Arc::clone(tls)).connect(name, stream).await {
        Ok(stream) => Ok(Transport::Tls(Box::new(stream))),
        // As libpq does: prefer goes on without TLS when TLS fails.
        Err(_) if mode == SslMode::Prefer => plain().await.map(Transport::Tcp).map_err(connect),
        Err(source) => Err(PostgresError::Tls { address, source }),
    }
}

pub(super) fn server_error(body: &backend::ErrorResponseBody) -> Result<ServerError, PostgresError> {
    server_fields(body.fields())
}

/// Parses an error or notice that was framed elsewhere. `frame` holds the whole message with tag and length.
pub(super) fn parse_report(frame: Bytes) -> Result<ServerError, PostgresError> {
    match Message::parse(&mut BytesMut::from(frame)).map_err(malformed)? {
        Some(Message::ErrorResponse(body)) => server_fields(body.fields()),
        Some(Message::NoticeResponse(body)) => server_fields(body.fields()),
        _ => Err(PostgresError::Unexpected {
            found: "another message".to_owned(),
            expected: "an error or notice",
        }),
    }
}

fn server_fields(mut fields: backend::ErrorFields<'_>) -> Result<ServerError, PostgresError> {
    let mut error = ServerError {
        severity: String::new(),
        code: String::new(),
        message: String::new(),
        detail: None,
        hint: None,
    };
    while let Some(field) = fallible_iterator::FallibleIterator::next(&mut fields).map_err(malformed)? {
        let text = String::from_utf8_lossy(field.value_bytes()).into_owned();
        match field.type_() {
            // V is never translated, S is.
            b'V' => error.severity = text,
            b'S' if error.severity.is_empty() => error.severity = text,
            b'C' => error.code = text,
            b'M' => error.message = text,
            b'D' => error.detail = Some(text),
            b'H' => error.hint = Some(text),
            _ => {}
        }
    }
    Ok(error)
}

pub(super) fn show_notice(notice: &ServerError) {
    tracing::info!(
        severity = notice.severity,
        code = notice.code,
        message = notice.message,
        "notice of the server"
    );
}

fn text_row(body: &DataRowBody) -> Result<TextRow, PostgresError> {
    let mut ranges = body.ranges();
    let mut row = TextRow::new();
    while let Some(range) = fallible_iterator::FallibleIterator::next(&mut ranges).map_err(malformed)? {
        let cell = range.and_then(|range| body.buffer().get(range));
        row.push(cell.map(|bytes| String::from_utf8_lossy(bytes).into_owned()));
    }
    Ok(row)
}

/// TLS reports a peer that breaks it as invalid data; all else is a connection that broke.
pub(super) fn reading(source: io::Error) -> PostgresError {
    match source.kind() {
        io::ErrorKind::InvalidData => malformed(source),
        _ => PostgresError::Io {
            action: "read from PostgreSQL",
            source,
        },
    }
}

/// Bytes that break the protocol are no broken connection: trying again would meet them again.
fn malformed(source: io::Error) -> PostgresError {
    PostgresError::Malformed { source }
}

fn writing(source: io::Error) -> PostgresError {
    PostgresError::Io {
        action: "write to PostgreSQL",
        source,
    }
}

fn unexpected(message: &Message, expected: &'static str) -> PostgresError {
    let found = match message {
        Message::CopyData(_) | Message::CopyDone => "copy data",
        Message::DataRow(_) | Message::RowDescription(_) => "a row",
        Message::ReadyForQuery(_) => "the end of a command",
        _ => "another message",
    };
    PostgresError::Unexpected {
        found: found.to_owned(),
        expected,
    }
}
