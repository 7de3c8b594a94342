//! What a server is told before it streams its binlog, as bytes and statements. Pure.
//!
//! Protocol: MySQL source documentation, "Client/Server Protocol", page "Replication Protocol"; MariaDB documentation,
//! "Replication Protocol".

use std::time::Duration;

use bytes::{BufMut, BytesMut};

use crate::position::{BinlogPlace, MysqlBase, MysqlPosition};

use super::server::{Flavor, quote};
use super::session::HEARTBEAT;

const COM_BINLOG_DUMP: u8 = 0x12;
const COM_REGISTER_SLAVE: u8 = 0x15;
const COM_BINLOG_DUMP_GTID: u8 = 0x1E;
/// The set that follows is where to begin, not the file and offset.
const BINLOG_THROUGH_GTID: u16 = 0x04;
/// How SHOW REPLICAS names us.
const HOST: &[u8] = b"tailpost";

/// Statements before the dump. Variables that a server does not know mean nothing to it.
pub(super) fn settings(flavor: Flavor, position: &MysqlPosition, stall_timeout: Duration) -> Vec<String> {
    let heartbeat = HEARTBEAT.as_nanos();
    // The server ends a connection whose reader takes nothing for so long; we end it ourselves before.
    let patience = stall_timeout.as_secs().saturating_mul(2).clamp(120, 31_536_000);
    let mut settings = vec![
        // Servers refuse readers that do not say that they know checksums.
        "SET @master_binlog_checksum = 'CRC32', @source_binlog_checksum = 'CRC32'".to_owned(),
        format!("SET @master_heartbeat_period = {heartbeat}, @source_heartbeat_period = {heartbeat}"),
        format!("SET SESSION net_write_timeout = {patience}"),
    ];
    if flavor == Flavor::Mariadb {
        // 4: the reader knows GTID events; else they come as BEGIN.
        settings.push("SET @mariadb_slave_capability = 4".to_owned());
        if let MysqlBase::Mariadb(gtids) = position.begin().0 {
            settings.push(format!("SET @slave_connect_state = {}", quote(&gtids.to_string())));
            // A place that is not in the log is refused, not taken for the next one.
            settings.push("SET @slave_gtid_strict_mode = 1".to_owned());
        }
    }
    settings
}

/// COM_REGISTER_SLAVE: shows the reader to SHOW REPLICAS, and fails where the user may not replicate.
pub(super) fn register(server_id: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(32);
    out.put_u8(COM_REGISTER_SLAVE);
    out.put_u32_le(server_id);
    out.put_u8(HOST.len() as u8);
    out.put_slice(HOST);
    // No user and password to show, no port, the rank that nobody uses, and the source's id, which it knows.
    out.put_slice(&[0, 0]);
    out.put_u16_le(0);
    out.put_u32_le(0);
    out.put_u32_le(0);
    out
}

/// The command that starts the stream.
pub(super) fn command(server_id: u32, position: &MysqlPosition) -> Vec<u8> {
    let mut out = BytesMut::with_capacity(64);
    let (base, place) = position.begin();
    match base {
        MysqlBase::Gtids(set) => {
            let mut encoded = BytesMut::new();
            set.encode(&mut encoded);
            out.put_u8(COM_BINLOG_DUMP_GTID);
            out.put_u16_le(BINLOG_THROUGH_GTID);
            out.put_u32_le(server_id);
            out.put_u32_le(0);
            out.put_u64_le(BinlogPlace::FILE_START);
            // As long as memory holds it, and no set comes near 4 GiB.
            out.put_u32_le(u32::try_from(encoded.len()).unwrap_or(u32::MAX));
            out.put_slice(&encoded);
        }
        MysqlBase::Mariadb(_) => binlog_dump(&mut out, server_id, BinlogPlace::FILE_START, ""),
        MysqlBase::File(_) => binlog_dump(&mut out, server_id, place.pos, &place.file),
    }
    out.to_vec()
}

fn binlog_dump(out: &mut BytesMut, server_id: u32, pos: u64, file: &str) {
    out.put_u8(COM_BINLOG_DUMP);
    // Places beyond were refused before.
    out.put_u32_le(u32::try_from(pos).unwrap_or(u32::MAX));
    out.put_u16_le(0);
    out.put_u32_le(server_id);
    out.put_slice(file.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::{ByFile, ServerIdentity};

    fn position(base: MysqlBase) -> MysqlPosition {
        MysqlPosition {
            server: ServerIdentity { uuid: None, id: 1 },
            base,
            place: BinlogPlace {
                file: "binlog.000007".into(),
                pos: 0x0102_0304,
            },
            partial: Vec::new(),
            reread: None,
        }
    }

    #[test]
    fn a_place_in_a_file_is_asked_for_by_name_and_offset() {
        let command = command(9, &position(MysqlBase::File(ByFile)));
        assert_eq!(command, b"\x12\x04\x03\x02\x01\0\0\x09\0\0\0binlog.000007");
    }

    #[test]
    fn gtids_are_asked_for_without_a_file() {
        let set = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5".parse().unwrap();
        let command = command(9, &position(MysqlBase::Gtids(set)));
        assert_eq!(command[..11], *b"\x1e\x04\0\x09\0\0\0\0\0\0\0");
        assert_eq!(command[11..19], 4_u64.to_le_bytes());
        assert_eq!(command[19..23], 48_u32.to_le_bytes());
        assert_eq!(command.len(), 23 + 48);
    }

    #[test]
    fn mariadb_is_told_its_gtids_by_a_variable() {
        let position = position(MysqlBase::Mariadb("0-1-5,2-1-7".parse().unwrap()));
        let settings = settings(Flavor::Mariadb, &position, Duration::from_secs(60));
        assert!(
            settings.contains(&"SET @slave_connect_state = '0-1-5,2-1-7'".to_owned()),
            "{settings:?}"
        );
        assert_eq!(command(9, &position), b"\x12\x04\0\0\0\0\0\x09\0\0\0");
    }
}
