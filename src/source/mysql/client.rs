//! A connection: handshake, TLS, authentication, and statements with their rows as text.
//!
//! `mysql_common` has the handshake's packets and the authentication methods. The connection itself is ours, since the
//! client libraries give no packets: they expand compressed transactions without a bound, pass over those that do not
//! decompress, and tell nothing of the checksums. The one client serves the stream and the statements beside it, so that
//! both see the same TLS and the same rights.
//!
//! Protocol: MySQL source documentation, "Client/Server Protocol", page "Connection Phase".

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use mysql_common::auth::plugins::{AuthProc, ChallengeResponsePlugin, Context, Response};
use mysql_common::collations::CollationId;
use mysql_common::constants::CapabilityFlags;
use mysql_common::io::ParseBuf;
use mysql_common::packets::{AuthPlugin, AuthSwitchRequest, HandshakePacket, HandshakeResponse, SslRequest};
use mysql_common::proto::{MyDeserialize, MySerialize};
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{ServerName, SubjectPublicKeyInfoDer};
use secrecy::ExposeSecret;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use x509_cert::der::Decode;
use x509_cert::der::asn1::{AnyRef, UintRef};
use x509_cert::spki::SubjectPublicKeyInfoRef;

use crate::config::{MysqlDsn, MysqlHost, SslMode};
use crate::source::transport::Transport;
use crate::tls::is_tls_verdict;

use super::error::MysqlError;
use super::packet::{HEADER_BYTES, MAX_PAYLOAD, ServerError, TextRow, frame, length_encoded, payload_len, text_row};
use super::server::plain_version;

const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a statement may take: all of ours are small.
const QUERY_TIMEOUT: Duration = Duration::from_secs(60);
/// TCP's keep-alive shows a dead path to the kernel while we don't read.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// The largest event that a server can send.
const MAX_PACKET: u32 = 1 << 30;

const COM_QUERY: u8 = 0x03;
/// How a key in text begins.
const PEM: &[u8] = b"-----BEGIN";

/// A logged-in connection.
#[derive(Debug)]
pub(crate) struct Client {
    transport: Transport,
    /// Received and not yet read.
    buffer: BytesMut,
    sequence: u8,
    version: String,
    connection_id: u32,
}

/// The socket of a connection whose packets are now read elsewhere.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) transport: Transport,
    pub(super) buffer: BytesMut,
    /// The server's number for the connection, as in its process list.
    pub(super) connection_id: u32,
}

impl Client {
    /// Connects and logs in.
    ///
    /// # Errors
    /// Connection failures can heal; refusals cannot.
    pub(super) async fn connect(dsn: &MysqlDsn, host: &MysqlHost, tls: &Arc<ClientConfig>) -> Result<Self, MysqlError> {
        let given = dsn.connect_timeout.filter(|limit| !limit.is_zero());
        let limit = given.unwrap_or(DEFAULT_CONNECT_TIMEOUT);
        timeout(limit, Self::connect_unbounded(dsn, host, tls))
            .await
            .unwrap_or_else(|_| {
                Err(MysqlError::ConnectTimeout {
                    address: host.to_string(),
                    timeout: limit,
                })
            })
    }

    async fn connect_unbounded(dsn: &MysqlDsn, host: &MysqlHost, tls: &Arc<ClientConfig>) -> Result<Self, MysqlError> {
        let connecting = |source| MysqlError::Connect {
            address: host.to_string(),
            source,
        };
        let transport = match host {
            MysqlHost::Socket(socket) => Transport::unix(socket).await.map_err(connecting)?,
            MysqlHost::Tcp { name, port } => {
                Transport::Tcp(Transport::tcp(name, *port, KEEPALIVE_IDLE).await.map_err(connecting)?)
            }
        };
        let client = Self {
            transport,
            buffer: BytesMut::with_capacity(8 << 10),
            sequence: 0,
            version: String::new(),
            connection_id: 0,
        };
        client.log_in(dsn, host, tls).await
    }

    /// The server's version as it tells it, such as `8.4.3` or `10.11.6-MariaDB-log`.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    pub(super) fn is_tls(&self) -> bool {
        self.transport.is_tls()
    }

    async fn log_in(mut self, dsn: &MysqlDsn, host: &MysqlHost, tls: &Arc<ClientConfig>) -> Result<Self, MysqlError> {
        let greeting = self.packet("log in").await?;
        if let Some(error) = ServerError::parse(&greeting) {
            return Err(MysqlError::server("connect", error));
        }
        // Version 10 in the first byte; nothing older is spoken here, and the parser takes its length for granted.
        if greeting.first() != Some(&10) {
            return Err(malformed("a greeting of protocol version 10"));
        }
        if has_absurd_nonce(&greeting) {
            return Err(malformed("a nonce of a sound length"));
        }
        let greeting = HandshakePacket::deserialize((), &mut ParseBuf(&greeting))
            .map_err(|_| malformed("the server's greeting"))?
            .into_owned();
        self.version = plain_version(&greeting.server_version_str()).to_owned();
        self.connection_id = greeting.connection_id();
        let mut capabilities = CapabilityFlags::CLIENT_PROTOCOL_41
            | CapabilityFlags::CLIENT_SECURE_CONNECTION
            | CapabilityFlags::CLIENT_PLUGIN_AUTH
            | CapabilityFlags::CLIENT_LONG_PASSWORD
            | CapabilityFlags::CLIENT_LONG_FLAG
            | CapabilityFlags::CLIENT_TRANSACTIONS
            | (CapabilityFlags::CLIENT_CONNECT_ATTRS & greeting.capabilities())
            | (CapabilityFlags::CLIENT_PLUGIN_AUTH_LENENC_CLIENT_DATA & greeting.capabilities());
        if dsn.database.is_some() {
            capabilities |= CapabilityFlags::CLIENT_CONNECT_WITH_DB;
        }
        // A socket file is within this machine; over TCP the DSN's mode decides.
        let wanted = match host {
            MysqlHost::Tcp { name, .. } if dsn.ssl.mode != SslMode::Disable => Some(name),
            _ => None,
        };
        match (wanted, greeting.capabilities().contains(CapabilityFlags::CLIENT_SSL)) {
            (Some(name), true) => {
                capabilities |= CapabilityFlags::CLIENT_SSL;
                let failed = |source| MysqlError::Tls {
                    address: host.to_string(),
                    source,
                };
                self = self.encrypt(name, tls, capabilities, failed).await?;
            }
            (Some(_), false) if dsn.ssl.mode != SslMode::Prefer => {
                return Err(MysqlError::TlsRefused {
                    address: host.to_string(),
                    mode: dsn.ssl.mode.as_mysql_str(),
                });
            }
            _ => {}
        }
        match self.authenticate(dsn, host, &greeting, capabilities).await {
            Ok(()) => Ok(self),
            // In TLS 1.3 the server's word on our certificate comes after the handshake, with the first bytes read.
            Err(MysqlError::Io { source, .. }) if is_tls_verdict(&source) => Err(MysqlError::Tls {
                address: host.to_string(),
                source,
            }),
            Err(error) => Err(error),
        }
    }

    /// Asks for TLS and shakes hands.
    async fn encrypt(
        mut self,
        name: &str,
        tls: &Arc<ClientConfig>,
        capabilities: CapabilityFlags,
        failed: impl Fn(io::Error) -> MysqlError,
    ) -> Result<Self, MysqlError> {
        let mut request = Vec::new();
        // One byte there, as all collations had once.
        SslRequest::new(capabilities, MAX_PACKET, CollationId::UTF8MB4_GENERAL_CI as u8).serialize(&mut request);
        self.send(&request).await?;
        // What somebody put in behind the greeting must not be taken for the server's word under TLS.
        if !self.buffer.is_empty() {
            return Err(malformed("nothing before the TLS handshake"));
        }
        let Transport::Tcp(stream) = self.transport else {
            return Err(malformed("TLS over TCP"));
        };
        let name = ServerName::try_from(name.to_owned()).map_err(|error| failed(io::Error::other(error)))?;
        let shaking = TlsConnector::from(Arc::clone(tls)).connect(name, stream);
        let transport = Transport::Tls(Box::new(shaking.await.map_err(failed)?));
        Ok(Self { transport, ..self })
    }

    async fn authenticate(
        &mut self,
        dsn: &MysqlDsn,
        host: &MysqlHost,
        greeting: &HandshakePacket<'_>,
        capabilities: CapabilityFlags,
    ) -> Result<(), MysqlError> {
        let password = dsn.password.as_ref().map(|password| password.expose_secret());
        let mut login = Login {
            password: password.unwrap_or_default().as_bytes(),
            nonce: greeting.nonce(),
            tls: self.transport.is_tls(),
            verified: self.transport.is_tls() && matches!(dsn.ssl.mode, SslMode::VerifyCa | SslMode::VerifyFull),
            local: matches!(host, MysqlHost::Socket(_)),
        };
        let mut plugin = greeting
            .auth_plugin()
            .unwrap_or(AuthPlugin::MysqlNativePassword)
            .into_owned();
        // A server may name a method here that the user does not have; then it asks again.
        let (mut method, first) = match login.begin(&plugin) {
            Ok(begun) => begun,
            Err(_) => {
                plugin = AuthPlugin::MysqlNativePassword;
                login.begin(&plugin)?
            }
        };
        let attributes = [
            ("program_name", "tailpost"),
            ("_client_version", env!("CARGO_PKG_VERSION")),
        ];
        let attributes = attributes.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let response = HandshakeResponse::new(
            first.data(),
            (8, 0, 0),
            Some(dsn.user.as_bytes()),
            dsn.database.as_ref().map(|database| database.as_bytes()),
            Some(plugin),
            capabilities,
            capabilities
                .contains(CapabilityFlags::CLIENT_CONNECT_ATTRS)
                .then(|| attributes.into_iter().collect()),
            MAX_PACKET,
        );
        let mut out = Vec::new();
        response.serialize(&mut out);
        self.send(&out).await?;
        loop {
            let mut packet = self.packet("log in").await?;
            match packet.first() {
                Some(0x00) => return Ok(()),
                Some(0xFF) => return Err(MysqlError::server("log in", server_error(&packet))),
                Some(0xFE) => {
                    let request = AuthSwitchRequest::deserialize((), &mut ParseBuf(&packet))
                        .map_err(|_| malformed("a request for an authentication method"))?;
                    login.nonce = request.plugin_data().to_vec();
                    let (next, response) = login.begin(&request.auth_plugin())?;
                    method = next;
                    self.send(response.data().unwrap_or_default()).await?;
                }
                Some(0x01) => {
                    packet.advance(1);
                    if packet.starts_with(PEM) && !is_rsa_key(&packet) {
                        return Err(malformed("an RSA key to encrypt the password with"));
                    }
                    let response = method
                        .run(&login, &packet)
                        .map_err(|error| MysqlError::Authentication {
                            reason: error.to_string(),
                        })?;
                    if let Some(data) = response.data() {
                        self.send(data).await?;
                    }
                }
                _ => return Err(malformed("an answer to the log-in")),
            }
        }
    }

    /// Runs one statement and gives its rows.
    ///
    /// # Errors
    /// What the server says of it, or a connection that failed: then it is of no more use.
    pub(crate) async fn query(&mut self, action: &'static str, statement: &str) -> Result<Vec<TextRow>, MysqlError> {
        timeout(QUERY_TIMEOUT, self.query_unbounded(action, statement))
            .await
            .unwrap_or(Err(MysqlError::Silent { silence: QUERY_TIMEOUT }))
    }

    async fn query_unbounded(&mut self, action: &'static str, statement: &str) -> Result<Vec<TextRow>, MysqlError> {
        let mut command = vec![COM_QUERY];
        command.extend_from_slice(statement.as_bytes());
        self.command(&command).await?;
        let first = self.packet(action).await?;
        let columns = match first.first() {
            Some(0xFF) => return Err(MysqlError::server(action, server_error(&first))),
            Some(0x00) => return Ok(Vec::new()),
            _ => length_encoded(&mut first.as_ref()).ok_or_else(|| malformed("a result"))?,
        };
        // Descriptions of the columns, which the statements know already, and the packet that ends them.
        for _ in 0..=columns {
            self.packet(action).await?;
        }
        let mut rows = Vec::new();
        loop {
            let packet = self.packet(action).await?;
            match packet.first() {
                Some(0xFF) => return Err(MysqlError::server(action, server_error(&packet))),
                Some(0xFE) if packet.len() < 9 => return Ok(rows),
                _ => rows.push(text_row(&packet, columns).ok_or_else(|| malformed("a row"))?),
            }
        }
    }

    /// Runs a command that is answered by OK or an error.
    pub(super) async fn simple_command(&mut self, action: &'static str, command: &[u8]) -> Result<(), MysqlError> {
        let answered = async {
            self.command(command).await?;
            let packet = self.packet(action).await?;
            match packet.first() {
                Some(0x00) => Ok(()),
                Some(0xFF) => Err(MysqlError::server(action, server_error(&packet))),
                _ => Err(malformed("OK or an error")),
            }
        };
        timeout(QUERY_TIMEOUT, answered)
            .await
            .unwrap_or(Err(MysqlError::Silent { silence: QUERY_TIMEOUT }))
    }

    /// Waits for the connection's end: a server says nothing between two statements, but why it goes. Cancel safe.
    pub(super) async fn ended(&mut self) -> MysqlError {
        let action = "keep the connection";
        match self.packet(action).await {
            Ok(packet) if packet.first() == Some(&0xFF) => MysqlError::server(action, server_error(&packet)),
            Ok(_) => malformed("nothing between two statements"),
            Err(error) => error,
        }
    }

    /// Sends a command whose answer is a stream of packets, and gives up the socket.
    pub(super) async fn start(mut self, command: &[u8]) -> Result<Started, MysqlError> {
        self.command(command).await?;
        Ok(Started {
            transport: self.transport,
            buffer: self.buffer,
            connection_id: self.connection_id,
        })
    }

    async fn command(&mut self, payload: &[u8]) -> Result<(), MysqlError> {
        self.sequence = 0;
        self.send(payload).await
    }

    async fn send(&mut self, payload: &[u8]) -> Result<(), MysqlError> {
        let mut out = Vec::with_capacity(payload.len() + HEADER_BYTES);
        self.sequence = frame(payload, self.sequence, &mut out);
        self.transport.write_all(&out).await.map_err(writing)?;
        self.transport.flush().await.map_err(writing)
    }

    /// The next packet's payload. Outside a stream none fills its packet.
    async fn packet(&mut self, action: &'static str) -> Result<Bytes, MysqlError> {
        loop {
            if let Some(length) = payload_len(&self.buffer) {
                if length == MAX_PAYLOAD {
                    return Err(malformed("a packet under 16 MiB"));
                }
                if self.buffer.len() >= HEADER_BYTES + length {
                    self.sequence = self.buffer.get(3).map_or(0, |number| number.wrapping_add(1));
                    self.buffer.advance(HEADER_BYTES);
                    return Ok(self.buffer.split_to(length).freeze());
                }
            }
            match self.transport.read_buf(&mut self.buffer).await {
                Ok(0) => return Err(MysqlError::Closed),
                Ok(_) => {}
                Err(source) => return Err(MysqlError::Io { action, source }),
            }
        }
    }
}

/// What an authentication method may know.
#[derive(Debug)]
struct Login<'a> {
    password: &'a [u8],
    /// What the server sent for this log-in only.
    nonce: Vec<u8>,
    tls: bool,
    /// Over TLS with a certificate that was looked at.
    verified: bool,
    local: bool,
}

impl Login<'_> {
    /// Sets a method up and gives its first answer.
    fn begin(&self, plugin: &AuthPlugin<'_>) -> Result<(AuthProc, Response), MysqlError> {
        let name = || String::from_utf8_lossy(plugin.as_bytes()).into_owned();
        match plugin {
            // Any server could ask for it: only one that showed who it is gets it.
            AuthPlugin::MysqlClearPassword if !self.verified && !self.local => {
                return Err(MysqlError::AuthenticationMethod {
                    method: format!("{} without ssl-mode=verify-ca or verify-identity", name()),
                });
            }
            AuthPlugin::MysqlOldPassword => return Err(MysqlError::AuthenticationMethod { method: name() }),
            _ => {}
        }
        let refused = |_| MysqlError::AuthenticationMethod { method: name() };
        let mut method = plugin.init().map_err(refused)?;
        let failed = |error: mysql_common::auth::plugins::Error| MysqlError::Authentication {
            reason: error.to_string(),
        };
        let first = method.run(self, &self.nonce).map_err(failed)?;
        Ok((method, first))
    }
}

impl Context for &Login<'_> {
    fn pass(&self) -> &[u8] {
        self.password
    }

    fn is_ipc_transport(&self) -> bool {
        self.local
    }

    fn is_tls_transport(&self) -> bool {
        self.tls
    }

    fn scramble(&self) -> &[u8] {
        &self.nonce
    }

    fn server_key_pem(&self) -> Option<&[u8]> {
        None
    }
}

/// Whether this is an RSA key in PEM: the method that encrypts with it takes its shape for granted.
fn is_rsa_key(pem: &[u8]) -> bool {
    let Ok(key) = SubjectPublicKeyInfoDer::from_pem_slice(pem) else {
        return false;
    };
    let Ok(key) = SubjectPublicKeyInfoRef::from_der(&key) else {
        return false;
    };
    let numbers = key.subject_public_key.as_bytes().and_then(|bytes| {
        let numbers = AnyRef::from_der(bytes).ok()?;
        numbers
            .sequence(|reader| Ok((UintRef::decode(reader)?, UintRef::decode(reader)?)))
            .ok()
    });
    numbers.is_some_and(|(modulus, _)| modulus.as_bytes().len() >= 64)
}

/// Whether the greeting's length of the nonce is one that no server sends, and that the parser does not expect: a signed byte
/// below zero.
fn has_absurd_nonce(greeting: &[u8]) -> bool {
    // Behind the version, which a zero ends: connection id, 8 bytes of nonce, filler, capabilities, collation, status,
    // capabilities.
    let version_end = memchr::memchr(0, greeting).unwrap_or(greeting.len());
    greeting.get(version_end + 1 + 20).is_some_and(|length| *length >= 0x80)
}

fn server_error(packet: &Bytes) -> ServerError {
    ServerError::parse(packet).unwrap_or_else(|| ServerError {
        code: 0,
        state: String::new(),
        message: "an error packet that is cut short".to_owned(),
    })
}

fn malformed(expected: &'static str) -> MysqlError {
    MysqlError::Malformed { expected }
}

fn writing(source: io::Error) -> MysqlError {
    MysqlError::Io {
        action: "send to the server",
        source,
    }
}
