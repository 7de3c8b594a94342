//! What a server, or something that claims to be one, can do to the socket. The other end of a connection plays it, so that
//! each byte is ours to choose; streams of real servers are elsewhere.

use bytes::{BufMut, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::config::PrefixPattern;
use crate::event::Change;
use crate::position::PostgresPosition;
use crate::source::postgres::client::Started;
use crate::source::postgres::primary_key;
use crate::source::select::Selector;
use crate::source::transport::Transport;
use crate::source::{BatchSender, LogBatch};
use crate::telemetry::status::{PipelineStatus, SourceView, State};

const LIMIT: u64 = 100_000;

struct Peer {
    server: TcpStream,
    batches: mpsc::Receiver<LogBatch>,
    confirmed: Option<watch::Sender<Option<Position>>>,
    observed: watch::Sender<Observed>,
    stop: CancellationToken,
    status: std::sync::Arc<PipelineStatus>,
    stream: JoinHandle<Result<End, PostgresError>>,
}

/// By TCP, which waits by the tests' clock.
fn connected() -> (TcpStream, TcpStream) {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    let ours = |stream: std::net::TcpStream| {
        stream.set_nonblocking(true).unwrap();
        stream.set_nodelay(true).unwrap();
        TcpStream::from_std(stream).unwrap()
    };
    (ours(near), ours(far))
}

fn start(room: usize) -> Peer {
    let (client, server) = connected();
    let position = PostgresPosition {
        system_identifier: 7,
        timeline: 1,
        base: Lsn(1),
        partial: None,
        last_event_end: Lsn::ZERO,
    };
    let selector = Selector::of(vec![PrefixPattern::parse("outbox").unwrap()], vec![], vec![]);
    let started = Started {
        transport: Transport::Tcp(client),
        buffer: BytesMut::new(),
        pid: 42,
    };
    let (sender, batches) = mpsc::channel(room);
    let (confirmed_sender, confirmed) = watch::channel(None);
    let (observed, observed_receiver) = watch::channel(Observed::default());
    let stop = CancellationToken::new();
    let status = PipelineStatus::named("p", "k", None, Default::default(), Default::default());
    let mut log = LogChannel {
        batches: BatchSender::new(sender, None),
        confirmed,
        claim: crate::source::Claim::Known { shared: false },
        stop: stop.clone(),
        view: SourceView::new(std::sync::Arc::clone(&status)),
    };
    let assembler = Assembler::new("d", selector, position);
    let stream = Stream::new(Link::new(started), assembler, primary_key::channel().0, LIMIT);
    let stream = tokio::spawn(async move {
        let options = StreamOptions {
            slot: "s".to_owned(),
            publication: "p".to_owned(),
            stall_timeout: Duration::from_secs(60),
            progress_timeout: Duration::from_secs(60),
            until: None,
        };
        stream.run(&mut log, observed_receiver, &options).await
    });
    Peer {
        server,
        batches,
        confirmed: Some(confirmed_sender),
        observed,
        stop,
        status,
        stream,
    }
}

fn frame(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    out.put_u32(u32::try_from(body.len() + 4).unwrap());
    out.put_slice(body);
    out
}

fn xlog_data(start: u64, payload: &[u8]) -> Vec<u8> {
    let mut body = vec![b'w'];
    body.put_u64(start);
    body.put_u64(start);
    body.put_i64(0);
    body.put_slice(payload);
    frame(b'd', &body)
}

fn message(lsn: u64, prefix: &str, content: &[u8]) -> Vec<u8> {
    let mut payload = vec![b'M', 0];
    payload.put_u64(lsn);
    payload.put_slice(prefix.as_bytes());
    payload.put_u8(0);
    payload.put_u32(u32::try_from(content.len()).unwrap());
    payload.put_slice(content);
    xlog_data(lsn, &payload)
}

fn keep_alive(end: u64, reply: bool) -> Vec<u8> {
    let mut body = vec![b'k'];
    body.put_u64(end);
    body.put_i64(0);
    body.put_u8(u8::from(reply));
    frame(b'd', &body)
}

/// The next status update: what is written, and what is confirmed.
async fn status_update(server: &mut TcpStream) -> (u64, u64) {
    let mut frame = [0; 5 + 34];
    server.read_exact(&mut frame).await.unwrap();
    assert_eq!((frame[0], frame[5]), (b'd', b'r'));
    let at = |from: usize| u64::from_be_bytes(frame[from..from + 8].try_into().unwrap());
    (at(6), at(14))
}

impl Peer {
    /// The batch that the stream begins with is taken, so that the next is what the test sent.
    async fn opened(mut self) -> Self {
        assert!(self.batches.recv().await.unwrap().events.is_empty());
        self
    }

    async fn error_after(self, bytes: &[u8]) -> PostgresError {
        let Peer { mut server, stream, .. } = self.opened().await;
        server.write_all(bytes).await.unwrap();
        stream.await.unwrap().unwrap_err()
    }
}

#[tokio::test(start_paused = true)]
async fn the_server_hears_from_us_in_the_middle_of_a_large_frame() {
    let mut peer = start(4).opened().await;
    let whole = message(50, "outbox", &[b'x'; 90_000]);
    let (head, tail) = whole.split_at(40_000);
    peer.server.write_all(head).await.unwrap();
    for _ in 0..3 {
        status_update(&mut peer.server).await;
    }
    peer.server.write_all(tail).await.unwrap();
    let batch = peer.batches.recv().await.unwrap();
    let Change::Message(message) = &batch.events[0].change else {
        panic!("a message")
    };
    assert_eq!(message.content.len(), 90_000);
}

#[tokio::test(start_paused = true)]
async fn the_server_hears_from_us_while_nothing_can_be_handed_over() {
    let mut peer = start(1);
    // The opening batch fills the channel, so that this one must wait.
    peer.server.write_all(&message(50, "outbox", b"{}")).await.unwrap();
    for _ in 0..5 {
        status_update(&mut peer.server).await;
    }
    assert!(peer.batches.recv().await.unwrap().events.is_empty());
    assert_eq!(peer.batches.recv().await.unwrap().events.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stuck_sink_costs_the_connection_after_stall_timeout_and_nothing_else() {
    let mut peer = start(1);
    peer.server.write_all(&message(50, "outbox", b"{}")).await.unwrap();
    let mut rest = Vec::new();
    peer.server.read_to_end(&mut rest).await.unwrap();
    assert!(matches!(peer.status.snapshot().state, State::Waiting { .. }));
    assert!(peer.batches.recv().await.unwrap().events.is_empty());
    assert_eq!(peer.batches.recv().await.unwrap().events.len(), 1);
    assert!(matches!(peer.stream.await.unwrap(), Err(PostgresError::Stalled { .. })));
}

#[tokio::test(start_paused = true)]
async fn an_endangered_slot_is_given_up_while_nothing_can_be_handed_over() {
    let mut peer = start(1);
    peer.server.write_all(&message(50, "outbox", b"{}")).await.unwrap();
    for _ in 0..6 {
        status_update(&mut peer.server).await;
    }
    peer.observed
        .send_modify(|observed| observed.wal_status = Some("unreserved".to_owned()));
    let mut rest = Vec::new();
    peer.server.read_to_end(&mut rest).await.unwrap();
    assert!(peer.batches.recv().await.is_some());
    assert!(peer.batches.recv().await.is_some());
    assert!(matches!(
        peer.stream.await.unwrap(),
        Err(PostgresError::SlotEndangered { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn a_keep_alive_that_asks_is_answered_and_only_what_was_saved_is_confirmed() {
    let mut peer = start(4).opened().await;
    peer.server.write_all(&keep_alive(90, true)).await.unwrap();
    while status_update(&mut peer.server).await != (90, 0) {}
    let end = peer.batches.recv().await.unwrap().end;
    peer.confirmed.as_ref().unwrap().send_replace(Some(end));
    loop {
        let (_, confirmed) = status_update(&mut peer.server).await;
        if confirmed == 90 {
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_confirmed_beyond_what_this_connection_received() {
    let mut peer = start(4).opened().await;
    peer.server.write_all(&keep_alive(90, false)).await.unwrap();
    let Position::Postgres(end) = peer.batches.recv().await.unwrap().end else {
        panic!("a place in the WAL")
    };
    let beyond = PostgresPosition {
        base: Lsn(5_000),
        ..end
    };
    peer.confirmed
        .as_ref()
        .unwrap()
        .send_replace(Some(Position::Postgres(beyond)));
    for _ in 0..3 {
        let (_, confirmed) = status_update(&mut peer.server).await;
        assert!(confirmed <= 90, "{confirmed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_leaves_when_the_last_position_is_saved_and_confirms_it() {
    let mut peer = start(4).opened().await;
    peer.server.write_all(&keep_alive(90, false)).await.unwrap();
    let end = peer.batches.recv().await.unwrap().end;
    peer.stop.cancel();
    assert!(peer.batches.recv().await.is_none());
    peer.confirmed.as_ref().unwrap().send_replace(Some(end));
    peer.confirmed.take();
    let mut sent = Vec::new();
    // The farewell waits for the server to close its side.
    let mut last_confirmed = 0;
    loop {
        let mut tag = [0];
        peer.server.read_exact(&mut tag).await.unwrap();
        if tag[0] != b'd' {
            sent.push(tag[0]);
            break;
        }
        let mut body = [0; 4 + 34];
        peer.server.read_exact(&mut body).await.unwrap();
        last_confirmed = u64::from_be_bytes(body[13..21].try_into().unwrap());
    }
    assert_eq!((last_confirmed, sent), (90, vec![b'c']));
    drop(peer.server);
    assert_eq!(peer.stream.await.unwrap().unwrap(), End::Stopped);
}

#[tokio::test(start_paused = true)]
async fn a_message_over_the_limit_is_named_and_not_kept() {
    let mut peer = start(4).opened().await;
    let large = message(50, "outbox", &vec![b'x'; 3_000_000]);
    peer.server.write_all(&large).await.unwrap();
    peer.server.write_all(&message(60, "outbox", b"{}")).await.unwrap();
    let mut events = Vec::new();
    while events.len() < 2 {
        events.extend(peer.batches.recv().await.unwrap().events);
    }
    let Change::Oversized(oversized) = &events[0].change else {
        panic!("too large")
    };
    assert_eq!((oversized.origin.name(), oversized.limit), ("outbox", LIMIT));
    assert!(matches!(events[1].change, Change::Message(_)));
}

#[tokio::test(start_paused = true)]
async fn a_claimed_length_is_no_reason_to_allocate_or_to_wait() {
    for (tag, claimed) in [
        (b'E', u32::MAX),
        (b'E', 0x7FFF_FFFF),
        (b'N', 3_000_000),
        (b'd', 3),
        (b'd', 0),
    ] {
        let mut bytes = vec![tag];
        bytes.put_u32(claimed);
        let error = start(4).error_after(&bytes).await;
        assert!(matches!(error, PostgresError::Frame { .. }), "{error}");
    }
    // 2 GiB of a frame that is no message and no row.
    let mut bytes = vec![b'd'];
    bytes.put_u32(0x7FFF_FFFF);
    bytes.put_slice(&vec![b'w'; HEAD_BYTES + 10]);
    let error = start(4).error_after(&bytes).await;
    assert!(matches!(error, PostgresError::Frame { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_the_protocol_halts_and_is_named() {
    for (bytes, expected) in [
        (frame(b'?', b""), "`?`"),
        (frame(b'd', b""), "replication message"),
        (frame(b'd', b"z"), "replication message"),
        (xlog_data(5, b"?"), "pgoutput"),
        (xlog_data(5, b"S\0\0\0\x01\x01"), "pgoutput"),
        (frame(b'E', b"not fields"), "protocol"),
    ] {
        let error = start(4).error_after(&bytes).await;
        assert_eq!(error.recovery(), crate::source::Recovery::Halt, "{error}");
        let text = crate::telemetry::error_chain(&error);
        assert!(text.contains(expected), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_publication_that_is_too_young_halts_with_the_way_out() {
    let missing = b"SERROR\0C42704\0Mpublication \"p\" does not exist\0\0";
    let skipped = b"SWARNING\0C55000\0Mskipped loading publication \"p\"\0\0";
    for bytes in [frame(b'E', missing), frame(b'N', skipped)] {
        let error = start(4).error_after(&bytes).await;
        assert!(matches!(error, PostgresError::PublicationTooYoung { .. }), "{error}");
        assert!(error.to_string().contains("--from-slot"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_given_up_unless_it_shows_itself_alive() {
    let peer = start(4).opened().await;
    let Peer {
        server: mut socket,
        stream,
        observed,
        ..
    } = peer;
    observed.send_modify(|observed| {
        *observed = Observed {
            at: None,
            active_pid: Some(42),
            ..Observed::default()
        }
    });
    let mut updates = Vec::new();
    socket.read_to_end(&mut updates).await.unwrap();
    assert!(matches!(stream.await.unwrap(), Err(PostgresError::Silent { .. })));
    // It was asked for a sign of life before.
    assert!(updates.chunks(5 + 34).any(|frame| frame.last() == Some(&1)));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_shuts_down_is_left_though_the_sink_is_stuck() {
    let mut peer = start(1);
    peer.server.write_all(&message(50, "outbox", b"{}")).await.unwrap();
    status_update(&mut peer.server).await;
    peer.observed.send_modify(|observed| observed.shutting_down = true);
    assert!(matches!(peer.stream.await.unwrap(), Err(PostgresError::ShuttingDown)));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ends_the_stream_is_shutting_down() {
    for farewell in [frame(b'c', b""), frame(b'C', b"COPY 0\0")] {
        let error = start(4).error_after(&farewell).await;
        assert!(matches!(error, PostgresError::ShuttingDown), "{error}");
        assert_eq!(error.recovery(), crate::source::Recovery::Retry);
    }
}

/// The server as the monitor sees it now.
fn seen(log_end: u64, walsender: Walsender) -> Observed {
    Observed {
        at: Some(Instant::now()),
        active_pid: Some(42),
        log_end: Lsn(log_end),
        walsender: Some(walsender),
        ..Observed::default()
    }
}

impl Peer {
    /// Lets so many seconds pass in which the server's log moves, and answers each status with `reply`.
    async fn seconds(&mut self, seconds: u64, walsender: &Walsender, mut reply: impl FnMut(u64) -> Option<Vec<u8>>) {
        for second in 0..seconds {
            self.observed
                .send_replace(seen(100_000 + second * 1_000, walsender.clone()));
            status_update(&mut self.server).await;
            if let Some(reply) = reply(second) {
                self.server.write_all(&reply).await.unwrap();
            }
        }
    }

    /// Lets time pass until the stream has ended.
    async fn ended(self, walsender: Walsender) -> PostgresError {
        while !self.stream.is_finished() {
            self.observed.send_replace(seen(900_000, walsender.clone()));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        self.stream.await.unwrap().unwrap_err()
    }

    fn ready(&self) -> Result<(), String> {
        self.status.enter(State::Streaming);
        self.status.snapshot().ready
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_waits_while_its_log_moves_is_given_up_and_the_pipeline_is_not_ready_until_something_comes() {
    let peer = start(4).opened().await;
    assert_eq!(peer.ready(), Ok(()));
    let status = std::sync::Arc::clone(&peer.status);
    let error = peer.ended(Walsender::Waits).await;
    assert!(matches!(error, PostgresError::NoProgress { .. }), "{error}");
    assert_eq!(error.recovery(), crate::source::Recovery::Retry);
    assert_eq!(status.snapshot().ready, Err(error.to_string()));
}

#[tokio::test(start_paused = true)]
async fn keep_alives_with_the_same_place_do_not_make_a_stall_go_away() {
    let mut peer = start(4).opened().await;
    peer.seconds(50, &Walsender::Waits, |_| Some(keep_alive(1, false)))
        .await;
    let error = peer.ended(Walsender::Waits).await;
    assert!(matches!(error, PostgresError::NoProgress { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_reads_on_or_is_at_work_is_not_given_up() {
    let mut peer = start(64).opened().await;
    // It reads log that holds nothing for us, from before what we have.
    peer.seconds(300, &Walsender::Waits, |second| Some(keep_alive(second / 10, false)))
        .await;
    peer.seconds(300, &Walsender::AtWork, |_| None).await;
    assert!(!peer.stream.is_finished());
    assert_eq!(peer.ready(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_holds_back_what_it_has_is_kept_and_its_reason_shown_until_that_has_passed() {
    let mut peer = start(4).opened().await;
    let held_back = Walsender::HeldBack("a standby is away".to_owned());
    peer.seconds(300, &held_back, |_| Some(keep_alive(1, false))).await;
    assert_eq!(peer.ready(), Err("a standby is away".to_owned()));
    peer.server.write_all(&message(50, "outbox", b"{}")).await.unwrap();
    assert_eq!(peer.batches.recv().await.unwrap().events.len(), 1);
    assert_eq!(peer.ready(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_large_frame_on_its_way_is_progress() {
    let mut peer = start(4).opened().await;
    let whole = message(50, "outbox", &[b'x'; 90_000]);
    let mut parts = whole.chunks(500);
    // Three times what ends a connection to which nothing comes.
    peer.seconds(parts.len() as u64, &Walsender::Waits, |_| {
        parts.next().map(<[u8]>::to_vec)
    })
    .await;
    assert_eq!(peer.batches.recv().await.unwrap().events.len(), 1);
}
