//! What a server says in place of its binlog.

use bytes::Bytes;

use super::error::MysqlError;
use super::packet::ServerError;
use super::stream::StreamOptions;

/// ER_MASTER_FATAL_ERROR_READING_BINLOG: everything that keeps the server from streaming, told apart by its text only.
const CANNOT_STREAM: u16 = 1236;

/// What a packet that is no event says.
pub(super) fn refusal(packet: &Bytes, options: &StreamOptions) -> MysqlError {
    let Some(error) = ServerError::parse(packet) else {
        return match packet.first() {
            // The end of the stream, which a server that is shut down or killed the connection may send.
            Some(0xFE) => MysqlError::Closed,
            _ => MysqlError::Malformed {
                expected: "an event, an error or the stream's end",
            },
        };
    };
    let says = |part: &str| error.message.contains(part);
    // MariaDB has a code of its own for it.
    if says("same server_uuid/server_id") {
        return MysqlError::DuplicateServerId {
            server_id: options.config.server_id,
        };
    }
    if error.code != CANNOT_STREAM {
        return MysqlError::server("stream the binlog", error);
    }
    let purged = says("purged required binary logs")
        || says("binlog files have been purged")
        || says("Could not find first log file name");
    if purged {
        return MysqlError::Purged {
            saved: Box::new(options.from.clone()),
            oldest: options.oldest.to_string(),
            detail: error.message,
        };
    }
    if says("more GTIDs than the source has")
        || says("which is not in the master's binlog")
        || says("even though both a prior and a subsequent sequence number does exist")
    {
        return MysqlError::Ahead {
            saved: Box::new(options.from.clone()),
            missing: error.message,
        };
    }
    MysqlError::server("stream the binlog", error)
}
