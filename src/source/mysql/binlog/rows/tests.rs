use super::*;
use crate::source::mysql::binlog::Event;
use crate::source::mysql::binlog::sample::{
    self, MAX_EVENT_BYTES, compressed, decode, format_data, mariadb, mysql, post_header_lens, zlib,
};

const ID: &[u8] = b"\x21\x43\x65\x00\x00\x00";
/// The last of a statement.
const FLAGS: &[u8] = b"\x01\x00";

fn rows(event: Event) -> RowsEvent {
    match event {
        Event::Rows(rows) => rows,
        other => panic!("{other:?}"),
    }
}

#[test]
fn extra_data_of_version_2_is_passed_over() {
    for extra in [b"\x02\x00".as_slice(), b"\x05\x00\x01\x02\x03"] {
        let data = [ID, FLAGS, extra, b"body"].concat();
        for (kind, expected) in [
            (EventKind::WRITE_ROWS, RowsKind::Write),
            (EventKind::UPDATE_ROWS, RowsKind::Update),
            (EventKind::DELETE_ROWS, RowsKind::Delete),
            (EventKind::PARTIAL_UPDATE_ROWS, RowsKind::PartialUpdate),
        ] {
            let head = RowsHead {
                kind: expected,
                table_id: 0x65_4321,
                statement_end: true,
            };
            let event = rows(decode(&mut mysql(), kind, data.as_slice()).unwrap());
            assert_eq!((event.head, &event.body[..]), (head, b"body".as_slice()));
        }
    }
    for extra in [b"\x01\x00".as_slice(), b"\x00\x00", b"\xFF\xFF", b"\x07\x00"] {
        let data = [ID, FLAGS, extra, b"body"].concat();
        decode(&mut mysql(), EventKind::WRITE_ROWS, data).unwrap_err();
    }
}

#[test]
fn old_table_ids_have_four_bytes() {
    let mut lens = post_header_lens();
    for kind in [EventKind::TABLE_MAP, EventKind::WRITE_ROWS_V1] {
        lens[usize::from(kind.0) - 1] = 6;
    }
    let mut decoder = sample::decoder(&format_data("5.1.0", &lens, 0));
    let data = [&ID[..4], b"\x00\x00", b"body"].concat();
    let event = rows(decode(&mut decoder, EventKind::WRITE_ROWS_V1, data.as_slice()).unwrap());
    assert_eq!((event.head.table_id, event.head.statement_end), (0x65_4321, false));
    assert_eq!(event.body, "body");
    let event = decode(&mut decoder, EventKind::TABLE_MAP, data).unwrap();
    let body = Bytes::from("body");
    assert_eq!(
        event,
        Event::TableMap(TableMap {
            table_id: 0x65_4321,
            body
        })
    );
}

#[test]
fn the_end_of_a_statement_without_rows_is_of_no_table() {
    let data = [b"\xFF\xFF\xFF\x00\x00\x00".as_slice(), FLAGS, b"\x02\x00"].concat();
    assert!(
        rows(decode(&mut mysql(), EventKind::WRITE_ROWS, data).unwrap())
            .head
            .is_dummy()
    );
    let data = [ID, FLAGS, b"\x02\x00"].concat();
    assert!(
        !rows(decode(&mut mysql(), EventKind::WRITE_ROWS, data).unwrap())
            .head
            .is_dummy()
    );
}

#[test]
fn a_post_header_of_another_length_is_an_error() {
    for (kind, len) in [
        (EventKind::WRITE_ROWS, 12),
        (EventKind::WRITE_ROWS, 0),
        (EventKind::TABLE_MAP, 10),
        (EventKind::QUERY, 12),
    ] {
        let mut lens = post_header_lens();
        lens[usize::from(kind.0) - 1] = len;
        let mut decoder = sample::decoder(&format_data("8.4.0", &lens, 0));
        let error = decode(&mut decoder, kind, [0; 40]).unwrap_err();
        assert!(
            matches!(
                error,
                BinlogError::Field {
                    field: "post-header length",
                    ..
                }
            ),
            "{error}"
        );
    }
    // MariaDB's kinds in a stream of MySQL.
    let error = decode(&mut mysql(), EventKind::WRITE_ROWS_COMPRESSED_V1, [0; 40]).unwrap_err();
    assert!(matches!(error, BinlogError::Missing { .. }), "{error}");
}

#[test]
fn compressed_rows_look_like_others() {
    let inside = [7; 300];
    for (kind, expected, columns) in [
        (
            EventKind::WRITE_ROWS_COMPRESSED_V1,
            RowsKind::Write,
            b"\x09\xFF\x01".as_slice(),
        ),
        (
            EventKind::UPDATE_ROWS_COMPRESSED_V1,
            RowsKind::Update,
            b"\x09\xFF\x01\xFF\x01",
        ),
        (EventKind::DELETE_ROWS_COMPRESSED_V1, RowsKind::Delete, b"\x09\xFF\x01"),
        (
            EventKind::UPDATE_ROWS_COMPRESSED,
            RowsKind::Update,
            b"\x09\xFF\x01\xFF\x01",
        ),
    ] {
        let extra = if kind == EventKind::UPDATE_ROWS_COMPRESSED {
            b"\x03\x00x".as_slice()
        } else {
            b""
        };
        let data = [ID, FLAGS, extra, columns, &compressed(300, &zlib(&inside))].concat();
        let event = rows(decode(&mut mariadb(), kind, data).unwrap());
        assert_eq!(event.head.kind, expected);
        assert_eq!(event.body, [columns, &inside].concat());
    }
}

fn write_compressed(columns: &[u8], part: &[u8]) -> Result<Event, BinlogError> {
    let data = [ID, FLAGS, columns, part].concat();
    decode(&mut mariadb(), EventKind::WRITE_ROWS_COMPRESSED_V1, data)
}

#[test]
fn rows_that_expand_beyond_the_limit_say_what_they_are_of() {
    let error = write_compressed(b"\x01\x01", &compressed(MAX_EVENT_BYTES - 1, &zlib(b"few"))).unwrap_err();
    let BinlogError::Expands { size, limit, rows, .. } = error else {
        panic!("{error}")
    };
    assert_eq!((size, limit), (MAX_EVENT_BYTES as u64 + 1, MAX_EVENT_BYTES));
    let head = rows.unwrap();
    assert_eq!(
        (head.kind, head.table_id, head.statement_end),
        (RowsKind::Write, 0x65_4321, true)
    );

    let most = vec![7; MAX_EVENT_BYTES - 2];
    assert!(write_compressed(b"\x01\x01", &compressed(most.len(), &zlib(&most))).is_ok());
}
