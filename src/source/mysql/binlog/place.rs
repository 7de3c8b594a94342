//! Where the stream is: ROTATE, which names the file that follows, and the heartbeats of an idle server.

use super::error::BinlogError;
use super::format::FormatDescription;
use super::header::Header;
use super::reader::Reader;

/// Types of HEARTBEAT_V2's fields.
mod field {
    pub(super) const END: u64 = 0;
    pub(super) const FILE: u64 = 1;
    pub(super) const POSITION: u64 = 2;
}

/// The file that the next events are of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rotate {
    pub file: String,
    /// Where the next event starts. In one that is made up at the start, as asked for: it need not be 4.
    pub position: u64,
}

/// How far an idle server has sent, or skipped what was not asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Heartbeat {
    pub file: String,
    pub position: HeartbeatPosition,
}

/// A heartbeat's place in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeartbeatPosition {
    Exact(u64),
    /// Only the lowest 32 bits: in MySQL's older event, of a file of which nobody knows whether it has passed 4 GiB.
    Low32(u32),
}

impl Rotate {
    pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Self, BinlogError> {
        Ok(Self {
            position: reader.u64("position")?,
            file: file_name(reader)?,
        })
    }
}

impl Heartbeat {
    /// `format` is None before the first FORMAT_DESCRIPTION.
    pub(super) fn parse(
        header: &Header,
        format: Option<&FormatDescription>,
        reader: &mut Reader<'_>,
    ) -> Result<Self, BinlogError> {
        let mariadb = format.is_some_and(|format| format.mariadb);
        let position = match header.next_position {
            // MariaDB writes the position behind the header where the header's 32 bits do not hold it.
            0 if mariadb => HeartbeatPosition::Exact(reader.u64("position")?),
            low if mariadb => HeartbeatPosition::Exact(u64::from(low)),
            low => HeartbeatPosition::Low32(low),
        };
        let file = file_name(reader)?;
        Ok(Self { file, position })
    }

    /// HEARTBEAT_V2, which MySQL sends from 8.0.26 to a reader that asks for it: type, length and value of each field, as
    /// length-encoded integers.
    pub(super) fn parse_v2(reader: &mut Reader<'_>) -> Result<Self, BinlogError> {
        let kind = reader.kind();
        let (mut file, mut position) = (None, None);
        loop {
            let of = reader.length_encoded("field type")?;
            if of == field::END {
                break;
            }
            let length = reader.length_encoded("field length")?;
            let value = reader.bytes("field", length)?;
            let mut value = Reader::new(kind, &value);
            match of {
                field::FILE => file = Some(file_name(&mut value)?),
                field::POSITION => {
                    position = Some(value.length_encoded("position")?);
                    value.finish()?;
                }
                _ => {}
            }
        }
        let missing = |field| BinlogError::Missing { kind, field };
        Ok(Self {
            file: file.ok_or(missing("file"))?,
            position: HeartbeatPosition::Exact(position.ok_or(missing("position"))?),
        })
    }
}

/// The rest of the data is a binlog file's name: a base, a dot and digits.
///
/// Whether a made-up event ends in a checksum is found out by computing it, so that a damaged one looks like a name with
/// four bytes more. A name that is taken from it would be a position in no file.
fn file_name(reader: &mut Reader<'_>) -> Result<String, BinlogError> {
    let name = reader.rest();
    let text = str::from_utf8(&name).ok().filter(|text| is_file_name(text));
    text.map(str::to_owned).ok_or_else(|| BinlogError::FileName {
        kind: reader.kind(),
        found: excerpt(&name),
    })
}

fn is_file_name(text: &str) -> bool {
    text.rsplit_once('.').is_some_and(|(base, number)| {
        let numbered = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        numbered && !base.is_empty() && !base.contains(char::is_control)
    })
}

/// Enough of a wrong name to find it by, without what a terminal would act on.
fn excerpt(name: &[u8]) -> String {
    const MAX_CHARS: usize = 64;
    let text = String::from_utf8_lossy(name);
    text.chars().take(MAX_CHARS).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests;
