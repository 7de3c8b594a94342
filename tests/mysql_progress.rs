//! A connection that lives, and over which nothing comes though the server's log grows.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::support::mysql_bed::MysqlBed;
use crate::support::server::OwnServer;
use crate::support::{ANY_OUTBOX, DEADLINE, Db, Event, eventually, over_each};

/// Kinds of events, in the fifth byte of an event's header.
const ROTATE: u8 = 4;
const FORMAT_DESCRIPTION: u8 = 15;
const HEARTBEAT: u8 = 27;
/// Commands that ask for the log, in the first byte.
const DUMPS: [u8; 2] = [0x12, 0x1E];

/// Stands between the connector and its server, without TLS, and can make it a server that sends nothing of its log any more
/// but its heartbeats, all of them from the same place.
struct Mute {
    address: SocketAddr,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    muted: bool,
    heartbeat: Option<Vec<u8>>,
    connections: Vec<TcpStream>,
}

impl Mute {
    fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared: Arc<Mutex<Shared>> = Arc::default();
        thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                for near in listener.incoming().flatten() {
                    let Ok(far) = TcpStream::connect(target) else { continue };
                    join(near, far, &shared);
                }
            }
        });
        Self { address, shared }
    }

    /// Once a heartbeat was seen.
    fn mute(&self) {
        eventually(DEADLINE, "a heartbeat", || {
            self.shared.lock().unwrap().heartbeat.is_some()
        });
        self.shared.lock().unwrap().muted = true;
    }

    /// For new connections; those that there are have missed what they can't make up for.
    fn unmute(&self) {
        let mut shared = self.shared.lock().unwrap();
        shared.muted = false;
        for connection in shared.connections.drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

fn join(near: TcpStream, far: TcpStream, shared: &Arc<Mutex<Shared>>) {
    let dumps = Arc::new(Mutex::new(false));
    shared.lock().unwrap().connections.push(near.try_clone().unwrap());
    let (mut from_client, mut to_server) = (near.try_clone().unwrap(), far.try_clone().unwrap());
    thread::spawn({
        let dumps = Arc::clone(&dumps);
        move || {
            while let Some(packet) = read(&mut from_client) {
                if packet[3] == 0 && packet.get(4).is_some_and(|command| DUMPS.contains(command)) {
                    *dumps.lock().unwrap() = true;
                }
                if to_server.write_all(&packet).is_err() {
                    break;
                }
            }
            let _ = to_server.shutdown(Shutdown::Both);
        }
    });
    let (mut from_server, mut to_client) = (far, near);
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        while let Some(packet) = read(&mut from_server) {
            let packet = match *dumps.lock().unwrap() {
                true => shared.lock().unwrap().filter(packet),
                false => packet,
            };
            if to_client.write_all(&packet).is_err() {
                break;
            }
        }
        let _ = to_client.shutdown(Shutdown::Both);
    });
}

impl Shared {
    /// What of the log goes on to the client in place of this packet.
    fn filter(&mut self, packet: Vec<u8>) -> Vec<u8> {
        // Behind the packet's header: OK, then an event: 4 bytes of time, its kind.
        match packet.get(9) {
            Some(&HEARTBEAT) if !self.muted => {
                self.heartbeat = Some(packet.clone());
                packet
            }
            Some(&(ROTATE | FORMAT_DESCRIPTION)) => packet,
            _ if self.muted => self.heartbeat.clone().expect("seen before"),
            _ => packet,
        }
    }
}

/// A packet with its header; None at the end.
fn read(from: &mut TcpStream) -> Option<Vec<u8>> {
    let mut packet = vec![0; 4];
    from.read_exact(&mut packet).ok()?;
    let length = u32::from_le_bytes([packet[0], packet[1], packet[2], 0]);
    packet.resize(4 + length as usize, 0);
    from.read_exact(&mut packet[4..]).ok()?;
    Some(packet)
}

over_each!(a_log_that_grows_while_only_heartbeats_come_is_connected_to_anew_and_not_ready_until_something_comes: mysql, mariadb);
fn a_log_that_grows_while_only_heartbeats_come_is_connected_to_anew_and_not_ready_until_something_comes(db: Db) {
    let flavor = db.flavor().expect("a binlog");
    // Nobody else writes to it: heartbeats come when nothing else does.
    let server = OwnServer::mysql(flavor, "");
    let bed = MysqlBed::on(flavor, &server);
    let url = mysql::Opts::from_url(&bed.database.mysql.url).expect("a MySQL URL");
    let mute = Mute::start(SocketAddr::from(([127, 0, 0, 1], url.get_tcp_port())));
    let dsn = format!("mysql://tailpost:tailpost-pw@{}/?ssl-mode=disabled", mute.address);
    let source = format!("id: src1, dsn: '{dsn}', start: <start>");
    let pipeline = format!("{ANY_OUTBOX}  delivery: {{progress_timeout: 5s}}\n").replace("<source>", &source);
    let mut relay = bed.relay(&pipeline);
    relay.start();
    relay.wait_ready();
    let mut app = bed.door.open().unwrap();
    let mut written = 0;
    let mut emit = || {
        written += 1;
        app.emit(&Event::of(written.to_string()));
        written
    };
    emit();
    relay.wait_published(1);

    mute.mute();
    eventually(DEADLINE, "not ready", || {
        emit();
        relay.get("/readyz").is_some_and(|answer| answer.code == 503)
    });
    eventually(DEADLINE, "given up more than once", || {
        emit();
        let ready = relay.get("/readyz").expect("/readyz answers");
        assert!(
            ready.code == 503 && ready.body.contains("grows and nothing of it came"),
            "{ready:?}"
        );
        relay.metric("tailpost_restarts_total", &[]) >= 2.0
    });
    assert_eq!(relay.published(), 1);

    mute.unmute();
    let last = emit();
    relay.wait_published(last);
    relay.wait_ready();
    let mut reader = bed.reader(&["events"]);
    let mut times: BTreeMap<u64, u32> = BTreeMap::new();
    for record in reader.all() {
        let number = record.value_text().expect("a value").parse().expect("a number");
        *times.entry(number).or_default() += 1;
    }
    assert_eq!(times, (1..=last).map(|number| (number, 1)).collect());
}
