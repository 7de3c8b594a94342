use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;
use crate::source::mysql::binlog::golden::STREAMS;
use crate::source::mysql::binlog::sample::{
    self, MAX_EVENT_BYTES, Sample, decode, format_data, mariadb, mysql, post_header_lens,
};
use crate::source::mysql::binlog::{Inner, PayloadReader, RowsKind};

/// A captured event, and the format that it is read by.
struct Captured {
    before: Option<FormatDescription>,
    event: Bytes,
}

impl Captured {
    fn decoder(&self) -> EventDecoder {
        EventDecoder {
            format: self.before.clone(),
            max_event_bytes: MAX_EVENT_BYTES,
        }
    }

    fn has_checksum(&self) -> bool {
        let (covered, found) = self.event.split_last_chunk().unwrap();
        crc32fast::hash(covered) == u32::from_le_bytes(*found)
    }

    fn data(&self) -> &[u8] {
        let end = self.event.len() - if self.has_checksum() { 4 } else { 0 };
        &self.event[Header::LEN..end]
    }
}

static CAPTURED: LazyLock<Vec<Captured>> = LazyLock::new(|| {
    let mut captured = Vec::new();
    for stream in &*STREAMS {
        let mut decoder = EventDecoder::new(MAX_EVENT_BYTES);
        for (_, event) in &stream.events {
            let before = decoder.format.clone();
            decoder.decode(event.clone()).unwrap();
            let event = event.clone();
            captured.push(Captured { before, event });
        }
    }
    captured
});

/// The event with other data, as whole as it was.
fn with_data(event: &Bytes, checksum: bool, data: &[u8]) -> Bytes {
    let more = if checksum { 4 } else { 0 };
    let mut bytes = [&event[..Header::LEN], data].concat();
    let size = u32::try_from(bytes.len() + more).unwrap();
    bytes[9..13].copy_from_slice(&size.to_le_bytes());
    if checksum {
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    }
    bytes.into()
}

#[test]
fn a_changed_byte_is_found_by_the_checksum() {
    let without = |format: &FormatDescription| format.checksum == Checksum::None;
    let mut found = 0;
    for captured in CAPTURED.iter().filter(|captured| captured.has_checksum()) {
        let event = &captured.event;
        let (_, decoded) = captured.decoder().decode(event.clone()).unwrap();
        if matches!(decoded, Event::FormatDescription(format) if without(&format)) {
            continue;
        }
        // Behind a file without checksums nothing says of an event that it is not of another kind.
        let kind_at = captured.before.as_ref().is_some_and(without).then_some(4);
        for at in (0..event.len()).filter(|at| Some(*at) != kind_at) {
            let mut changed = event.to_vec();
            changed[at] ^= 1 << (at % 8);
            let decoded = captured.decoder().decode(changed.into());
            assert!(decoded.is_err(), "byte {at} of {event:?}: {decoded:?}");
            found += 1;
        }
    }
    assert!(found > 90_000, "{found}");
}

#[test]
fn a_damaged_event_says_where_it_is() {
    let mut decoder = sample::decoder(&format_data("8.4.0", &post_header_lens(), 1));
    let mut event = Sample::new(EventKind::XID, [1; 8]).with_checksum().to_vec();
    event[20] ^= 1;
    let error = decoder.decode(event.into()).unwrap_err().to_string();
    let expected = "binlog event XID of 31 bytes that ends at 1000 is damaged: found the checksum 0x";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn events_that_are_cut_or_go_on_are_errors() {
    for captured in &*CAPTURED {
        let event = &captured.event;
        for len in 0..event.len() {
            captured.decoder().decode(event.slice(..len)).unwrap_err();
        }
        captured
            .decoder()
            .decode([event, [0].as_slice()].concat().into())
            .unwrap_err();
    }
}

#[test]
fn data_that_is_cut_is_an_error_or_shorter_but_never_a_panic() {
    for captured in &*CAPTURED {
        let data = captured.data();
        for len in 0..data.len() {
            let inner = with_data(&captured.event, false, &data[..len]);
            let _ = captured.decoder().decode_inner(inner);
            let whole = with_data(&captured.event, captured.has_checksum(), &data[..len]);
            let _ = captured.decoder().decode(whole);
        }
    }
}

#[test]
fn made_up_events_are_read_with_a_checksum_and_without() {
    let rotate = Sample::made_up(
        EventKind::ROTATE,
        [&4_u64.to_le_bytes(), b"binlog.000007".as_slice()].concat(),
    );
    let beat = Sample::made_up(EventKind::HEARTBEAT, *b"binlog.000007");
    let mut decoders = [EventDecoder::new(0), mysql(), mariadb()];
    decoders[2].format.as_mut().unwrap().checksum = Checksum::Crc32;
    for decoder in &mut decoders {
        for event in [rotate.with_checksum(), rotate.without_checksum()] {
            let (_, event) = decoder.decode(event).unwrap();
            let file = "binlog.000007".to_owned();
            assert_eq!(event, Event::Rotate(Rotate { file, position: 4 }));
        }
    }
    for event in [beat.with_checksum(), beat.without_checksum()] {
        let (_, event) = mysql().decode(event).unwrap();
        assert!(matches!(event, Event::Heartbeat(Heartbeat { file, .. }) if file == "binlog.000007"));
    }
}

#[test]
fn a_list_that_mariadb_makes_up_is_read_with_a_checksum_and_without() {
    let data = [&1_u32.to_le_bytes(), [1; 16].as_slice()].concat();
    let list = Sample::made_up(EventKind::MARIADB_GTID_LIST, data);
    for event in [list.with_checksum(), list.without_checksum()] {
        let (_, event) = mariadb().decode(event).unwrap();
        assert!(matches!(event, Event::MariadbGtidList(list) if list.len() == 1));
    }
}

#[test]
fn a_real_rotate_must_have_the_checksum_of_its_file() {
    let mut decoder = sample::decoder(&format_data("8.4.0", &post_header_lens(), 1));
    let data = [&4_u64.to_le_bytes(), b"binlog.000007".as_slice()].concat();
    let rotate = Sample::new(EventKind::ROTATE, data);
    assert!(decoder.decode(rotate.with_checksum()).is_ok());
    let error = decoder.decode(rotate.without_checksum()).unwrap_err();
    assert!(matches!(error, BinlogError::Checksum { .. }), "{error}");
}

#[test]
fn nothing_is_decoded_before_its_format_is_known() {
    for kind in [
        EventKind::XID,
        EventKind::WRITE_ROWS,
        EventKind::MARIADB_GTID_LIST,
        EventKind(99),
    ] {
        let event = Sample::new(kind, [0; 8]);
        for event in [event.with_checksum(), event.without_checksum()] {
            let error = EventDecoder::new(MAX_EVENT_BYTES).decode(event).unwrap_err();
            assert!(matches!(error, BinlogError::BeforeFormat { .. }), "{error}");
        }
    }
}

#[test]
fn a_format_that_cannot_be_read_is_an_error() {
    let good = format_data("8.4.0", &post_header_lens(), 1);
    let change = |at: usize, to: u8| {
        let mut data = good.clone();
        data[at] = to;
        let event = Sample::new(EventKind::FORMAT_DESCRIPTION, data).with_checksum();
        let error = EventDecoder::new(MAX_EVENT_BYTES).decode(event).unwrap_err();
        error.to_string()
    };
    let event = "binlog event FORMAT_DESCRIPTION";
    assert_eq!(change(0, 3), format!("{event} has the binlog version 3: expected 4"));
    assert_eq!(change(56, 20), format!("{event} has the header length 20: expected 19"));
    let algorithm = change(good.len() - 1, 2);
    assert_eq!(
        algorithm,
        format!("{event} names the unknown checksum algorithm 2: expected 0 (none) or 1 (CRC32)")
    );
}

#[test]
fn without_checksums_a_format_s_own_may_be_stale() {
    let data = format_data("8.4.0", &post_header_lens(), 0);
    let mut event = Sample::new(EventKind::FORMAT_DESCRIPTION, data)
        .with_checksum()
        .to_vec();
    event[13..17].fill(0); // as for a stream that starts in the middle of the file
    let (_, event) = EventDecoder::new(MAX_EVENT_BYTES).decode(event.into()).unwrap();
    assert!(matches!(event, Event::FormatDescription(format) if format.checksum == Checksum::None));
}

#[test]
fn a_format_that_lost_its_algorithm_is_damaged() {
    let data = format_data("8.4.0", &post_header_lens(), 1);
    let algorithm_at = Header::LEN + data.len() - 1;
    let mut event = Sample::new(EventKind::FORMAT_DESCRIPTION, data)
        .with_checksum()
        .to_vec();
    event[algorithm_at] = 0;
    let error = EventDecoder::new(MAX_EVENT_BYTES).decode(event.into()).unwrap_err();
    assert!(matches!(error, BinlogError::Checksum { .. }), "{error}");
}

#[test]
fn mariadb_is_known_by_its_version_or_its_kinds() {
    let lens = [post_header_lens(), vec![0; 129]].concat();
    for (version, lens, mariadb) in [
        ("8.4.0", post_header_lens(), false),
        ("11.4.2-MariaDB-log", post_header_lens(), true),
        ("custom", lens, true),
    ] {
        let decoder = sample::decoder(&format_data(version, &lens, 1));
        assert_eq!(decoder.format.unwrap().mariadb, mariadb, "{version}");
    }
}

#[test]
fn an_unknown_kind_is_said_to_be_ignorable_or_not() {
    for (flags, ignorable) in [(0, false), (0x80, true)] {
        let event = Sample {
            flags,
            ..Sample::new(EventKind(99), *b"whatever")
        };
        let (header, event) = mysql().decode(event.without_checksum()).unwrap();
        assert_eq!((header.kind, event), (EventKind(99), Event::Unknown { ignorable }));
    }
    // Part of rows that are too large for one event: MariaDB 12.3 and later.
    let event = decode(&mut mariadb(), EventKind::PARTIAL_ROW_DATA, [0; 30]).unwrap();
    assert_eq!(event, Event::Unknown { ignorable: false });
}

#[test]
fn an_incident_is_never_taken_for_another_event() {
    let event = decode(&mut mysql(), EventKind::INCIDENT, *b"\x01\x00\x04lost").unwrap();
    let message = "lost".to_owned();
    assert_eq!(event, Event::Incident(Incident { number: 1, message }));
    decode(&mut mysql(), EventKind::INCIDENT, *b"\x01\x00\x05lost").unwrap_err();
}

#[test]
fn events_that_end_a_transaction_hold_nothing_else() {
    let event = decode(&mut mysql(), EventKind::XID, 77_u64.to_le_bytes()).unwrap();
    assert_eq!(event, Event::Xid(77));
    decode(&mut mysql(), EventKind::XID, [0; 9]).unwrap_err();

    let prepare = |gtrid_len: u32, one_phase| {
        let numbers = [1, gtrid_len, 1].map(u32::to_le_bytes).concat();
        [&[one_phase], numbers.as_slice(), b"gtrid", b"b"].concat()
    };
    let event = decode(&mut mysql(), EventKind::XA_PREPARE, prepare(5, 1)).unwrap();
    let Event::XaPrepare(XaPrepareEvent { one_phase, xid }) = event else {
        panic!("{event:?}")
    };
    assert_eq!((one_phase, xid.to_string().as_str()), (true, "X'6774726964',X'62',1"));
    for gtrid_len in [4, 6, 65, u32::MAX] {
        decode(&mut mysql(), EventKind::XA_PREPARE, prepare(gtrid_len, 0)).unwrap_err();
    }
}

#[test]
fn kinds_of_the_stream_may_not_stand_in_a_transaction() {
    let decoder = mysql();
    for kind in [
        EventKind::TRANSACTION_PAYLOAD,
        EventKind::FORMAT_DESCRIPTION,
        EventKind::ROTATE,
        EventKind::HEARTBEAT,
        EventKind::HEARTBEAT_V2,
    ] {
        let error = decoder
            .decode_inner(Sample::new(kind, [0; 40]).without_checksum())
            .unwrap_err();
        assert!(matches!(error, BinlogError::Inside { .. }), "{error}");
    }
}

#[test]
fn the_head_of_rows_is_read_without_the_rest() {
    let header = |kind| Header::parse(&Sample::new(kind, [0; 1_000]).without_checksum()).unwrap();
    let head = Bytes::from_static(b"\x21\x43\x65\x00\x00\x01\x01\x00\x02\x00");
    let rows = mysql().rows_head(&header(EventKind::UPDATE_ROWS), &head).unwrap();
    let expected = RowsHead {
        kind: RowsKind::Update,
        table_id: 0x0100_0065_4321,
        statement_end: true,
    };
    assert_eq!(rows, Some(expected));
    assert_eq!(mysql().rows_head(&header(EventKind::QUERY), &head).unwrap(), None);
    mysql()
        .rows_head(&header(EventKind::UPDATE_ROWS), &head.slice(..7))
        .unwrap_err();
}

fn any_decoder() -> impl Strategy<Value = EventDecoder> {
    prop_oneof![
        Just(()).prop_map(|()| mysql()),
        Just(()).prop_map(|()| mariadb()),
        Just(()).prop_map(|()| EventDecoder::new(MAX_EVENT_BYTES)),
    ]
}

fn any_kind() -> impl Strategy<Value = EventKind> {
    let known: Vec<_> = (0..=u8::MAX)
        .map(EventKind)
        .filter(|kind| kind.name().is_some())
        .collect();
    prop_oneof![9 => select(known), 1 => any::<u8>().prop_map(EventKind)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_bytes_decode_or_are_an_error(mut decoder in any_decoder(), bytes: Vec<u8>) {
        let _ = decoder.decode_inner(bytes.clone().into());
        let _ = decoder.decode(bytes.into());
    }

    #[test]
    fn any_data_of_any_kind_decodes_or_is_an_error(
        mut decoder in any_decoder(),
        kind in any_kind(),
        flags: u16,
        next_position: u32,
        data: Vec<u8>,
    ) {
        let sample = Sample { kind, flags, next_position, data };
        let event = sample.without_checksum();
        let _ = decoder.decode_inner(event.clone());
        let _ = decoder.rows_head(&Header::parse(&event).unwrap(), &sample.data.clone().into());
        if let Ok((_, Event::TransactionPayload(payload))) = decoder.decode(event) {
            let mut reader = PayloadReader::new(payload, MAX_EVENT_BYTES).unwrap();
            while let Ok(Some(Inner::Event(_) | Inner::Oversized(_))) = reader.next() {}
        }
        let _ = decoder.decode(sample.with_checksum());
    }

    #[test]
    fn captured_events_with_other_bytes_decode_or_are_an_error(
        which: Index,
        changes in prop::collection::vec((any::<Index>(), any::<u8>()), 1..4),
    ) {
        let captured = which.get(&CAPTURED);
        let (mut decoder, event) = (captured.decoder(), &captured.event);
        let mut data = captured.data().to_vec();
        for (at, to) in changes {
            *at.get_mut(&mut data) = to;
        }
        let _ = decoder.decode_inner(with_data(event, false, &data));
        if let Ok((_, Event::TransactionPayload(payload))) = decoder.decode(with_data(event, captured.has_checksum(), &data)) {
            let mut reader = PayloadReader::new(payload, MAX_EVENT_BYTES).unwrap();
            while let Ok(Some(Inner::Event(_) | Inner::Oversized(_))) = reader.next() {}
        }
    }
}
