//! A proxy in front of a broker that changes some answers to what brokers do say at times, and a test cannot make them say:
//! no broker is named, as when all of a cluster has just come back; no partition has a leader, as while one is being chosen;
//! a partition ends early, as a new leader believes until its followers have asked; a batch is refused and the one behind it
//! is taken, as by a leader that opens the partition in between.
//!
//! Kafka documentation, "Protocol": of each frame the length, in a request then the API's key and version and the correlation
//! id, in an answer that id; from the first flexible version on it goes on with tagged fields, the throttle time, and the
//! API's own fields.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

const PRODUCE: i16 = 0;
const FETCH: i16 = 1;
const METADATA: i16 = 3;
/// The first flexible versions.
const FLEXIBLE_PRODUCE: i16 = 9;
const FLEXIBLE_FETCH: i16 = 12;
const FLEXIBLE_METADATA: i16 = 9;
/// Topics are named by an id, in place of their name and beside it.
const FETCH_BY_ID: i16 = 13;
const METADATA_WITH_ID: i16 = 10;
const LEADER_NOT_AVAILABLE: i16 = 5;
const NOT_LEADER_OR_FOLLOWER: i16 = 6;

/// Lasts as long as the process: its threads end with their connections.
pub struct BrokerProxy {
    address: String,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    target: Mutex<Option<String>>,
    names_none: AtomicBool,
    leads_none: AtomicBool,
    ends_early: AtomicBool,
    /// The topic whose next batch is refused.
    refuses_first: Mutex<Option<String>>,
    /// The correlation id of that batch, which is answered with the one behind it.
    refused: Mutex<Option<(String, [u8; 4])>>,
    /// Answers that were changed.
    changed: AtomicUsize,
    near: Mutex<Vec<TcpStream>>,
}

impl BrokerProxy {
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

    /// Whether no partition has a leader.
    pub fn lead_none(&self, leads_none: bool) {
        self.shared.leads_none.store(leads_none, Ordering::SeqCst);
    }

    /// The next partition that is read from where it begins ends there.
    pub fn end_early(&self) {
        self.shared.ends_early.store(true, Ordering::SeqCst);
    }

    /// The next batch for this topic, of one partition, does not reach the broker, and is refused once the one behind it is
    /// written.
    pub fn refuse_first(&self, topic: &str) {
        *lock(&self.shared.refuses_first) = Some(topic.to_owned());
    }

    /// How many answers were changed.
    pub fn changed(&self) -> usize {
        self.shared.changed.load(Ordering::SeqCst)
    }
}

impl Shared {
    /// The answers in another one's place.
    fn change(&self, api: i16, version: i16, frame: &[u8]) -> Vec<Vec<u8>> {
        let mut refusal = None;
        let mut answer = Answer {
            bytes: frame.to_vec(),
            at: 0,
        };
        let is_changed = match api {
            METADATA if version >= FLEXIBLE_METADATA => {
                let without_brokers = self.names_none.load(Ordering::SeqCst) && answer.without_brokers();
                let leaderless = self.leads_none.load(Ordering::SeqCst) && answer.leaderless(version);
                without_brokers || leaderless
            }
            FETCH if version >= FLEXIBLE_FETCH && self.ends_early.load(Ordering::SeqCst) => {
                let is_changed = answer.ends_early(version);
                self.ends_early.fetch_and(!is_changed, Ordering::SeqCst);
                is_changed
            }
            PRODUCE if version >= FLEXIBLE_PRODUCE => {
                let refused = lock(&self.refused).take_if(|(topic, _)| names(frame, topic));
                refusal = refused.map(|(_, correlation)| answer.refusing(correlation));
                refusal.is_some()
            }
            _ => false,
        };
        self.changed.fetch_add(usize::from(is_changed), Ordering::SeqCst);
        refusal.into_iter().chain([answer.bytes]).collect()
    }

    /// Whether this request is kept from the broker.
    fn withholds(&self, api: i16, correlation: [u8; 4], frame: &[u8]) -> bool {
        let topic = match api {
            PRODUCE => lock(&self.refuses_first).take_if(|topic| names(frame, topic)),
            _ => None,
        };
        let withholds = topic.is_some();
        if let Some(topic) = topic {
            *lock(&self.refused) = Some((topic, correlation));
        }
        withholds
    }
}

fn names(frame: &[u8], topic: &str) -> bool {
    frame.windows(topic.len()).any(|bytes| bytes == topic.as_bytes())
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
    // API and version by correlation id, of requests that are not answered yet.
    let asked = Arc::new(Mutex::new(HashMap::new()));
    let back = thread::spawn({
        let (asked, shared) = (Arc::clone(&asked), Arc::clone(shared));
        let (far, near) = (far.try_clone()?, near.try_clone()?);
        move || {
            let _ = carry(&far, &near, |frame| {
                let (api, version) = lock(&asked).remove(&correlation(frame, 0)?)?;
                Some(shared.change(api, version, frame))
            });
        }
    });
    let _ = carry(near, &far, |frame| {
        let api = frame.get(..2)?.try_into().ok().map(i16::from_be_bytes)?;
        let version = frame.get(2..4)?.try_into().ok().map(i16::from_be_bytes)?;
        let correlation = correlation(frame, 4)?;
        if shared.withholds(api, correlation, frame) {
            return Some(Vec::new());
        }
        if [PRODUCE, FETCH, METADATA].contains(&api) {
            lock(&asked).insert(correlation, (api, version));
        }
        None
    });
    let _ = back.join();
    Ok(())
}

/// Carries frames until one side ends; `change` may give others in place of one, or none.
fn carry(
    mut from: &TcpStream,
    mut to: &TcpStream,
    mut change: impl FnMut(&[u8]) -> Option<Vec<Vec<u8>>>,
) -> io::Result<()> {
    let ended = loop {
        let mut length = [0; 4];
        if let Err(error) = from.read_exact(&mut length) {
            break Err(error);
        }
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        if let Err(error) = from.read_exact(&mut frame) {
            break Err(error);
        }
        let frames = change(&frame).unwrap_or_else(|| vec![frame]);
        let length = |frame: &Vec<u8>| u32::try_from(frame.len()).expect("a frame").to_be_bytes();
        let bytes: Vec<u8> = frames
            .iter()
            .flat_map(|frame| [&length(frame)[..], frame].concat())
            .collect();
        if let Err(error) = to.write_all(&bytes) {
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

/// An answer, and how far it is read.
struct Answer {
    bytes: Vec<u8>,
    at: usize,
}

impl Answer {
    /// Names no broker. Whether it speaks of topics: a client asks for brokers alone, too.
    fn without_brokers(&mut self) -> bool {
        self.head();
        let begin = self.at;
        self.brokers();
        self.bytes.splice(begin..self.at, [1]);
        self.at = begin + 1;
        self.cluster();
        self.varint() > 1
    }

    /// Takes each partition's leader away.
    fn leaderless(&mut self, version: i16) -> bool {
        self.at = 0;
        self.head();
        self.brokers();
        self.cluster();
        let topics = self.count();
        for _ in 0..topics {
            self.at += 2; // error
            self.text(); // name
            self.at += if version >= METADATA_WITH_ID { 16 } else { 0 };
            self.at += 1; // is internal
            for _ in 0..self.count() {
                self.put(&LEADER_NOT_AVAILABLE.to_be_bytes());
                self.at += 4; // index
                self.put(&(-1_i32).to_be_bytes());
                self.at += 4; // the leader's epoch
                for _ in ["replicas", "in sync", "offline"] {
                    self.at += 4 * self.count();
                }
                self.tags();
            }
            self.at += 4; // what is allowed
            self.tags();
        }
        topics > 0
    }

    /// Lets the first partition that has records end where it begins.
    fn ends_early(&mut self, version: i16) -> bool {
        self.head();
        self.at += 2 + 4; // error, session
        for _ in 0..self.count() {
            match version >= FETCH_BY_ID {
                true => self.at += 16,
                false => self.text(),
            }
            for _ in 0..self.count() {
                self.at += 4 + 2; // index, error
                let ends = self.at;
                self.at += 8 + 8; // the end, and the end for readers of what is committed
                let begin: [u8; 8] = self.bytes[self.at..self.at + 8].try_into().expect("8 bytes");
                self.at += 8;
                for _ in 0..self.count() {
                    self.at += 8 + 8; // an aborted transaction
                    self.tags();
                }
                self.at += 4; // another replica
                let records = self.at;
                let length = self.count();
                self.at += length;
                if length > 0 {
                    self.bytes.splice(records..self.at, [1]);
                    self.at = ends;
                    self.put(&begin);
                    self.put(&begin);
                    return true;
                }
                self.tags();
            }
            self.tags();
        }
        false
    }

    /// As an answer to another batch of the same partition, which is refused.
    fn refusing(&self, correlation: [u8; 4]) -> Vec<u8> {
        let mut refusal = Self {
            bytes: self.bytes.clone(),
            at: 0,
        };
        refusal.put(&correlation);
        refusal.tags();
        assert_eq!(refusal.count(), 1, "topics");
        refusal.text(); // name
        assert_eq!(refusal.count(), 1, "partitions");
        refusal.at += 4; // index
        refusal.put(&NOT_LEADER_OR_FOLLOWER.to_be_bytes());
        refusal.put(&(-1_i64).to_be_bytes()); // where it begins
        refusal.bytes
    }

    /// Correlation id, tagged fields, throttle time.
    fn head(&mut self) {
        self.at += 4;
        self.tags();
        self.at += 4;
    }

    fn brokers(&mut self) {
        for _ in 0..self.count() {
            self.at += 4; // node id
            self.text(); // host
            self.at += 4; // port
            self.text(); // rack
            self.tags();
        }
    }

    /// The cluster's id, and its controller's.
    fn cluster(&mut self) {
        self.text();
        self.at += 4;
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    /// A compact text, or none.
    fn text(&mut self) {
        self.at += self.count();
    }

    fn tags(&mut self) {
        for _ in 0..self.varint() {
            self.varint();
            self.at += self.varint();
        }
    }

    /// Of a compact array, text or bytes: one less than is written, where that is not 0 for none.
    fn count(&mut self) -> usize {
        self.varint().saturating_sub(1)
    }

    fn varint(&mut self) -> usize {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = self.bytes[self.at];
            self.at += 1;
            value |= usize::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        value
    }
}
