use super::*;
use crate::source::mysql::binlog::Event;
use crate::source::mysql::binlog::sample::{decode, mysql};

const SOURCE: [u8; 16] = *b"\x38\x54\x79\xFE\xEA\xB3\x11\xF1\x82\x84\x02\xFC\x00\x00\x00\x01";

fn gtid(kind: EventKind, data: impl Into<Vec<u8>>) -> Result<GtidEvent, BinlogError> {
    match decode(&mut mysql(), kind, data)? {
        Event::Gtid(gtid) => Ok(gtid),
        other => panic!("{other:?}"),
    }
}

/// Flags, source, number, logical clocks, and what is behind them.
fn untagged(flags: u8, number: u64, behind: &[u8]) -> Vec<u8> {
    [&[flags], &SOURCE[..], &number.to_le_bytes(), &[2], &[9; 16], behind].concat()
}

/// As every integer of a tagged event is written when it is less than 2^28.
fn int(value: u32) -> Vec<u8> {
    (value << 4 | 0b0111).to_le_bytes().to_vec()
}

/// A message with its size: which last field must be known, and the fields.
fn tagged(needed: u32, fields: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let fields: Vec<u8> = fields
        .iter()
        .flat_map(|(id, value)| [int(*id), value.clone()].concat())
        .collect();
    let rest = [int(needed), fields].concat();
    let size = u32::try_from(4 + 4 + rest.len()).unwrap();
    [int(1), int(size), rest].concat()
}

fn source() -> (u32, Vec<u8>) {
    (1, SOURCE.iter().flat_map(|byte| int(u32::from(*byte))).collect())
}

/// Not negative.
fn number(number: u32) -> (u32, Vec<u8>) {
    (2, int(number << 1))
}

fn tag(tag: &str) -> (u32, Vec<u8>) {
    (3, [int(u32::try_from(tag.len()).unwrap()), tag.into()].concat())
}

#[test]
fn an_anonymous_transaction_has_no_gtid() {
    let anonymous = gtid(EventKind::ANONYMOUS_GTID, untagged(1, 0, &[])).unwrap();
    let expected = GtidEvent {
        gtid: None,
        rows_only: false,
        commit_time_us: None,
        original_commit_time_us: None,
        transaction_length: None,
    };
    assert_eq!(anonymous, expected);
    let error = gtid(EventKind::ANONYMOUS_GTID, untagged(1, 7, &[])).unwrap_err();
    let expected = "binlog event ANONYMOUS_GTID has the transaction number 7: expected 0";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_replica_s_log_has_both_commit_times() {
    let times = b"\x03\x00\x00\x00\x00\x00\x80\x02\x00\x00\x00\x00\x00\x00\xFC\x2C\x01";
    let event = gtid(EventKind::GTID, untagged(0, 7, times)).unwrap();
    assert_eq!(
        (event.commit_time_us, event.original_commit_time_us),
        (Some(3), Some(2))
    );
    assert_eq!((event.transaction_length, event.rows_only), (Some(300), true));
    assert_eq!(
        event.gtid.unwrap().to_string(),
        "385479fe-eab3-11f1-8284-02fc00000001:7"
    );

    let time = b"\x03\x00\x00\x00\x00\x00\x00";
    let event = gtid(EventKind::GTID, untagged(0, 7, time)).unwrap();
    assert_eq!(
        (event.commit_time_us, event.original_commit_time_us),
        (Some(3), Some(3))
    );
    assert_eq!(event.transaction_length, None);
}

#[test]
fn numbers_that_no_transaction_has_are_errors() {
    for number in [0, i64::MAX.unsigned_abs(), u64::MAX] {
        let error = gtid(EventKind::GTID, untagged(0, number, &[])).unwrap_err();
        assert!(matches!(error, BinlogError::Gtid { .. }), "{error}");
    }
    for encoded in [0, 3] {
        let fields = [source(), (2, int(encoded))]; // 0 and -2
        let error = gtid(EventKind::GTID_TAGGED, tagged(0, &fields)).unwrap_err();
        assert!(matches!(error, BinlogError::Gtid { .. }), "{error}");
    }
    let mut old = untagged(0, 7, &[]);
    old[25] = 1;
    gtid(EventKind::GTID, old).unwrap_err();
}

#[test]
fn every_field_of_a_tagged_one_is_read() {
    let fields = [
        (0, int(1)),
        source(),
        number(7),
        tag("blue"),
        (4, int(2)),
        (5, int(4)),
        (6, int(30)),
        (7, int(20)),
        (8, int(400)),
        (9, int(90_704)),
        (10, int(80_036)),
        (11, int(5)),
    ];
    let event = gtid(EventKind::GTID_TAGGED, tagged(12, &fields)).unwrap();
    assert_eq!(
        event.gtid.unwrap().to_string(),
        "385479fe-eab3-11f1-8284-02fc00000001:blue:7"
    );
    assert_eq!(
        (event.commit_time_us, event.original_commit_time_us),
        (Some(30), Some(20))
    );
    assert_eq!((event.transaction_length, event.rows_only), (Some(400), false));
}

#[test]
fn a_field_of_a_newer_server_is_ignored_unless_it_must_be_known() {
    let fields = [source(), number(7), tag("blue"), (12, b"anything".to_vec())];
    assert!(gtid(EventKind::GTID_TAGGED, tagged(12, &fields)).is_ok());
    let error = gtid(EventKind::GTID_TAGGED, tagged(13, &fields))
        .unwrap_err()
        .to_string();
    let expected = "binlog event GTID_TAGGED has the last field that must be known 13: expected 12 or less";
    assert_eq!(error, expected);
}

#[test]
fn a_tagged_one_that_is_not_as_it_says_is_an_error() {
    let good = [source(), number(7), tag("blue")];
    assert!(gtid(EventKind::GTID_TAGGED, tagged(0, &good)).is_ok());
    for fields in [
        &good[1..],
        &[source(), tag("blue")],
        &[number(7), source(), tag("blue")],
        &[source(), source(), number(7)],
        &[source(), number(7), tag("1blue")],
        &[source(), number(7), tag("a tag that is longer than tags are")],
        &[source(), number(7), (3, int(1_000))],
        &[(0, int(256)), source(), number(7)],
    ] {
        gtid(EventKind::GTID_TAGGED, tagged(0, fields)).unwrap_err();
    }
    let whole = tagged(0, &good);
    let other_version = [int(2), whole[4..].to_vec()].concat();
    let longer = [whole.as_slice(), &int(8), &int(400)].concat();
    for data in [other_version, longer, whole[..whole.len() - 1].to_vec()] {
        gtid(EventKind::GTID_TAGGED, data).unwrap_err();
    }
}
