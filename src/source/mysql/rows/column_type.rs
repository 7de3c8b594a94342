//! The types that a table map gives its columns: how a cell of each is laid out, before any charset or sign is known.
//!
//! Codes and metadata: `enum_field_types` and `Table_map_event` in MySQL's source, `COLUMN_TYPE` 140 and 141 in MariaDB's.

use std::fmt;

use super::decimal::{self, DecimalError};
use super::reader::{ReadError, Reader};
use super::table_map::Flavor;

/// How a column's cells are laid out in a rows event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColumnType {
    /// TINYINT to BIGINT.
    Integer {
        bytes: u8,
    },
    Year,
    Float,
    Double,
    Decimal {
        precision: u8,
        scale: u8,
        bytes: u8,
    },
    Bit {
        bits: u16,
    },
    Date,
    Time {
        digits: u8,
    },
    DateTime {
        digits: u8,
    },
    Timestamp {
        digits: u8,
    },
    /// In the format before MySQL 5.6, which MariaDB can still write. The log does not hold its fractional digits,
    /// which its length depends on.
    OldTime,
    OldDateTime,
    OldTimestamp,
    /// CHAR and BINARY of up to so many bytes.
    Char {
        bytes: u16,
    },
    /// VARCHAR and VARBINARY of up to so many bytes.
    VarChar {
        bytes: u16,
    },
    /// TEXT and BLOB of each size, behind a length of so many bytes.
    Blob {
        length_bytes: u8,
    },
    /// MariaDB's VARCHAR COMPRESSED, of up to so many bytes with its header.
    CompressedVarChar {
        bytes: u16,
    },
    CompressedBlob {
        length_bytes: u8,
    },
    Enum {
        bytes: u8,
    },
    Set {
        bytes: u8,
    },
    Json {
        length_bytes: u8,
    },
    Geometry {
        length_bytes: u8,
    },
    Vector {
        length_bytes: u8,
    },
}

/// Why a column's type can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TypeError {
    #[error("column type {found} is unknown")]
    Unknown { found: u8 },
    #[error("fractional digits are {found}, expected at most 6")]
    FractionalDigits { found: u8 },
    #[error("bits are {found}, expected 1 to 64")]
    Bits { found: u16 },
    #[error("length or number has {found} bytes, expected 1 to {expected}")]
    Width { found: u8, expected: u8 },
    #[error(transparent)]
    Decimal(#[from] DecimalError),
    #[error(transparent)]
    Read(#[from] ReadError),
}

const METADATA: &str = "column metadata";

impl ColumnType {
    /// Reads the metadata that belongs to the type with this code.
    pub(super) fn read(code: u8, metadata: &mut Reader<'_>) -> Result<Self, TypeError> {
        Ok(match code {
            1 => Self::Integer { bytes: 1 },
            2 => Self::Integer { bytes: 2 },
            3 => Self::Integer { bytes: 4 },
            4 => {
                metadata.u8(METADATA)?;
                Self::Float
            }
            5 => {
                metadata.u8(METADATA)?;
                Self::Double
            }
            7 => Self::OldTimestamp,
            8 => Self::Integer { bytes: 8 },
            9 => Self::Integer { bytes: 3 },
            // 14 is the name of the same format inside the server.
            10 | 14 => Self::Date,
            11 => Self::OldTime,
            12 => Self::OldDateTime,
            13 => Self::Year,
            15 => Self::VarChar { bytes: u16(metadata)? },
            16 => bit(metadata)?,
            17 => Self::Timestamp {
                digits: digits(metadata)?,
            },
            18 => Self::DateTime {
                digits: digits(metadata)?,
            },
            19 => Self::Time {
                digits: digits(metadata)?,
            },
            140 => Self::CompressedBlob {
                length_bytes: width(metadata, 4)?,
            },
            141 => Self::CompressedVarChar { bytes: u16(metadata)? },
            242 => Self::Vector {
                length_bytes: width(metadata, 4)?,
            },
            245 => Self::Json {
                length_bytes: width(metadata, 4)?,
            },
            246 => decimal(metadata)?,
            247 | 248 | 254 => string(metadata)?,
            252 => Self::Blob {
                length_bytes: width(metadata, 4)?,
            },
            255 => Self::Geometry {
                length_bytes: width(metadata, 4)?,
            },
            found => return Err(TypeError::Unknown { found }),
        })
    }

    /// Whether the column has a bit in the map's SIGNEDNESS.
    pub(super) fn is_numeric(self) -> bool {
        matches!(
            self,
            Self::Integer { .. } | Self::Year | Self::Float | Self::Double | Self::Decimal { .. }
        )
    }

    /// Whether the column holds text in its charset, or bytes.
    pub(super) fn is_string(self) -> bool {
        matches!(
            self,
            Self::Char { .. }
                | Self::VarChar { .. }
                | Self::Blob { .. }
                | Self::CompressedVarChar { .. }
                | Self::CompressedBlob { .. }
        )
    }

    /// Whether the map's DEFAULT_CHARSET and COLUMN_CHARSET count the column: some that have no charset too.
    pub(super) fn has_charset_entry(self, flavor: Flavor) -> bool {
        match self {
            Self::Vector { .. } => true,
            Self::Geometry { .. } => flavor == Flavor::MariaDb,
            _ => self.is_string(),
        }
    }
}

/// As in a column's definition where the log holds enough for that.
impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Integer { bytes } => write!(f, "an integer of {bytes} bytes"),
            Self::Year => f.write_str("YEAR"),
            Self::Float => f.write_str("FLOAT"),
            Self::Double => f.write_str("DOUBLE"),
            Self::Decimal { precision, scale, .. } => write!(f, "DECIMAL({precision},{scale})"),
            Self::Bit { bits } => write!(f, "BIT({bits})"),
            Self::Date => f.write_str("DATE"),
            Self::Time { digits } => write!(f, "TIME({digits})"),
            Self::DateTime { digits } => write!(f, "DATETIME({digits})"),
            Self::Timestamp { digits } => write!(f, "TIMESTAMP({digits})"),
            Self::OldTime => f.write_str("TIME in the old format"),
            Self::OldDateTime => f.write_str("DATETIME in the old format"),
            Self::OldTimestamp => f.write_str("TIMESTAMP in the old format"),
            Self::Char { bytes } => write!(f, "CHAR or BINARY of {bytes} bytes"),
            Self::VarChar { bytes } => write!(f, "VARCHAR or VARBINARY of {bytes} bytes"),
            Self::Blob { length_bytes } => write!(f, "TEXT or BLOB with lengths of {length_bytes} bytes"),
            Self::CompressedVarChar { bytes } => write!(f, "VARCHAR COMPRESSED of {bytes} bytes"),
            Self::CompressedBlob { length_bytes } => {
                write!(f, "TEXT or BLOB COMPRESSED with lengths of {length_bytes} bytes")
            }
            Self::Enum { bytes } => write!(f, "ENUM of {bytes} bytes"),
            Self::Set { bytes } => write!(f, "SET of {bytes} bytes"),
            Self::Json { .. } => f.write_str("JSON"),
            Self::Geometry { .. } => f.write_str("GEOMETRY"),
            Self::Vector { .. } => f.write_str("VECTOR"),
        }
    }
}

fn u16(metadata: &mut Reader<'_>) -> Result<u16, TypeError> {
    let bytes = metadata.take(METADATA, 2)?;
    Ok(bytes
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u16::from(*byte)))
}

fn width(metadata: &mut Reader<'_>, expected: u8) -> Result<u8, TypeError> {
    in_width(metadata.u8(METADATA)?, expected)
}

fn in_width(found: u8, expected: u8) -> Result<u8, TypeError> {
    if (1..=expected).contains(&found) {
        Ok(found)
    } else {
        Err(TypeError::Width { found, expected })
    }
}

fn digits(metadata: &mut Reader<'_>) -> Result<u8, TypeError> {
    match metadata.u8(METADATA)? {
        digits @ 0..=6 => Ok(digits),
        found => Err(TypeError::FractionalDigits { found }),
    }
}

fn decimal(metadata: &mut Reader<'_>) -> Result<ColumnType, TypeError> {
    let (precision, scale) = (metadata.u8(METADATA)?, metadata.u8(METADATA)?);
    let bytes = decimal::decimal_len(precision, scale)?;
    Ok(ColumnType::Decimal {
        precision,
        scale,
        // At most 36.
        bytes: u8::try_from(bytes).unwrap_or(u8::MAX),
    })
}

/// The bits over whole bytes, then the whole bytes.
fn bit(metadata: &mut Reader<'_>) -> Result<ColumnType, TypeError> {
    let (over, whole) = (metadata.u8(METADATA)?, metadata.u8(METADATA)?);
    match u16::from(whole) * 8 + u16::from(over) {
        bits @ 1..=64 if over < 8 => Ok(ColumnType::Bit { bits }),
        found => Err(TypeError::Bits { found }),
    }
}

/// CHAR, ENUM and SET share a type code: the first byte of the metadata holds the real one. Of a CHAR over 255 bytes it
/// holds two bits of the length as well, inverted in the place of two bits that every real code has set.
fn string(metadata: &mut Reader<'_>) -> Result<ColumnType, TypeError> {
    let (code, low) = (metadata.u8(METADATA)?, metadata.u8(METADATA)?);
    match code | 0x30 {
        254 => Ok(ColumnType::Char {
            bytes: u16::from(!code & 0x30) << 4 | u16::from(low),
        }),
        247 if code == 247 => Ok(ColumnType::Enum {
            bytes: in_width(low, 2)?,
        }),
        248 if code == 248 => Ok(ColumnType::Set {
            bytes: in_width(low, 8)?,
        }),
        _ => Err(TypeError::Unknown { found: code }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(code: u8, metadata: &[u8]) -> Result<ColumnType, TypeError> {
        let mut reader = Reader::new(metadata);
        let found = ColumnType::read(code, &mut reader)?;
        assert!(reader.is_empty(), "type {code}");
        Ok(found)
    }

    #[test]
    fn char_lengths_over_255_bytes_are_put_together() {
        for (metadata, bytes) in [
            ([0xFE, 0x10], 16),
            ([0xFE, 0xFF], 255),
            ([0xEE, 0x00], 256),
            ([0xCE, 0xFC], 1020),
        ] {
            assert_eq!(read(254, &metadata), Ok(ColumnType::Char { bytes }));
        }
    }

    #[test]
    fn metadata_that_no_server_writes_is_an_error() {
        let cases: [(u8, &[u8], &str); 12] = [
            (0, b"", "column type 0 is unknown"),
            (20, b"\x01\x04", "column type 20 is unknown"),
            (253, b"\x10\x00", "column type 253 is unknown"),
            (254, b"\xF5\x04", "column type 245 is unknown"),
            (247, b"\xC7\x01", "column type 199 is unknown"),
            (247, b"\xF7\x03", "length or number has 3 bytes, expected 1 to 2"),
            (252, b"\x05", "length or number has 5 bytes, expected 1 to 4"),
            (245, b"\x00", "length or number has 0 bytes, expected 1 to 4"),
            (19, b"\x07", "fractional digits are 7, expected at most 6"),
            (16, b"\x01\x08", "bits are 65, expected 1 to 64"),
            (
                246,
                b"\x02\x03",
                "decimal(2,3) does not exist: expected a precision of 1 to 81 and a scale up to it",
            ),
            (15, b"\x10", "column metadata is cut: found 1 bytes, expected 2"),
        ];
        for (code, metadata, expected) in cases {
            let error = ColumnType::read(code, &mut Reader::new(metadata)).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }
}
