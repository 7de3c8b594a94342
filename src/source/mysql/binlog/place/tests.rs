use super::*;
use crate::source::mysql::binlog::sample::{Sample, mariadb, mysql};
use crate::source::mysql::binlog::{Event, EventDecoder, EventKind};

fn heartbeat(mut decoder: EventDecoder, sample: &Sample) -> Result<Heartbeat, BinlogError> {
    match decoder.decode(sample.with_checksum())? {
        (_, Event::Heartbeat(heartbeat)) => Ok(heartbeat),
        other => panic!("{other:?}"),
    }
}

fn at(next_position: u32, data: &[u8]) -> Sample {
    Sample {
        flags: 0,
        next_position,
        ..Sample::made_up(EventKind::HEARTBEAT, data)
    }
}

#[test]
fn only_mariadb_says_positions_beyond_4_gib() {
    let file = b"binlog.000007";
    let plain = at(943, file);
    assert_eq!(
        heartbeat(mysql(), &plain).unwrap().position,
        HeartbeatPosition::Low32(943)
    );
    assert_eq!(
        heartbeat(mariadb(), &plain).unwrap().position,
        HeartbeatPosition::Exact(943)
    );

    let far = at(0, &[&(1_u64 << 40).to_le_bytes(), file.as_slice()].concat());
    let beat = heartbeat(mariadb(), &far).unwrap();
    assert_eq!(
        (beat.file.as_str(), beat.position),
        ("binlog.000007", HeartbeatPosition::Exact(1 << 40))
    );
    assert_eq!(
        heartbeat(mysql(), &at(0, file)).unwrap().position,
        HeartbeatPosition::Low32(0)
    );
}

#[test]
fn the_newer_heartbeat_has_fields_in_any_order() {
    let name = [b"\x01\x0D".as_slice(), b"binlog.000007"].concat();
    let position = [b"\x02\x09\xFE".as_slice(), &(1_u64 << 40).to_le_bytes()].concat();
    let unknown = b"\x07\x02ab".to_vec();
    for fields in [[&name, &position, &unknown], [&unknown, &position, &name]] {
        let data = [fields.map(Vec::as_slice).concat(), vec![0]].concat();
        let sample = Sample::made_up(EventKind::HEARTBEAT_V2, data);
        let beat = heartbeat(mysql(), &sample).unwrap();
        assert_eq!(
            (beat.file.as_str(), beat.position),
            ("binlog.000007", HeartbeatPosition::Exact(1 << 40))
        );
    }
    for data in [
        [name.as_slice(), &[0]].concat(),
        [position.as_slice(), &[0]].concat(),
        [name.as_slice(), &position].concat(),
        [name.as_slice(), &position, &[0, 0]].concat(),
        [name.as_slice(), b"\x02\x02\x09\x09\x00"].concat(),
    ] {
        let sample = Sample::made_up(EventKind::HEARTBEAT_V2, data);
        heartbeat(mysql(), &sample).unwrap_err();
    }
}

#[test]
fn a_name_that_no_file_has_is_an_error() {
    let rotate = |name: &[u8]| {
        let data = [&4_u64.to_le_bytes(), name].concat();
        let event = Sample::made_up(EventKind::ROTATE, data).without_checksum();
        EventDecoder::new(0).decode(event)
    };
    for name in ["binlog.000001", "a.b.1", "mysql-bin.1000000", "böse datei.000001"] {
        assert!(matches!(rotate(name.as_bytes()), Ok((_, Event::Rotate(Rotate { file, .. }))) if file == name));
    }
    for name in [
        "",
        "binlog",
        ".000001",
        "binlog.",
        "binlog.00000x",
        "bin\nlog.000001",
        "binlog.000001\0",
    ] {
        rotate(name.as_bytes()).unwrap_err();
    }
    let error = rotate(b"binlog.000001\x93\x0A\x1B\xDE").unwrap_err().to_string();
    let expected = "binlog event ROTATE names the file `binlog.000001\u{FFFD}\\n\\u{1b}\u{FFFD}`: expected a binlog's name, which ends with a dot and digits";
    assert_eq!(error, expected);
}
