//! The idempotency key of an outbox processor.

use super::template::read_template;
use crate::config::document::Value;
use crate::config::pipeline::{Idempotency, IdempotencyKey};
use crate::config::reader::{Field, Mapping, Read, Reader, optional};

const DEFAULT_HEADER: &str = "idempotency-key";
const DEFAULT_SEPARATOR: &str = "|";

/// Takes the two keys; gives the one that names the header too, or stands for it. `is_taken`: whether the processor has another
/// header of a name.
pub(super) fn read<'n>(
    reader: &mut Reader<'_>,
    mapping: &mut Mapping<'n>,
    is_taken: impl Fn(&str) -> bool,
) -> Read<Option<(Idempotency, Field<'n>)>> {
    let place = mapping.peek("idempotency_key");
    let key = optional(mapping.take("idempotency_key"), |field| read_key(reader, field));
    let header = optional(mapping.take("idempotency_header"), |field| {
        let name = reader.filled(field)?;
        match &place {
            Some(_) => Ok((name, field.clone())),
            None => Err(reader.refuse(field, "without effect: expected `idempotency_key` beside it")),
        }
    });
    let (Some(key), Some(place), header) = (key?, place, header?) else {
        return Ok(None);
    };
    let (header, place) = header.unwrap_or_else(|| (DEFAULT_HEADER.to_owned(), place));
    if is_taken(&header) {
        let message =
            format!("another header is called `{header}`: expected `idempotency_header` with a name of its own");
        return Err(reader.refuse(&place, message));
    }
    Ok(Some((Idempotency { header, key }, place)))
}

/// A column's name, or what is hashed.
fn read_key(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<IdempotencyKey> {
    if let Value::Text(_) = &field.node.value {
        return reader.filled(field).map(IdempotencyKey::Column);
    }
    let mut mapping = reader.mapping(field)?;
    let parts = reader
        .require(&mut mapping, "sha256", "a list of templates")
        .and_then(|field| {
            let items = reader.list(&field)?;
            if items.is_empty() {
                return Err(reader.unexpected(&field, "one template or more", "an empty list".to_owned()));
            }
            let parts: Vec<_> = items.iter().map(|item| read_template(reader, item)).collect();
            parts.into_iter().collect()
        });
    let separator = optional(mapping.take("separator"), |field| Ok(reader.text(field)?.value));
    reader.finish(mapping);
    Ok(IdempotencyKey::Sha256 {
        parts: parts?,
        separator: separator?.unwrap_or_else(|| DEFAULT_SEPARATOR.to_owned()),
    })
}
