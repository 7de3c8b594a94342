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
