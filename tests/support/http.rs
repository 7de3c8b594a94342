//! One request over HTTP, without a client's ways of its own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// An answer over HTTP.
#[derive(Debug)]
pub struct Answer {
    pub code: u16,
    pub body: String,
}

/// Asks for a path; None when nobody answers.
pub fn get(address: SocketAddr, path: &str) -> Option<Answer> {
    request(address, "GET", path, "")
}

/// Sends JSON, or nothing; None when nobody answers.
pub fn request(address: SocketAddr, method: &str, path: &str, json: &str) -> Option<Answer> {
    send(address, method, path, "application/json", json)
}

/// Sends a body of this type; None when nobody answers.
pub fn send(address: SocketAddr, method: &str, path: &str, content_type: &str, body: &str) -> Option<Answer> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    let length = body.len();
    // By HTTP/1.0 no answer comes in chunks.
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: test\r\nConnection: close\r\nContent-Type: {content_type}\r\nContent-Length: \
         {length}\r\n\r\n{body}"
    )
    .ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let code = head.split_whitespace().nth(1)?.parse().ok()?;
    let body = body.to_owned();
    Some(Answer { code, body })
}
