//! Cells, fields and payloads as JSON.
//!
//! A cell keeps the digits and characters that the server sent: booleans, integers and floats are JSON numbers and
//! literals (`NaN` and the infinities, which JSON lacks, strings), exact decimals are strings, JSON is put in as it is,
//! bytes are `"\\x…"` in hexadecimal digits, everything else is a string.

use std::convert::Infallible;

use crate::processor::error::{Problem, TextFault};
use crate::processor::field::Field;
use crate::processor::json;
use crate::row::{Column, ColumnKind, Value};

/// Writes a cell as JSON, by the rule for what is no text.
pub(super) trait CellWriter<E>: Fn(&mut Vec<u8>, &Value, &Column) -> Result<(), E> + Copy {}

impl<E, F: Fn(&mut Vec<u8>, &Value, &Column) -> Result<(), E> + Copy> CellWriter<E> for F {}

pub(super) fn write_strictly(out: &mut Vec<u8>, value: &Value, column: &Column) -> Result<(), Problem> {
    write_cell(out, value, column.kind).map_err(|fault| Problem::NotText {
        field: column.name.clone(),
        fault,
    })
}

pub(super) fn write_legibly(out: &mut Vec<u8>, value: &Value, column: &Column) -> Result<(), Infallible> {
    if let (Err(_), Value::Text(bytes)) = (write_cell(out, value, column.kind), value) {
        write_bytes(out, bytes);
    }
    Ok(())
}

/// Writes nothing where it fails.
fn write_cell(out: &mut Vec<u8>, value: &Value, kind: ColumnKind) -> Result<(), TextFault> {
    match value {
        Value::Null | Value::Unchanged | Value::Absent => out.extend_from_slice(b"null"),
        Value::Bytes(bytes) => write_bytes(out, bytes),
        Value::Text(text) => write_text_cell(out, text, kind)?,
    }
    Ok(())
}

fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(b"\"\\\\x");
    json::write_hex(out, bytes);
    out.push(b'"');
}

fn write_text_cell(out: &mut Vec<u8>, cell: &[u8], kind: ColumnKind) -> Result<(), TextFault> {
    match (kind, cell) {
        (ColumnKind::Boolean, b"t") => out.extend_from_slice(b"true"),
        (ColumnKind::Boolean, b"f") => out.extend_from_slice(b"false"),
        (ColumnKind::Integer | ColumnKind::Float, number) if json::is_number(number) => out.extend_from_slice(number),
        _ => {
            let text = std::str::from_utf8(cell).map_err(|_| TextFault::NotUtf8)?;
            match kind {
                ColumnKind::Json => out.extend_from_slice(text.as_bytes()),
                _ => json::write_string(out, text),
            }
        }
    }
    Ok(())
}

/// Writes a field as a member's value: what is text is a string, whatever it looks like. `name`: where it is.
pub(in crate::processor) fn write_member(out: &mut Vec<u8>, field: Field<'_>, name: &str) -> Result<(), Problem> {
    match field {
        Field::Missing | Field::Null => out.extend_from_slice(b"null"),
        Field::Json { text, .. } => out.extend_from_slice(text.as_bytes()),
        Field::Binary(bytes) => write_bytes(out, bytes),
        Field::Cell { text, kind } => write_text_cell(out, text, kind).map_err(|fault| Problem::NotText {
            field: name.to_owned(),
            fault,
        })?,
    }
    Ok(())
}

/// Writes a payload as a member's value: what is JSON is put in as it is, else as a string.
pub(in crate::processor) fn write_payload(out: &mut Vec<u8>, payload: Field<'_>) -> Result<(), Problem> {
    match payload {
        Field::Missing | Field::Null => out.extend_from_slice(b"null"),
        Field::Json { text, .. } => out.extend_from_slice(text.as_bytes()),
        Field::Cell {
            text: bytes,
            kind: ColumnKind::Text,
        }
        | Field::Binary(bytes) => {
            let text = std::str::from_utf8(bytes).map_err(|_| Problem::PayloadNotText)?;
            if json::is_value(text) {
                out.extend_from_slice(bytes);
            } else {
                json::write_string(out, text);
            }
        }
        Field::Cell { text, kind } => write_text_cell(out, text, kind).map_err(|_| Problem::PayloadNotText)?,
    }
    Ok(())
}
