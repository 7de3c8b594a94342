//! The bytes' way to the server: TCP, a unix socket, or TLS over TCP.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::sleep;
use tokio_rustls::client::TlsStream;

use crate::pause::Pause;

/// A connected socket. An enum and not a trait object: it is read in the hot path.
#[derive(Debug)]
pub(super) enum Transport {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream, Pause),
}

/// How long received data gathers. Not longer: so much as comes meanwhile should stay small against the buffers.
const GATHER: Duration = Duration::from_millis(1);
/// The same over a unix socket: its small buffer, which the messages' overhead fills as well as they do, would else be full
/// and the server wait for us.
const UNIX_GATHER: Duration = Duration::from_micros(250);

impl Transport {
    pub(super) async fn tcp(host: &str, port: u16, keepalive_idle: Duration) -> io::Result<TcpStream> {
        let stream = TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        // The server's own keep-alives show a dead server; TCP's show a dead path to the kernel while we don't read.
        SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(keepalive_idle))?;
        Ok(stream)
    }

    pub(super) async fn unix(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket).await?;
        Ok(Self::Unix(stream, Pause::new()?))
    }

    /// Lets received data gather in a backlog, which makes the server faster: it wakes us at each message otherwise, and that
    /// costs it more than to send it. Cancel safe.
    pub(super) async fn gather(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(_) | Self::Tls(_) => {
                sleep(GATHER).await;
                Ok(())
            }
            Self::Unix(_, pause) => pause.wait(UNIX_GATHER).await,
        }
    }

    pub(super) fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }
}

impl AsyncRead for Transport {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Unix(stream, _) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Unix(stream, _) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
            Self::Unix(stream, _) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream, _) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
