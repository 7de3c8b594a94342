//! A TCP proxy, which can cut its connections, leave them half open, or be slow.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Stands between a client and a server on this machine. Closed at the end, with all its connections.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    target: Option<SocketAddr>,
    mode: Mode,
    links: Vec<Arc<Link>>,
    ended: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Open,
    Cut,
    Silent,
    Slow(Duration),
}

/// One client's connection, and the server's where there is one.
struct Link {
    near: TcpStream,
    far: Mutex<Option<TcpStream>>,
    /// The server's side is gone and the client was not told.
    half: Mutex<bool>,
}

impl Proxy {
    /// To a server at this address.
    pub fn start(target: &str) -> Self {
        let proxy = Self::new();
        proxy.forward_to(target);
        proxy
    }

    /// To a server that is not up yet; until [`Proxy::forward_to`] its clients wait.
    pub fn new() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                target: None,
                mode: Mode::Open,
                links: Vec::new(),
                ended: false,
            }),
            changed: Condvar::new(),
        });
        let accepting = thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared)
        });
        Self {
            address,
            shared,
            accepting: Some(accepting),
        }
    }

    pub fn forward_to(&self, target: &str) {
        let target = target.parse().expect("an address");
        self.shared.state().target = Some(target);
        self.shared.changed.notify_all();
    }

    /// Where clients connect to.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Ends all connections, and each new one at once.
    pub fn cut(&self) {
        self.turn(Mode::Cut);
        for link in std::mem::take(&mut self.shared.state().links) {
            link.end();
        }
    }

    /// The server loses its connections, and the clients' stay open in silence: these for good, new ones until
    /// [`Proxy::heal`].
    pub fn half_open(&self) {
        self.turn(Mode::Silent);
        for link in &self.shared.state().links {
            link.end_far();
        }
    }

    /// Holds up whatever is read at a time, 64 KiB at most, for so long.
    pub fn slow(&self, delay: Duration) {
        self.turn(Mode::Slow(delay));
    }

    /// Lets everything through again.
    pub fn heal(&self) {
        self.turn(Mode::Open);
    }

    fn turn(&self, mode: Mode) {
        self.shared.state().mode = mode;
        self.shared.changed.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.state().ended = true;
        self.cut();
        // The one that accepts looks up for another connection.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while nothing goes through. Gives where to and how slowly, or None when the connection is to end.
    fn way(&self) -> Option<(SocketAddr, Duration)> {
        let mut state = self.state();
        loop {
            match (state.mode, state.target) {
                (Mode::Cut, _) => return None,
                (Mode::Open, Some(target)) => return Some((target, Duration::ZERO)),
                (Mode::Slow(delay), Some(target)) => return Some((target, delay)),
                (Mode::Silent, _) | (_, None) => {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

impl Link {
    fn end(&self) {
        let _ = self.near.shutdown(Shutdown::Both);
        if let Some(far) = &*self.far.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = far.shutdown(Shutdown::Both);
        }
    }

    fn end_far(&self) {
        *self.half.lock().unwrap_or_else(PoisonError::into_inner) = true;
        if let Some(far) = &*self.far.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = far.shutdown(Shutdown::Both);
        }
    }

    fn is_half(&self) -> bool {
        *self.half.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for near in listener.incoming() {
        if shared.state().ended {
            return;
        }
        let Ok(near) = near else { continue };
        let link = Arc::new(Link {
            near,
            far: Mutex::new(None),
            half: Mutex::new(false),
        });
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            // A connection that fails is the client's to see; so is a server that is not there.
            let _ = join(&link, &shared);
            if !link.is_half() {
                link.end();
            }
        });
    }
}

/// Connects to the server and carries bytes both ways until one side ends.
fn join(link: &Arc<Link>, shared: &Arc<Shared>) -> std::io::Result<()> {
    let Some((target, _)) = shared.way() else { return Ok(()) };
    let far = TcpStream::connect(target)?;
    far.set_nodelay(true)?;
    link.near.set_nodelay(true)?;
    *link.far.lock().unwrap_or_else(PoisonError::into_inner) = Some(far.try_clone()?);
    {
        let mut state = shared.state();
        if state.mode == Mode::Cut {
            return Ok(());
        }
        if state.mode == Mode::Silent {
            link.end_far();
        }
        state.links.push(Arc::clone(link));
    }
    let back = thread::spawn({
        let (shared, link, far, near) = (
            Arc::clone(shared),
            Arc::clone(link),
            far.try_clone()?,
            link.near.try_clone()?,
        );
        move || carry(far, near, &link, &shared)
    });
    carry(link.near.try_clone()?, far, link, shared);
    let _ = back.join();
    shared
        .state()
        .links
        .retain(|other| !Arc::ptr_eq(other, link) || link.is_half());
    Ok(())
}

fn carry(mut from: TcpStream, mut to: TcpStream, link: &Link, shared: &Shared) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let Some((_, delay)) = shared.way() else { break };
        thread::sleep(delay);
        if link.is_half() || to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    if !link.is_half() {
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    /// Says each byte again.
    fn echo() -> String {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
            }
        });
        address
    }

    fn connect(proxy: &Proxy) -> TcpStream {
        let stream = TcpStream::connect(proxy.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        stream
    }

    /// What comes back within a moment; an end is nothing.
    fn say(stream: &mut TcpStream) -> Result<usize, ErrorKind> {
        let asked = stream.write_all(b"x").and_then(|()| stream.read(&mut [0; 1]));
        asked.map_err(|error| error.kind())
    }

    #[test]
    fn connections_are_cut_left_half_open_or_slow_until_it_heals() {
        let proxy = Proxy::start(&echo());
        let mut first = connect(&proxy);
        assert_eq!(say(&mut first), Ok(1));
        proxy.cut();
        assert!(!matches!(say(&mut first), Ok(1) | Err(ErrorKind::WouldBlock)));
        let mut refused = connect(&proxy);
        assert!(!matches!(say(&mut refused), Ok(1) | Err(ErrorKind::WouldBlock)));
        proxy.heal();
        let mut second = connect(&proxy);
        assert_eq!(say(&mut second), Ok(1));
        proxy.half_open();
        assert_eq!(say(&mut second), Err(ErrorKind::WouldBlock));
        let mut third = connect(&proxy);
        assert_eq!(say(&mut third), Err(ErrorKind::WouldBlock));
        proxy.heal();
        assert_eq!(say(&mut second), Err(ErrorKind::WouldBlock), "half open for good");
        assert_eq!(
            third.read(&mut [0; 1]).map_err(|error| error.kind()),
            Ok(1),
            "let in now"
        );
        proxy.slow(Duration::from_millis(400));
        assert_eq!(say(&mut third), Err(ErrorKind::WouldBlock));
    }
}
