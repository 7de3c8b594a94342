//! A proxy in front of a broker that can leave all brokers out of what is said of the cluster, as a cluster does for a
//! moment when all of it has just come back.
//!
//! Kafka documentation, "Protocol": of each frame the length, in a request then the API's key and version and the correlation
//! id, in an answer that id; from version 9 on a metadata answer goes on with tagged fields, the throttle time and a compact
//! array of brokers.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

const METADATA: i16 = 3;
/// The first version with compact arrays.
const COMPACT: i16 = 9;

/// Lasts as long as the process: its threads end with their connections.
pub struct Nameless {
    address: String,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    target: Mutex<Option<String>>,
    names_none: AtomicBool,
    /// Answers of which brokers were left out.
    emptied: AtomicUsize,
    near: Mutex<Vec<TcpStream>>,
}

impl Nameless {
    /// To a server that is not up yet.
    pub fn new() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let shared = Arc::new(Shared::default());
        thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                for near in listener.incoming().flatten() {
                    let shared = Arc::clone(&shared);
                    // A connection that fails is the client's to see.
                    thread::spawn(move || join(&near, &shared).ok());
                }
            }
        });
        Self { address, shared }
    }

    pub fn forward_to(&self, target: &str) {
        *lock(&self.shared.target) = Some(target.to_owned());
    }

    /// Where clients connect to.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// From now on no broker is named; who is connected has to connect again.
    pub fn name_none(&self) {
        self.shared.names_none.store(true, Ordering::SeqCst);
        for near in lock(&self.shared.near).drain(..) {
            let _ = near.shutdown(Shutdown::Both);
        }
    }

    /// The brokers are named again.
    pub fn name_all(&self) {
        self.shared.names_none.store(false, Ordering::SeqCst);
    }

    /// How often clients were told of topics and of no broker.
    pub fn emptied(&self) -> usize {
        self.shared.emptied.load(Ordering::SeqCst)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn join(near: &TcpStream, shared: &Arc<Shared>) -> io::Result<()> {
    let target = lock(&shared.target).clone();
    let far = TcpStream::connect(target.ok_or(io::ErrorKind::NotConnected)?)?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    lock(&shared.near).push(near.try_clone()?);
    // Version by correlation id, of requests for metadata that are not answered yet.
    let asked = Arc::new(Mutex::new(HashMap::new()));
    let back = thread::spawn({
        let (asked, shared) = (Arc::clone(&asked), Arc::clone(shared));
        let (far, near) = (far.try_clone()?, near.try_clone()?);
        move || {
            let _ = carry(&far, &near, |frame| {
                let version = lock(&asked).remove(&correlation(frame, 0)?)?;
                let names_none = shared.names_none.load(Ordering::SeqCst);
                let (emptied, topics) = (version >= COMPACT && names_none).then(|| without_brokers(frame))?;
                if topics {
                    shared.emptied.fetch_add(1, Ordering::SeqCst);
                }
                Some(emptied)
            });
        }
    });
    let _ = carry(near, &far, |frame| {
        let api = frame.get(..2)?.try_into().ok().map(i16::from_be_bytes)?;
        let version = frame.get(2..4)?.try_into().ok().map(i16::from_be_bytes)?;
        if api == METADATA {
            lock(&asked).insert(correlation(frame, 4)?, version);
        }
        None
    });
    let _ = back.join();
    Ok(())
}

/// Carries frames until one side ends; `change` may give another one in place of one.
fn carry(mut from: &TcpStream, mut to: &TcpStream, mut change: impl FnMut(&[u8]) -> Option<Vec<u8>>) -> io::Result<()> {
    let ended = loop {
        let mut length = [0; 4];
        if let Err(error) = from.read_exact(&mut length) {
            break Err(error);
        }
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        if let Err(error) = from.read_exact(&mut frame) {
            break Err(error);
        }
        let frame = change(&frame).unwrap_or(frame);
        let length = u32::try_from(frame.len()).expect("a frame").to_be_bytes();
        if let Err(error) = to.write_all(&[&length[..], &frame].concat()) {
            break Err(error);
        }
    };
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
    ended
}

fn correlation(frame: &[u8], at: usize) -> Option<[u8; 4]> {
    frame.get(at..at + 4)?.try_into().ok()
}

/// The same metadata answer with no broker in it, and whether it has topics.
fn without_brokers(frame: &[u8]) -> (Vec<u8>, bool) {
    // Correlation id, tagged fields, throttle time.
    let mut at = 4;
    skip_tags(frame, &mut at);
    at += 4;
    let head = at;
    for _ in 1..varint(frame, &mut at) {
        at += 4; // node id
        skip_text(frame, &mut at); // host
        at += 4; // port
        skip_text(frame, &mut at); // rack
        skip_tags(frame, &mut at);
    }
    let rest = at;
    skip_text(frame, &mut at); // cluster id
    at += 4; // controller id
    let topics = varint(frame, &mut at) > 1;
    ([&frame[..head], &[1], &frame[rest..]].concat(), topics)
}

fn varint(frame: &[u8], at: &mut usize) -> usize {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let byte = frame[*at];
        *at += 1;
        value |= usize::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

/// A compact text, or none: its length and one more.
fn skip_text(frame: &[u8], at: &mut usize) {
    let length = varint(frame, at);
    *at += length.saturating_sub(1);
}

fn skip_tags(frame: &[u8], at: &mut usize) {
    for _ in 0..varint(frame, at) {
        varint(frame, at);
        let length = varint(frame, at);
        *at += length;
    }
}
