//! QUERY: a statement that was logged as text, or BEGIN, COMMIT and their like, which hold rows together.
//!
//! Layout: `Query_event` in MySQL's `libs/mysql/binlog/event/statement_events`. EXECUTE_LOAD_QUERY is the same with a
//! longer post-header, MariaDB's QUERY_COMPRESSED with the text compressed.

use bytes::Bytes;

use super::error::BinlogError;
use super::format::FormatDescription;
use super::inflate::Compressed;
use super::kind::EventKind;
use super::reader::Reader;

/// Thread, duration, schema length, error, length of the session's variables.
const POST_HEADER_LEN: u8 = 4 + 4 + 1 + 2 + 2;

/// A statement's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Query {
    /// Of the client's connection.
    pub thread_id: u32,
    /// The error that the statement ended with after it had changed something; 0 for none.
    pub error_code: u16,
    /// The session's default; the text can name others. Empty: none.
    pub schema: String,
    /// In the client's character set.
    pub text: Bytes,
}

impl Query {
    /// # Errors
    /// [`BinlogError::Expands`] when compressed text is longer than `max_event_bytes`.
    pub(super) fn parse(
        format: &FormatDescription,
        max_event_bytes: usize,
        reader: &mut Reader<'_>,
    ) -> Result<Self, BinlogError> {
        let kind = reader.kind();
        let post_header_len = format.post_header_len(kind)?;
        let Some(more) = post_header_len.checked_sub(POST_HEADER_LEN) else {
            return Err(reader.unexpected("post-header length", post_header_len, "13 or more"));
        };
        let thread_id = reader.u32("thread id")?;
        reader.skip("duration", 4)?;
        let schema_len = reader.u8("schema length")?;
        let error_code = reader.u16("error code")?;
        let variables_len = reader.u16("length of variables")?;
        reader.skip("post-header", u64::from(more))?;
        reader.skip("variables", u64::from(variables_len))?;
        let schema = reader.text("schema", u64::from(schema_len))?;
        let end = reader.u8("schema's end")?;
        if end != 0 {
            return Err(reader.unexpected("schema's end", end, "a zero byte"));
        }
        let text = if kind == EventKind::QUERY_COMPRESSED {
            let compressed = Compressed::parse(reader)?;
            let size = compressed.len();
            if size > max_event_bytes as u64 {
                return Err(BinlogError::Expands {
                    kind,
                    size,
                    limit: max_event_bytes,
                    rows: None,
                });
            }
            compressed.inflate(Vec::new())?
        } else {
            reader.rest()
        };
        Ok(Self {
            thread_id,
            error_code,
            schema,
            text,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::mysql::binlog::Event;
    use crate::source::mysql::binlog::sample::{MAX_EVENT_BYTES, compressed, decode, mariadb, mysql, zlib};

    /// Thread, duration, schema's length, error, length of variables.
    fn post_header(schema_len: u8, variables_len: u16) -> Vec<u8> {
        [
            7_u32.to_le_bytes().as_slice(),
            &[0; 4],
            &[schema_len],
            &1_062_u16.to_le_bytes(),
            &variables_len.to_le_bytes(),
        ]
        .concat()
    }

    #[test]
    fn statements_are_read_from_each_of_their_kinds() {
        let text = b"load data ...";
        let expected = Query {
            thread_id: 7,
            error_code: 1_062,
            schema: "shop".into(),
            text: Bytes::from_static(text),
        };
        let behind = [b"abc".as_slice(), b"shop\0"].concat();
        for (decoder, kind, more, text) in [
            (&mut mysql(), EventKind::QUERY, 0, text.to_vec()),
            (&mut mysql(), EventKind::EXECUTE_LOAD_QUERY, 13, text.to_vec()),
            (
                &mut mariadb(),
                EventKind::QUERY_COMPRESSED,
                0,
                compressed(text.len(), &zlib(text)),
            ),
        ] {
            let data = [post_header(4, 3).as_slice(), &vec![9; more], &behind, &text].concat();
            assert_eq!(decode(decoder, kind, data).unwrap(), Event::Query(expected.clone()));
        }
    }

    #[test]
    fn statements_whose_parts_do_not_fit_are_errors() {
        let behind = b"abcshop\0BEGIN";
        for (schema_len, variables_len) in [(3, 3), (5, 3), (4, 2), (4, u16::MAX), (u8::MAX, 3)] {
            let data = [post_header(schema_len, variables_len).as_slice(), behind].concat();
            decode(&mut mysql(), EventKind::QUERY, data).unwrap_err();
        }
        let data = [post_header(1, 0).as_slice(), b"\xFF\0BEGIN"].concat();
        let error = decode(&mut mysql(), EventKind::QUERY, data).unwrap_err();
        assert!(matches!(error, BinlogError::NotUtf8 { field: "schema", .. }), "{error}");
    }

    #[test]
    fn text_that_expands_beyond_the_limit_is_an_error() {
        let data = [
            post_header(0, 0).as_slice(),
            b"\0",
            &compressed(MAX_EVENT_BYTES + 1, &zlib(b"few")),
        ]
        .concat();
        let error = decode(&mut mariadb(), EventKind::QUERY_COMPRESSED, data).unwrap_err();
        assert!(matches!(error, BinlogError::Expands { rows: None, .. }), "{error}");
    }
}
