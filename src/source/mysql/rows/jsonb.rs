//! MySQL's binary JSON, printed as the server prints it.
//!
//! A document is a type byte and a value. An array or object begins with a head: how many elements it has, how many bytes
//! it takes, an entry for each key (place and length) and one for each value (type and place). Keys and values lie behind,
//! but a short scalar stands in its entry. Places count from the start of the array or object. Counts, sizes and places
//! have two bytes in the small format and four in the large one; everything is little-endian. The layout is that of
//! `json_binary.h` in MySQL's source. The text is that of `CAST(… AS CHAR)`: keys in their stored order, `, ` and `: `.
//!
//! What a server writes has no two values that share a byte. It is required here, so that neither time nor output can
//! outgrow the document wherever its places point.

mod opaque;
#[cfg(test)]
mod tests;

pub use opaque::OpaqueError;

use super::float;

/// The deepest nesting that a server takes: its own `JSON_DOCUMENT_MAX_DEPTH`.
const MAX_DEPTH: usize = 100;

const SMALL_OBJECT: u8 = 0x00;
const LARGE_OBJECT: u8 = 0x01;
const SMALL_ARRAY: u8 = 0x02;
const LARGE_ARRAY: u8 = 0x03;
const LITERAL: u8 = 0x04;
const INT16: u8 = 0x05;
const UINT16: u8 = 0x06;
const INT32: u8 = 0x07;
const UINT32: u8 = 0x08;
const INT64: u8 = 0x09;
const UINT64: u8 = 0x0A;
const DOUBLE: u8 = 0x0B;
const STRING: u8 = 0x0C;
const OPAQUE: u8 = 0x0F;

/// The bytes of a value's type.
const TAG_LEN: usize = 1;
/// The bytes of a key's length.
const KEY_LENGTH_LEN: usize = 2;
/// The bytes of a string's length at most; each holds seven bits.
const MAX_LENGTH_LEN: usize = 5;

/// A document that is no binary JSON. Places are counted in bytes from its start; that of a scalar in an entry is its
/// array's or object's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonbError {
    #[error("json {part} at byte {at} is cut short: found {found} bytes, expected {expected} or more")]
    Short {
        part: &'static str,
        at: usize,
        found: usize,
        expected: usize,
    },
    #[error("json value at byte {at} has the unknown type {tag}")]
    UnknownType { at: usize, tag: u8 },
    #[error("json literal at byte {at} is unknown: found {found}, expected 0, 1 or 2")]
    UnknownLiteral { at: usize, found: u8 },
    #[error(
        "json {part} of the array or object at byte {at} lies in its head: found place {place}, expected {expected} or more"
    )]
    InHead {
        part: &'static str,
        at: usize,
        place: usize,
        expected: usize,
    },
    #[error("json value at byte {at} shares bytes with another one")]
    Shared { at: usize },
    #[error("json document is nested too deeply: found more than {MAX_DEPTH} levels at byte {at}")]
    TooDeep { at: usize },
    #[error("json length at byte {at} is too large: expected at most 32 bits in {MAX_LENGTH_LEN} bytes")]
    Length { at: usize },
    #[error("json number at byte {at} is not finite")]
    NotFinite { at: usize },
    #[error("json value at byte {at} cannot be read")]
    Opaque { at: usize, source: OpaqueError },
    #[error("json document is not UTF-8")]
    NotUtf8,
}

/// Appends the document's text, which is UTF-8.
///
/// An empty document, which a NOT NULL column gets for a NULL by `INSERT IGNORE`, is `null`, as the server reads it. Bytes
/// that nothing points to are passed over: the server's updates in place leave such gaps.
///
/// # Errors
/// The document is damaged; `out` is then as it was before.
pub(in crate::source::mysql) fn render(doc: &[u8], out: &mut Vec<u8>) -> Result<(), JsonbError> {
    let start = out.len();
    let mut renderer = Renderer {
        unread: doc.len(),
        depth: 0,
        out,
    };
    let rendered = renderer.document(Span { bytes: doc, at: 0 });
    // Once for all strings: what stands between them is ASCII and completes no character.
    let rendered = rendered.and_then(|()| match str::from_utf8(out.get(start..).unwrap_or_default()) {
        Ok(_) => Ok(()),
        Err(_) => Err(JsonbError::NotUtf8),
    });
    if rendered.is_err() {
        out.truncate(start);
    }
    rendered
}

/// A document's bytes from a place on, to the end of what contains it.
#[derive(Clone, Copy)]
struct Span<'d> {
    bytes: &'d [u8],
    at: usize,
}

impl<'d> Span<'d> {
    fn short(self, part: &'static str, expected: usize) -> JsonbError {
        JsonbError::Short {
            part,
            at: self.at,
            found: self.bytes.len(),
            expected,
        }
    }

    fn first(self, len: usize, part: &'static str) -> Result<&'d [u8], JsonbError> {
        self.bytes.get(..len).ok_or_else(|| self.short(part, len))
    }

    fn chunk<const N: usize>(self, part: &'static str) -> Result<[u8; N], JsonbError> {
        self.bytes.first_chunk().copied().ok_or_else(|| self.short(part, N))
    }

    fn behind(self, len: usize, part: &'static str) -> Result<Self, JsonbError> {
        let bytes = self.bytes.get(len..).ok_or_else(|| self.short(part, len))?;
        let at = self.at + len;
        Ok(Self { bytes, at })
    }
}

/// One of the two formats of arrays and objects.
trait Format {
    /// The bytes of a count, a size or a place.
    const WORD_LEN: usize;

    /// Such a number, from the first bytes.
    fn word(bytes: &[u8]) -> Option<usize>;

    /// Whether a scalar of this type stands in its entry.
    fn is_inlined(tag: u8) -> bool;
}

struct Small;

impl Format for Small {
    const WORD_LEN: usize = 2;

    fn word(bytes: &[u8]) -> Option<usize> {
        bytes.first_chunk().copied().map(u16::from_le_bytes).map(usize::from)
    }

    fn is_inlined(tag: u8) -> bool {
        matches!(tag, LITERAL | INT16 | UINT16)
    }
}

struct Large;

impl Format for Large {
    const WORD_LEN: usize = 4;

    fn word(bytes: &[u8]) -> Option<usize> {
        let word = bytes.first_chunk().copied().map(u32::from_le_bytes)?;
        usize::try_from(word).ok()
    }

    fn is_inlined(tag: u8) -> bool {
        matches!(tag, LITERAL | INT16 | UINT16 | INT32 | UINT32)
    }
}

/// An array or object whose head is whole.
#[derive(Clone, Copy)]
struct Container<'d> {
    /// All of it, and nothing behind it.
    body: Span<'d>,
    head_len: usize,
    key_entries: &'d [u8],
    value_entries: &'d [u8],
}

impl<'d> Container<'d> {
    fn open<F: Format>(span: Span<'d>, key_entry_len: usize) -> Result<Self, JsonbError> {
        const PART: &str = "array or object";
        let counts_len = 2 * F::WORD_LEN;
        let short = || span.short(PART, counts_len);
        let count = F::word(span.bytes).ok_or_else(short)?;
        let size = span.bytes.get(F::WORD_LEN..).and_then(F::word).ok_or_else(short)?;
        let body = Span {
            bytes: span.first(size, PART)?,
            at: span.at,
        };
        // What overflows is longer than any document.
        let keys_end = count.saturating_mul(key_entry_len).saturating_add(counts_len);
        let head_len = count.saturating_mul(TAG_LEN + F::WORD_LEN).saturating_add(keys_end);
        let head = body.first(head_len, "head")?;
        Ok(Self {
            body,
            head_len,
            key_entries: head.get(counts_len..keys_end).unwrap_or_default(),
            value_entries: head.get(keys_end..).unwrap_or_default(),
        })
    }

    /// What lies at a place that an entry names.
    fn at(&self, place: usize, part: &'static str) -> Result<Span<'d>, JsonbError> {
        if place < self.head_len {
            return Err(JsonbError::InHead {
                part,
                at: self.body.at,
                place,
                expected: self.head_len,
            });
        }
        self.body.behind(place, part)
    }
}

struct Renderer<'o> {
    /// How many of the document's bytes have not been read.
    unread: usize,
    /// How many arrays and objects are open.
    depth: usize,
    out: &'o mut Vec<u8>,
}

impl Renderer<'_> {
    fn document(&mut self, span: Span<'_>) -> Result<(), JsonbError> {
        match span.bytes.first() {
            Some(&tag) => self.value(tag, span.behind(TAG_LEN, "document")?),
            None => {
                self.out.extend_from_slice(b"null");
                Ok(())
            }
        }
    }

    /// Counts bytes that are read, each of which may be only once.
    fn read(&mut self, len: usize, span: Span<'_>) -> Result<(), JsonbError> {
        self.unread = self.unread.checked_sub(len).ok_or(JsonbError::Shared { at: span.at })?;
        Ok(())
    }

    /// Prints the value at the beginning of the span.
    fn value(&mut self, tag: u8, span: Span<'_>) -> Result<(), JsonbError> {
        match tag {
            SMALL_OBJECT => self.object::<Small>(span),
            LARGE_OBJECT => self.object::<Large>(span),
            SMALL_ARRAY => self.array::<Small>(span),
            LARGE_ARRAY => self.array::<Large>(span),
            _ => {
                let len = self.scalar(tag, span)?;
                self.read(len, span)
            }
        }
    }

    fn open<'d, F: Format>(&mut self, span: Span<'d>, key_entry_len: usize) -> Result<Container<'d>, JsonbError> {
        if self.depth == MAX_DEPTH {
            return Err(JsonbError::TooDeep { at: span.at });
        }
        self.depth += 1;
        let container = Container::open::<F>(span, key_entry_len)?;
        self.read(container.head_len, span)?;
        Ok(container)
    }

    fn array<F: Format>(&mut self, span: Span<'_>) -> Result<(), JsonbError> {
        let array = self.open::<F>(span, 0)?;
        self.out.push(b'[');
        for (index, entry) in array.value_entries.chunks_exact(TAG_LEN + F::WORD_LEN).enumerate() {
            if index > 0 {
                self.out.extend_from_slice(b", ");
            }
            self.element::<F>(&array, entry)?;
        }
        self.out.push(b']');
        self.depth -= 1;
        Ok(())
    }

    fn object<F: Format>(&mut self, span: Span<'_>) -> Result<(), JsonbError> {
        let key_entry_len = F::WORD_LEN + KEY_LENGTH_LEN;
        let object = self.open::<F>(span, key_entry_len)?;
        let keys = object.key_entries.chunks_exact(key_entry_len);
        let values = object.value_entries.chunks_exact(TAG_LEN + F::WORD_LEN);
        self.out.push(b'{');
        for (index, (key, value)) in keys.zip(values).enumerate() {
            if index > 0 {
                self.out.extend_from_slice(b", ");
            }
            self.key::<F>(&object, key)?;
            self.out.extend_from_slice(b": ");
            self.element::<F>(&object, value)?;
        }
        self.out.push(b'}');
        self.depth -= 1;
        Ok(())
    }

    fn key<F: Format>(&mut self, object: &Container<'_>, entry: &[u8]) -> Result<(), JsonbError> {
        let place = F::word(entry).unwrap_or_default();
        let len = entry.get(F::WORD_LEN..).and_then(Small::word).unwrap_or_default();
        let span = object.at(place, "key")?;
        let key = span.first(len, "key")?;
        self.read(len, span)?;
        write_quoted(key, self.out);
        Ok(())
    }

    /// Prints a value by its entry.
    fn element<F: Format>(&mut self, container: &Container<'_>, entry: &[u8]) -> Result<(), JsonbError> {
        let Some((&tag, bytes)) = entry.split_first() else {
            return Ok(());
        };
        if F::is_inlined(tag) {
            let at = container.body.at;
            return self.scalar(tag, Span { bytes, at }).map(|_| ());
        }
        let place = F::word(bytes).unwrap_or_default();
        self.value(tag, container.at(place, "value")?)
    }

    /// Prints the scalar at the beginning of the span, and gives its length.
    fn scalar(&mut self, tag: u8, span: Span<'_>) -> Result<usize, JsonbError> {
        const NUMBER: &str = "number";
        match tag {
            LITERAL => self.literal(span),
            INT16 => span
                .chunk(NUMBER)
                .map(i16::from_le_bytes)
                .map(|value| self.integer(value)),
            UINT16 => span
                .chunk(NUMBER)
                .map(u16::from_le_bytes)
                .map(|value| self.integer(value)),
            INT32 => span
                .chunk(NUMBER)
                .map(i32::from_le_bytes)
                .map(|value| self.integer(value)),
            UINT32 => span
                .chunk(NUMBER)
                .map(u32::from_le_bytes)
                .map(|value| self.integer(value)),
            INT64 => span
                .chunk(NUMBER)
                .map(i64::from_le_bytes)
                .map(|value| self.integer(value)),
            UINT64 => span
                .chunk(NUMBER)
                .map(u64::from_le_bytes)
                .map(|value| self.integer(value)),
            DOUBLE => self.double(span),
            STRING => {
                let (len, length_len) = length(span)?;
                write_quoted(span.behind(length_len, "string")?.first(len, "string")?, self.out);
                Ok(length_len + len)
            }
            OPAQUE => self.opaque(span),
            _ => Err(JsonbError::UnknownType { at: span.at, tag }),
        }
    }

    fn literal(&mut self, span: Span<'_>) -> Result<usize, JsonbError> {
        let text: &[u8] = match span.chunk("literal")? {
            [0] => b"null",
            [1] => b"true",
            [2] => b"false",
            [found] => return Err(JsonbError::UnknownLiteral { at: span.at, found }),
        };
        self.out.extend_from_slice(text);
        Ok(1)
    }

    fn integer<I: itoa::Integer>(&mut self, value: I) -> usize {
        self.out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
        size_of::<I>()
    }

    fn double(&mut self, span: Span<'_>) -> Result<usize, JsonbError> {
        let value = f64::from_le_bytes(span.chunk("number")?);
        if !value.is_finite() {
            return Err(JsonbError::NotFinite { at: span.at });
        }
        let start = self.out.len();
        float::write_double(value, self.out);
        // As the server does, so that a reader can tell it from an integer.
        if !self.out.iter().skip(start).any(|byte| matches!(byte, b'.' | b'e')) {
            self.out.extend_from_slice(b".0");
        }
        Ok(size_of::<f64>())
    }

    /// A value of any other column type: that type, a length and as many bytes.
    fn opaque(&mut self, span: Span<'_>) -> Result<usize, JsonbError> {
        const PART: &str = "opaque value";
        let [column_type] = span.chunk(PART)?;
        let behind_type = span.behind(TAG_LEN, PART)?;
        let (len, length_len) = length(behind_type)?;
        let value = behind_type.behind(length_len, PART)?;
        let bytes = value.first(len, PART)?;
        opaque::write(column_type, bytes, self.out).map_err(|source| JsonbError::Opaque { at: value.at, source })?;
        Ok(TAG_LEN + length_len + len)
    }
}

/// Reads a string's length at the beginning of the span, and gives it with the bytes that it takes: seven bits in each,
/// the lowest first, the highest bit set in all but the last.
fn length(span: Span<'_>) -> Result<(usize, usize), JsonbError> {
    let mut len = 0_u64;
    for (&byte, place) in span.bytes.iter().zip(0..MAX_LENGTH_LEN) {
        len |= u64::from(byte & 0x7F) << (7 * place);
        if byte & 0x80 == 0 {
            let len = u32::try_from(len).ok().and_then(|len| usize::try_from(len).ok());
            return len
                .map(|len| (len, place + 1))
                .ok_or(JsonbError::Length { at: span.at });
        }
    }
    match span.bytes.len() {
        found if found < MAX_LENGTH_LEN => Err(span.short("length", found + 1)),
        _ => Err(JsonbError::Length { at: span.at }),
    }
}

/// Appends a string in quotes. Only what JSON can't hold as it is has an escape, the shortest one.
fn write_quoted(text: &[u8], out: &mut Vec<u8>) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    let mut rest = text;
    loop {
        let (plain, behind) = rest.split_at(plain_len(rest));
        out.extend_from_slice(plain);
        let Some((&special, behind)) = behind.split_first() else {
            break;
        };
        write_escape(special, out);
        rest = behind;
    }
    out.push(b'"');
}

/// How many bytes stand in a string as they are before the first that has an escape.
fn plain_len(text: &[u8]) -> usize {
    // Eight at a time without a branch for each: most strings have no escape at all.
    let (chunks, _) = text.as_chunks::<8>();
    let is_plain = |chunk: &&[u8; 8]| !chunk.iter().fold(false, |special, &byte| special | is_special(byte));
    let len = 8 * chunks.iter().take_while(is_plain).count();
    let rest = text.get(len..).unwrap_or_default();
    len + rest.iter().take_while(|&&byte| !is_special(byte)).count()
}

fn is_special(byte: u8) -> bool {
    byte < b' ' || byte == b'"' || byte == b'\\'
}

fn write_escape(special: u8, out: &mut Vec<u8>) {
    let letter = match special {
        0x08 => b'b',
        b'\t' => b't',
        b'\n' => b'n',
        0x0C => b'f',
        b'\r' => b'r',
        b'"' | b'\\' => special,
        _ => {
            let digit = |value: u8| if value < 10 { b'0' + value } else { b'a' + (value - 10) };
            out.extend_from_slice(b"\\u00");
            out.extend_from_slice(&[digit(special >> 4), digit(special & 0x0F)]);
            return;
        }
    };
    out.extend_from_slice(&[b'\\', letter]);
}
