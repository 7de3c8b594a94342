use std::fs;
use std::path::Path;

use proptest::prelude::*;
use serde_json::{Map, Value};

use super::*;

/// Documents of a real server with its own text of each.
fn golden() -> Vec<(Vec<u8>, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/json/mysql-9.7.txt");
    let golden = fs::read_to_string(path).unwrap();
    let documents = golden.lines().map(|line| {
        let (digits, text) = line.split_once('\t').unwrap();
        let pairs = digits.as_bytes().chunks_exact(2);
        let bytes = pairs.map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap());
        (bytes.collect(), text.to_owned())
    });
    documents.collect()
}

fn rendered(doc: &[u8]) -> Result<String, JsonbError> {
    let mut out = b"before".to_vec();
    let result = render(doc, &mut out);
    let text = String::from_utf8(out).unwrap();
    let text = text.strip_prefix("before").unwrap();
    match result {
        Ok(()) => Ok(text.to_owned()),
        Err(error) => {
            assert_eq!(text, "", "{error}");
            Err(error)
        }
    }
}

/// A small array: `entries` is the head's, `values` what lies behind.
fn array(entries: &[[u8; 3]], values: &[u8]) -> Vec<u8> {
    let size = u16::try_from(4 + 3 * entries.len() + values.len()).unwrap();
    let count = u16::try_from(entries.len()).unwrap();
    [
        &count.to_le_bytes(),
        size.to_le_bytes().as_slice(),
        entries.as_flattened(),
        values,
    ]
    .concat()
}

fn document(tag: u8, value: &[u8]) -> Vec<u8> {
    [&[tag], value].concat()
}

fn nested_arrays(depth: usize) -> Vec<u8> {
    let inner = (1..depth).fold(array(&[], &[]), |inner, _| array(&[[SMALL_ARRAY, 7, 0]], &inner));
    document(SMALL_ARRAY, &inner)
}

fn word(value: usize, large: bool) -> Vec<u8> {
    match large {
        true => u32::try_from(value).unwrap().to_le_bytes().to_vec(),
        false => u16::try_from(value).unwrap().to_le_bytes().to_vec(),
    }
}

/// Encodes in one of the two formats, as the server does, and gives type and bytes.
fn encode(value: &Value, large: bool) -> (u8, Vec<u8>) {
    match value {
        Value::Null => (LITERAL, vec![0]),
        Value::Bool(value) => (LITERAL, vec![if *value { 1 } else { 2 }]),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(value), _) if i16::try_from(value).is_ok() => (INT16, value.to_le_bytes()[..2].to_vec()),
            (Some(value), _) if i32::try_from(value).is_ok() => (INT32, value.to_le_bytes()[..4].to_vec()),
            (Some(value), _) => (INT64, value.to_le_bytes().to_vec()),
            (None, value) => (UINT64, value.unwrap().to_le_bytes().to_vec()),
        },
        Value::String(text) => (STRING, [encode_length(text.len()), text.as_bytes().to_vec()].concat()),
        Value::Array(values) => encode_container(&[], values.iter(), large),
        Value::Object(members) => {
            let keys = members.keys().collect::<Vec<_>>();
            encode_container(&keys, members.values(), large)
        }
    }
}

fn encode_length(mut len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while len > 0x7F {
        bytes.push(u8::try_from(len & 0x7F).unwrap() | 0x80);
        len >>= 7;
    }
    bytes.push(u8::try_from(len).unwrap());
    bytes
}

fn encode_container<'v>(
    keys: &[&String],
    values: impl ExactSizeIterator<Item = &'v Value>,
    large: bool,
) -> (u8, Vec<u8>) {
    let word_len = if large { 4 } else { 2 };
    let count = values.len();
    let head_len = 2 * word_len + keys.len() * (word_len + 2) + count * (1 + word_len);
    let (mut entries, mut behind) = (Vec::new(), Vec::new());
    for key in keys {
        entries.extend(word(head_len + behind.len(), large));
        entries.extend(word(key.len(), false));
        behind.extend(key.as_bytes());
    }
    for value in values {
        let (tag, mut bytes) = encode(value, large);
        let is_inlined = if large {
            Large::is_inlined(tag)
        } else {
            Small::is_inlined(tag)
        };
        entries.push(tag);
        if is_inlined {
            bytes.resize(word_len, 0);
            entries.extend(bytes);
        } else {
            entries.extend(word(head_len + behind.len(), large));
            behind.extend(bytes);
        }
    }
    let head = [word(count, large), word(head_len + behind.len(), large), entries].concat();
    let tag = match (keys.is_empty(), large) {
        (true, false) => SMALL_ARRAY,
        (true, true) => LARGE_ARRAY,
        (false, false) => SMALL_OBJECT,
        (false, true) => LARGE_OBJECT,
    };
    (tag, [head, behind].concat())
}

/// The server's text of a value without doubles.
fn text(value: &Value) -> String {
    match value {
        Value::Array(values) => format!("[{}]", values.iter().map(text).collect::<Vec<_>>().join(", ")),
        Value::Object(members) => {
            let member = |(key, value): (&String, &Value)| format!("{}: {}", Value::from(key.as_str()), text(value));
            format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(", "))
        }
        scalar => scalar.to_string(),
    }
}

#[test]
fn documents_are_printed_as_the_server_prints_them() {
    for (doc, text) in golden() {
        assert_eq!(rendered(&doc).unwrap(), text);
    }
}

#[test]
fn doubles_can_be_told_from_integers() {
    for (value, text) in [
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (1e100, "1e100"),
        (0.1, "0.1"),
        (1e14, "100000000000000.0"),
    ] {
        assert_eq!(rendered(&document(DOUBLE, &f64::to_le_bytes(value))).unwrap(), text);
    }
}

#[test]
fn a_hundred_levels_are_the_most() {
    assert_eq!(
        rendered(&nested_arrays(100)).unwrap(),
        "[".repeat(100) + &"]".repeat(100)
    );
    assert_eq!(rendered(&nested_arrays(101)), Err(JsonbError::TooDeep { at: 701 }));
}

#[test]
fn values_that_share_bytes_are_refused() {
    // Each level holds the next one twice, so that its text would double.
    let mut inner = array(&[], &[]);
    for _ in 0..40 {
        inner = array(&[[SMALL_ARRAY, 10, 0], [SMALL_ARRAY, 10, 0]], &inner);
    }
    assert!(matches!(
        rendered(&document(SMALL_ARRAY, &inner)),
        Err(JsonbError::Shared { .. })
    ));

    // A thousand values are one long string.
    let long = [encode_length(1000), vec![b'x'; 1000]].concat();
    let place = u16::to_le_bytes(4 + 3 * 1000);
    let doc = document(SMALL_ARRAY, &array(&[[STRING, place[0], place[1]]; 1000], &long));
    let mut out = Vec::new();
    assert!(matches!(render(&doc, &mut out), Err(JsonbError::Shared { .. })));
    assert!(out.capacity() < 20_000);

    // A thousand keys are one.
    let [place, size, len] = [4 + 7 * 1000, 4 + 8 * 1000, 1000_u16].map(u16::to_le_bytes);
    let keys = [place, len].concat().repeat(1000);
    let values = [LITERAL, 0, 0].repeat(1000);
    let object = [len.to_vec(), size.to_vec(), keys, values, vec![b'k'; 1000]].concat();
    let doc = document(SMALL_OBJECT, &object);
    assert!(matches!(rendered(&doc), Err(JsonbError::Shared { .. })));
}

#[test]
fn damaged_documents_name_the_place() {
    let nan = f64::NAN.to_le_bytes();
    let cases: [(Vec<u8>, &str); 15] = [
        (vec![0x0D, 1], "json value at byte 1 has the unknown type 13"),
        (
            vec![LITERAL, 3],
            "json literal at byte 1 is unknown: found 3, expected 0, 1 or 2",
        ),
        (
            vec![INT32, 0, 0],
            "json number at byte 1 is cut short: found 2 bytes, expected 4 or more",
        ),
        (document(DOUBLE, &nan), "json number at byte 1 is not finite"),
        (
            vec![STRING, 3, b'a'],
            "json string at byte 2 is cut short: found 1 bytes, expected 3 or more",
        ),
        (
            vec![STRING, 0x80],
            "json length at byte 1 is cut short: found 1 bytes, expected 2 or more",
        ),
        (
            vec![STRING, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F],
            "json length at byte 1 is too large: expected at most 32 bits in 5 bytes",
        ),
        (
            vec![STRING, 0x80, 0x80, 0x80, 0x80, 0x80, 0],
            "json length at byte 1 is too large: expected at most 32 bits in 5 bytes",
        ),
        (
            vec![SMALL_ARRAY, 0, 0, 9, 0],
            "json array or object at byte 1 is cut short: found 4 bytes, expected 9 or more",
        ),
        (
            vec![LARGE_OBJECT, 0xFF, 0xFF, 0xFF, 0xFF, 8, 0, 0, 0],
            "json head at byte 1 is cut short: found 8 bytes, expected 47244640253 or more",
        ),
        (
            document(SMALL_ARRAY, &array(&[[STRING, 4, 0]], b"\x01a")),
            "json value of the array or object at byte 1 lies in its head: found place 4, expected 7 or more",
        ),
        (
            document(SMALL_ARRAY, &array(&[[STRING, 10, 0]], b"\x01a")),
            "json value at byte 1 is cut short: found 9 bytes, expected 10 or more",
        ),
        (
            document(SMALL_OBJECT, &[1, 0, 12, 0, 11, 0, 2, 0, LITERAL, 0, 0, b'k']),
            "json key at byte 12 is cut short: found 1 bytes, expected 2 or more",
        ),
        (vec![STRING, 2, b'a', 0xFF], "json document is not UTF-8"),
        (vec![OPAQUE, 10, 1, 0], "json value at byte 3 cannot be read"),
    ];
    for (doc, message) in cases {
        assert_eq!(rendered(&doc).unwrap_err().to_string(), message);
    }
}

#[test]
fn damaged_values_of_other_types_name_the_fault() {
    let packed = |value: i64| value.to_le_bytes().to_vec();
    let cases = [
        (12, packed(i64::MAX), "date or time does not exist"),
        (12, packed(-1), "date or time does not exist"),
        (12, packed(60 << 24), "date or time does not exist"),
        (10, packed(24 << 36), "date or time does not exist"),
        (11, packed(839 << 36), "date or time does not exist"),
        (11, packed(1_000_000), "date or time does not exist"),
        (11, packed(i64::MIN), "date or time does not exist"),
        (
            7,
            vec![0; 7],
            "date or time has the wrong length: found 7 bytes, expected 8",
        ),
        (
            246,
            vec![4],
            "number has no precision and scale: found 1 bytes, expected 3 or more",
        ),
        (246, vec![0, 0], "number is no decimal"),
    ];
    for (column_type, bytes, message) in cases {
        let doc = [vec![OPAQUE, column_type], encode_length(bytes.len()), bytes].concat();
        match rendered(&doc).unwrap_err() {
            JsonbError::Opaque { source, .. } => assert_eq!(source.to_string(), message),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn short_scalars_stand_in_the_entries_of_the_large_format() {
    let entries = [
        [LITERAL, 1, 0, 0, 0],
        [INT16, 0xFF, 0xFF, 0, 0],
        [UINT16, 0xFF, 0xFF, 0, 0],
        [INT32, 0xFF, 0xFF, 0xFF, 0xFF],
        [UINT32, 0xFF, 0xFF, 0xFF, 0xFF],
    ];
    let doc = [b"\x03\x05\0\0\0\x21\0\0\0", entries.as_flattened()].concat();
    assert_eq!(rendered(&doc).unwrap(), "[true, -1, 65535, -1, 4294967295]");
}

#[test]
fn opaque_strings_are_strings() {
    assert_eq!(rendered(b"\x0F\xFD\x03a\"b").unwrap(), r#""a\"b""#);
}

#[test]
fn documents_cut_anywhere_are_documents_or_errors() {
    for (doc, _) in golden() {
        for len in 0..doc.len() {
            let _ = rendered(&doc[..len]);
        }
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<i16>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        "[\\x00-\\x7F]{0,20}".prop_map(Value::from),
        "x{120,140}".prop_map(Value::from),
    ];
    scalar.prop_recursive(5, 40, 6, |inner| {
        let members = prop::collection::vec((".{0,6}", inner.clone()), 1..6);
        prop_oneof![
            prop::collection::vec(inner, 0..6).prop_map(Value::from),
            members.prop_map(|members| Value::Object(Map::from_iter(members))),
        ]
    })
}

proptest! {
    #[test]
    fn both_formats_have_the_same_text(value in any_value()) {
        for large in [false, true] {
            let (tag, bytes) = encode(&value, large);
            let found = rendered(&document(tag, &bytes)).unwrap();
            prop_assert_eq!(&found, &text(&value));
            prop_assert_eq!(serde_json::from_str::<Value>(&found).unwrap(), value.clone());
        }
    }

    #[test]
    fn changed_documents_are_bounded(
        index: prop::sample::Index,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let golden = golden();
        let mut doc = index.get(&golden).0.clone();
        prop_assume!(!doc.is_empty());
        for (place, byte) in changes {
            *place.get_mut(&mut doc) = byte;
        }
        if let Ok(text) = rendered(&doc) {
            prop_assert!(text.len() <= 6 * doc.len(), "{} of {}", text.len(), doc.len());
        }
    }

    #[test]
    fn any_bytes_are_a_document_or_an_error(tag in 0..16_u8, bytes in prop::collection::vec(prop_oneof![0..16_u8, any::<u8>()], 0..64)) {
        if let Ok(text) = rendered(&document(tag, &bytes)) {
            prop_assert!(text.len() <= 6 * (bytes.len() + 1));
        }
    }
}
