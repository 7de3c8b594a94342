//! An HTTP server of the test's own, which does to each request what the test says, and keeps what it was sent.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use super::{DEADLINE, eventually};

/// What came in.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    pub path: String,
    /// Names in lower case; values that repeat are joined by a comma.
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a body of text")
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

/// What is done to a request.
#[derive(Debug, Clone)]
pub enum Answer {
    Status(u16),
    /// With these header lines, and this body.
    Full(u16, String, String),
    /// The connection is closed without a word.
    Cut,
    /// A status, and half of the body that was promised.
    Broken(u16),
    /// Nothing, until [`Target::let_go`].
    Hold,
}

type Behaviour = dyn Fn(&Request, usize) -> Answer + Send + Sync;

/// See the module's text.
pub struct Target {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    behaviour: Mutex<Arc<Behaviour>>,
    requests: Mutex<Vec<Request>>,
    held: Mutex<bool>,
    changed: Condvar,
    closed: AtomicBool,
}

impl Target {
    /// `behaviour` is given each request, and how many came before it.
    pub fn new(behaviour: impl Fn(&Request, usize) -> Answer + Send + Sync + 'static) -> Self {
        Self::at(SocketAddr::from(([127, 0, 0, 1], 0)), behaviour)
    }

    /// At an address where nobody listens.
    pub fn at(address: SocketAddr, behaviour: impl Fn(&Request, usize) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(address).expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            behaviour: Mutex::new(Arc::new(behaviour)),
            requests: Mutex::default(),
            held: Mutex::new(true),
            changed: Condvar::new(),
            closed: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if accepting.closed.load(Ordering::Acquire) {
                    return;
                }
                let shared = Arc::clone(&accepting);
                thread::spawn(move || while serve(&stream, &shared).is_some() {});
            }
        });
        Self { address, shared }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Does something else from now on.
    pub fn behave(&self, behaviour: impl Fn(&Request, usize) -> Answer + Send + Sync + 'static) {
        *self.shared.behaviour.lock().unwrap() = Arc::new(behaviour);
    }

    /// Answers 200 to what is held.
    pub fn let_go(&self) {
        *self.shared.held.lock().unwrap() = false;
        self.shared.changed.notify_all();
    }

    /// All requests so far, in the order in which they came.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// Waits until so many came.
    pub fn wait(&self, count: usize) -> Vec<Request> {
        eventually(DEADLINE, &format!("{count} requests"), || {
            self.shared.requests.lock().unwrap().len() >= count
        });
        self.requests()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.let_go();
        // So that it looks.
        let _ = TcpStream::connect(self.address);
    }
}

/// One request. None: the connection is over.
fn serve(mut stream: &TcpStream, shared: &Shared) -> Option<()> {
    let request = read(stream)?;
    let count = {
        let mut requests = shared.requests.lock().unwrap();
        requests.push(request.clone());
        requests.len() - 1
    };
    let behaviour = Arc::clone(&shared.behaviour.lock().unwrap());
    let answer = behaviour(&request, count);
    let (code, headers, body, promised) = match answer {
        Answer::Status(code) => (code, String::new(), String::new(), 0),
        Answer::Full(code, headers, body) => {
            let length = body.len();
            (code, headers, body, length)
        }
        Answer::Broken(code) => (code, String::new(), "half".to_owned(), 100),
        Answer::Hold => {
            let held = shared.held.lock().unwrap();
            drop(shared.changed.wait_while(held, |held| *held).unwrap());
            (200, String::new(), String::new(), 0)
        }
        Answer::Cut => {
            let _ = stream.shutdown(Shutdown::Both);
            return None;
        }
    };
    let head = format!("HTTP/1.1 {code} Some Reason\r\ncontent-length: {promised}\r\n{headers}\r\n{body}");
    stream.write_all(head.as_bytes()).ok()?;
    if promised > body.len() {
        let _ = stream.shutdown(Shutdown::Both);
        return None;
    }
    Some(())
}

fn read(stream: &TcpStream) -> Option<Request> {
    // Nothing is read ahead: a client sends its next request behind the answer.
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers: BTreeMap<String, String> = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        let value = value.trim();
        headers
            .entry(name.to_ascii_lowercase())
            .and_modify(|before| {
                before.push(',');
                before.push_str(value);
            })
            .or_insert_with(|| value.to_owned());
    }
    let length: usize = headers
        .get("content-length")
        .map_or(0, |length| length.parse().expect("a length"));
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request {
        method,
        path,
        headers,
        body,
    })
}
