use std::io::Write;

use proptest::prelude::*;
use zstd::stream::Encoder;

use super::*;
use crate::source::mysql::binlog::Event;
use crate::source::mysql::binlog::sample::{MAX_EVENT_BYTES, Sample, decode, mysql};

const LEVEL: i32 = 3; // the server's default

// Kinds of zstd's blocks.
const RAW: usize = 0;
const REPEATED: usize = 1;

fn query(text_len: usize) -> Bytes {
    Sample::new(EventKind::QUERY, vec![b'x'; text_len]).without_checksum()
}

fn compress(bytes: &[u8]) -> Bytes {
    zstd::encode_all(bytes, LEVEL).unwrap().into()
}

fn payload(compression: Compression, uncompressed_size: Option<u64>, bytes: impl Into<Bytes>) -> Payload {
    Payload {
        compression,
        uncompressed_size,
        bytes: bytes.into(),
    }
}

/// Everything that a payload holds.
fn read(payload: Payload, max_event_bytes: usize) -> Result<Vec<Inner>, BinlogError> {
    let mut reader = PayloadReader::new(payload, max_event_bytes)?;
    let mut all = Vec::new();
    while let Some(inner) = reader.next()? {
        all.push(inner);
    }
    assert!(reader.next().unwrap().is_none(), "the end stays the end");
    Ok(all)
}

fn whole(events: &[Bytes]) -> Vec<Inner> {
    events.iter().cloned().map(Inner::Event).collect()
}

/// One byte a field's type, length and value, as far as they are small.
fn fields(payload_size: u8, compression: &[u8], more: &[u8], bytes: &[u8]) -> Vec<u8> {
    let compression = [&[2, u8::try_from(compression.len()).unwrap()], compression].concat();
    [compression.as_slice(), more, &[1, 1, payload_size, 0], bytes].concat()
}

#[test]
fn fields_in_any_order_and_unknown_ones_are_read() {
    let unknown = [9, 2, 0xAB, 0xCD];
    let size = [3, 3, 0xFC, 0x2C, 0x01];
    let data = fields(5, &[0], &[unknown.as_slice(), &size].concat(), b"bytes");
    let event = decode(&mut mysql(), EventKind::TRANSACTION_PAYLOAD, data).unwrap();
    assert_eq!(
        event,
        Event::TransactionPayload(payload(Compression::Zstd, Some(300), "bytes"))
    );

    let data = fields(5, &[0xFC, 255, 0], &[], b"bytes");
    let event = decode(&mut mysql(), EventKind::TRANSACTION_PAYLOAD, data).unwrap();
    assert_eq!(
        event,
        Event::TransactionPayload(payload(Compression::None, None, "bytes"))
    );
}

#[test]
fn fields_that_are_missing_new_or_wrong_are_errors() {
    let event = "binlog event TRANSACTION_PAYLOAD";
    for (data, expected) in [
        (
            fields(5, &[7], &[], b"bytes"),
            "has the compression 7: expected 0 (zstd) or 255 (none)",
        ),
        (
            fields(6, &[0], &[], b"bytes"),
            "is cut short in its payload: found 5 bytes, expected 6",
        ),
        (
            fields(4, &[0], &[], b"bytes"),
            "goes on behind its end: found 1 bytes more",
        ),
        (
            fields(5, &[0, 0], &[], b"bytes"),
            "goes on behind its end: found 1 bytes more",
        ),
        (
            fields(5, &[], &[], b"bytes"),
            "is cut short in its compression: found 0 bytes, expected 1",
        ),
        (vec![2, 1, 0, 0], "lacks its payload size"),
        (vec![1, 1, 0, 0], "lacks its compression"),
        (
            vec![2, 1, 0],
            "is cut short in its field type: found 0 bytes, expected 1",
        ),
        (
            vec![1, 1, 0xFB, 0],
            "has the payload size 251: expected a length-encoded integer",
        ),
    ] {
        let error = decode(&mut mysql(), EventKind::TRANSACTION_PAYLOAD, data).unwrap_err();
        assert_eq!(error.to_string(), format!("{event} {expected}"));
    }
}

#[test]
fn events_come_out_as_they_went_in() {
    let events = [
        query(0),
        query(300),
        query(CHUNK_LEN - 20),
        query(3 * CHUNK_LEN),
        query(1),
    ];
    let bytes = events.concat();
    let size = Some(bytes.len() as u64);
    let plain = payload(Compression::None, None, bytes.clone());
    assert_eq!(read(plain, MAX_EVENT_BYTES).unwrap(), whole(&events));
    for size in [size, None] {
        let packed = payload(Compression::Zstd, size, compress(&bytes));
        assert_eq!(read(packed, MAX_EVENT_BYTES).unwrap(), whole(&events));
    }
    // Frames end where they like.
    let frames: Vec<u8> = bytes.chunks(777).flat_map(compress).collect();
    let packed = payload(Compression::Zstd, size, frames);
    assert_eq!(read(packed, MAX_EVENT_BYTES).unwrap(), whole(&events));

    let empty = payload(Compression::Zstd, Some(0), compress(b""));
    assert_eq!(read(empty, MAX_EVENT_BYTES).unwrap(), []);
}

#[test]
fn events_with_the_largest_window_of_any_server_are_read() {
    let mut noise = vec![0; 300 << 10];
    let mut state = 1_u32;
    for byte in &mut noise {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *byte = state.to_be_bytes()[0];
    }
    let event = Sample::new(EventKind::QUERY, noise).without_checksum();
    let mut encoder = Encoder::new(Vec::new(), LEVEL).unwrap();
    encoder.window_log(WINDOW_LOG_MAX).unwrap();
    encoder.write_all(&event).unwrap();
    let packed = payload(Compression::Zstd, Some(event.len() as u64), encoder.finish().unwrap());
    assert_eq!(read(packed, MAX_EVENT_BYTES).unwrap(), whole(&[event]));
}

#[test]
fn a_window_beyond_any_server_s_is_refused() {
    let mut encoder = Encoder::new(Vec::new(), LEVEL).unwrap();
    encoder.window_log(WINDOW_LOG_MAX + 1).unwrap();
    encoder.write_all(&query(100)).unwrap();
    let packed = payload(Compression::Zstd, None, encoder.finish().unwrap());
    let error = read(packed, MAX_EVENT_BYTES).unwrap_err();
    assert!(matches!(error, BinlogError::Decompress { .. }), "{error}");
}

#[test]
fn an_end_is_only_reported_of_a_whole_payload() {
    let bytes = [query(40), query(70), query(10)].concat();
    let size = bytes.len() as u64;
    let packed = compress(&bytes);
    for len in 0..packed.len() {
        for size in [Some(size), None] {
            let cut = payload(Compression::Zstd, size, packed.slice(..len));
            let all = read(cut, MAX_EVENT_BYTES);
            // Nothing at all is a payload of nothing, unless the size says otherwise.
            assert!(all.is_err() || (len == 0 && size.is_none()), "{len}: {all:?}");
        }
    }
    for wrong in [size - 1, size + 1, 0, u64::MAX] {
        let error = read(payload(Compression::Zstd, Some(wrong), packed.clone()), MAX_EVENT_BYTES).unwrap_err();
        assert!(
            matches!(error, BinlogError::Decompressed { expected, .. } if expected == wrong),
            "{error}"
        );
    }
    for more in [b"\0".as_slice(), b"\x28\xB5\x2F\xFD", b"more"] {
        let behind = [&packed, more].concat();
        let error = read(payload(Compression::Zstd, Some(size), behind), MAX_EVENT_BYTES).unwrap_err();
        assert!(matches!(error, BinlogError::Decompress { .. }), "{error}");
    }
    for len in 0..bytes.len() {
        let boundary = [0, 59, 148].contains(&len);
        let cut = payload(Compression::None, None, bytes[..len].to_vec());
        assert_eq!(read(cut, MAX_EVENT_BYTES).is_ok(), boundary, "{len}");
    }
}

#[test]
fn after_an_error_there_is_no_end() {
    let packed = compress(&[query(40), query(70)].concat());
    let cut = payload(Compression::Zstd, None, packed.slice(..packed.len() - 1));
    let mut reader = PayloadReader::new(cut, MAX_EVENT_BYTES).unwrap();
    while reader.next().is_ok() {}
    for _ in 0..3 {
        let error = reader.next().unwrap_err();
        assert!(matches!(error, BinlogError::AfterError { .. }), "{error}");
    }
}

#[test]
fn an_event_that_is_too_long_is_passed_over_and_shown() {
    let [before, long, behind] = [query(10), query(CHUNK_LEN + 5_000), query(20)];
    let bytes = [before.clone(), long.clone(), behind.clone()].concat();
    let header = Header::parse(&long).unwrap();
    let head = long.slice(Header::LEN..Header::LEN + Oversized::HEAD_LEN);
    let expected = [
        Inner::Event(before),
        Inner::Oversized(Oversized { header, head }),
        Inner::Event(behind),
    ];
    for payload in [
        payload(Compression::None, None, bytes.clone()),
        payload(Compression::Zstd, Some(bytes.len() as u64), compress(&bytes)),
    ] {
        assert_eq!(read(payload, long.len() - 1).unwrap(), expected);
    }
    // One that is shorter than a head is shown whole.
    let Inner::Oversized(short) = &read(payload(Compression::None, None, query(10)), 20).unwrap()[0] else {
        panic!("not too long")
    };
    assert_eq!(short.head, query(10).slice(Header::LEN..));
}

#[test]
fn an_event_that_only_says_it_is_long_is_an_error() {
    for len in [18, 100, 1 << 20, u32::MAX] {
        let mut event = query(40).to_vec();
        event[9..13].copy_from_slice(&len.to_le_bytes());
        for payload in [
            payload(Compression::None, None, event.clone()),
            payload(Compression::Zstd, None, compress(&event)),
        ] {
            read(payload, MAX_EVENT_BYTES).unwrap_err();
        }
    }
}

#[test]
fn a_payload_inside_a_payload_is_refused() {
    for kind in [KIND, EventKind::FORMAT_DESCRIPTION] {
        let inside = Sample::new(kind, [0; 9]).without_checksum();
        let error = read(payload(Compression::None, None, inside), MAX_EVENT_BYTES).unwrap_err();
        assert!(matches!(error, BinlogError::Inside { .. }), "{error}");
    }
}

#[test]
fn a_payload_that_expands_beyond_all_measure_is_read_in_bounded_steps() {
    const LEN: u32 = 1 << 30;
    let mut event = query(0).to_vec();
    event[9..13].copy_from_slice(&LEN.to_le_bytes());
    let mut rest = LEN as usize - event.len();
    // A frame of its own making is smaller still than the library's: blocks that say how often a byte comes.
    let mut packed = b"\x28\xB5\x2F\xFD\x00\x38".to_vec(); // a window of 128 KiB, the size not said
    let mut block = |kind: usize, len: usize, bytes: &[u8]| {
        let header = kind << 1 | len << 3;
        packed.extend(&header.to_le_bytes()[..3]);
        packed.extend(bytes);
    };
    block(RAW, event.len(), &event);
    while rest > 0 {
        let len = rest.min(128 << 10);
        block(REPEATED, len, b"x");
        rest -= len;
    }
    block(RAW, query(5).len(), &query(5));
    packed.extend([1, 0, 0]); // the last block, with nothing in it
    assert!(packed.len() < 40_000, "{}", packed.len());

    let size = u64::from(LEN) + query(5).len() as u64;
    let all = read(payload(Compression::Zstd, Some(size), packed.clone()), MAX_EVENT_BYTES).unwrap();
    assert!(matches!(&all[..], [Inner::Oversized(_), Inner::Event(behind)] if *behind == query(5)));

    // One that says less than it expands to is left at once.
    let mut reader = PayloadReader::new(payload(Compression::Zstd, Some(1_000), packed), MAX_EVENT_BYTES).unwrap();
    reader.next().unwrap();
    let error = reader.next().unwrap_err();
    let few = CHUNK_LEN as u64 + 1_000;
    assert!(
        matches!(error, BinlogError::Decompressed { found, .. } if found <= few),
        "{error}"
    );
}

proptest! {
    #[test]
    fn any_events_come_out_as_they_went_in(
        lens in prop::collection::vec(0..2_000_usize, 0..8),
        frame_len in 1..3_000_usize,
        max_event_bytes in 19..2_500_usize,
    ) {
        let events: Vec<_> = lens.into_iter().map(query).collect();
        let bytes = events.concat();
        let frames: Vec<u8> = bytes.chunks(frame_len).flat_map(compress).collect();
        let all = read(payload(Compression::Zstd, Some(bytes.len() as u64), frames), max_event_bytes).unwrap();
        prop_assert_eq!(all.len(), events.len());
        for (inner, event) in all.into_iter().zip(events) {
            match inner {
                Inner::Event(inner) => prop_assert_eq!(inner, event),
                Inner::Oversized(inner) => {
                    prop_assert!(event.len() > max_event_bytes);
                    prop_assert_eq!(inner.header.event_len(), event.len());
                    prop_assert!(event.slice(Header::LEN..).starts_with(&inner.head));
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_events_or_an_error(bytes: Vec<u8>, size: Option<u64>, zstd: bool) {
        let compression = if zstd { Compression::Zstd } else { Compression::None };
        let _ = read(payload(compression, size, bytes.clone()), MAX_EVENT_BYTES);
        let _ = read(payload(Compression::Zstd, size, compress(&bytes)), MAX_EVENT_BYTES);
    }

    #[test]
    fn damaged_payloads_are_events_or_an_error(at: prop::sample::Index, to: u8) {
        let bytes = [query(40), query(700), query(10)].concat();
        let mut packed = compress(&bytes).to_vec();
        *at.get_mut(&mut packed) = to;
        let _ = read(payload(Compression::Zstd, Some(bytes.len() as u64), packed), MAX_EVENT_BYTES);
    }
}
