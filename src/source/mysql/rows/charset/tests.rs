use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::*;

fn golden(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/charset");
    fs::read_to_string(folder.join(name)).unwrap()
}

fn named(name: &str) -> Charset {
    Charset::from_name(name).unwrap()
}

fn hex(digits: &str) -> u32 {
    u32::from_str_radix(digits, 16).unwrap()
}

fn character(code_point: &str) -> String {
    char::from_u32(hex(code_point)).unwrap().to_string()
}

fn bytes(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks_exact(2);
    pairs
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn each_collation_of_the_servers_has_its_character_set() {
    let mut count = 0;
    for line in golden("collations.txt").lines() {
        let (name, ids) = line.split_once('\t').unwrap();
        for id in ids.split(' ') {
            let charset = Charset::from_collation(id.parse().unwrap()).unwrap();
            assert_eq!(charset.name(), name, "{id}");
            assert_eq!(charset, named(name));
        }
        count += 1;
    }
    assert_eq!(count, KNOWN.len());
    for free in [0, 17, 100, 125, 324, 575, 1029, 2047, 3328, u16::MAX] {
        assert_eq!(Charset::from_collation(free), None);
    }
}

#[test]
fn no_collation_has_two_character_sets() {
    for id in 0..=u16::MAX {
        assert!(
            KNOWN.iter().filter(|known| (known.has_collation)(id)).count() <= 1,
            "{id}"
        );
    }
}

#[test]
fn names_are_those_of_either_server() {
    for known in &KNOWN {
        assert_eq!(named(known.name).name(), known.name);
        assert_eq!(named(&known.name.to_uppercase()).name(), known.name);
    }
    assert_eq!(named("utf8"), named("utf8mb3"));
    assert_eq!(Charset::from_name("utf-8"), None);
    assert_eq!(format!("{:?}", named("latin1")), "Charset(latin1)");
}

#[test]
fn text_and_bytes_are_told_apart() {
    let utf8 = KNOWN
        .iter()
        .map(Charset)
        .filter(|charset| charset.is_utf8())
        .map(Charset::name);
    assert_eq!(utf8.collect::<Vec<_>>(), ["utf8mb4", "utf8mb3", "ascii"]);
    let binary = Charset::from_collation(63).unwrap();
    assert!(binary.is_binary() && !binary.is_utf8());
    assert_eq!(binary.decode(b"a"), Err(CharsetError::Binary));
}

#[test]
fn single_bytes_are_the_servers_characters() {
    for line in golden("single-byte.txt").lines() {
        let (name, code_points) = line.split_once('\t').unwrap();
        assert_eq!(code_points.split(' ').count(), 256);
        for (byte, code_point) in (0..=u8::MAX).zip(code_points.split(' ')) {
            let found = named(name).decode(&[byte]).ok().map(Cow::into_owned);
            let expected = (code_point != "-").then(|| character(code_point));
            assert_eq!(found, expected, "{name} {byte:02x}");
        }
    }
}

#[test]
fn characters_of_many_bytes_are_the_servers() {
    for line in golden("multi-byte.txt").lines() {
        let [name, row, cells] = line.split('\t').collect::<Vec<_>>().try_into().unwrap();
        for cell in cells.split(' ') {
            let (last, code_point) = cell.split_once('=').unwrap();
            let encoded = bytes(&format!("{row}{last}"));
            let found = named(name).decode(&encoded).unwrap();
            assert_eq!(found, character(code_point), "{name} {row}{last}");
        }
    }
}

#[test]
fn the_servers_own_characters_stand_among_those_of_the_standard() {
    let cases = [
        (
            "sjis",
            b"\x81\x60a\x93\xFA\x81\x5F\x81\x60\xB1".as_slice(),
            "〜a日\\〜ｱ",
        ),
        ("cp932", b"\x81\x60a\x93\xFA", "～a日"),
        ("ujis", b"a\xA1\xC1\x8E\xB1\x8F\xA2\xB7\xC6\xFC", "a〜ｱ~日"),
        ("eucjpms", b"\x8F\xF4\xFB\xA1\xC1", "髙～"),
        ("gb18030", b"\xA6\xD9\x94\x39\xDA\x33\xC4\xE3", "\u{E78D}💩你"),
        ("big5", b"\xA1\x45\xA7\x41", "•你"),
    ];
    for (name, encoded, text) in cases {
        assert_eq!(named(name).decode(encoded).unwrap(), text, "{name}");
    }
}

#[test]
fn unicode_is_decoded_without_a_byte_order_mark() {
    let cases = [
        ("ucs2", b"\0a\x26\x03".as_slice(), "a☃"),
        ("utf16", b"\xFE\xFF\0a\xD8\x3D\xDE\0", "\u{FEFF}a😀"),
        ("utf16le", b"a\0\x3D\xD8\0\xDE", "a😀"),
        ("utf32", b"\0\0\0a\0\x01\xF6\0", "a😀"),
        ("utf8mb4", "a😀".as_bytes(), "a😀"),
    ];
    for (name, encoded, text) in cases {
        assert_eq!(named(name).decode(encoded).unwrap(), text, "{name}");
    }
}

#[test]
fn what_is_no_character_is_an_error_with_its_place() {
    let cases = [
        ("utf8mb4", b"a\xED\xA0\x80".as_slice(), 1),
        ("ascii", b"ab\xFF", 2),
        ("hebrew", b"a\xE0\xA1", 2),
        ("swe7", b"a\x7F", 1),
        ("tis620", b"\xA1\xDB", 1),
        ("sjis", b"\x81\x60\x93\xFA\x81", 4),
        ("gbk", b"\xC4\xE3\xFF", 2),
        ("euckr", b"a\xB0", 1),
        ("gb18030", b"a\x94\x39\xDA", 1),
        ("ucs2", b"\0a\xD8\x3D\xDE\0", 2),
        ("ucs2", b"\0a\0", 2),
        ("utf16", b"\0a\xDE\0", 2),
        ("utf16", b"\xD8\x3D\xDE\0\xD8", 4),
        ("utf32", b"\0\x11\0\0", 0),
        ("utf32", b"\0\0\0a\0", 4),
    ];
    for (charset, encoded, at) in cases {
        let error = named(charset).decode(encoded).unwrap_err();
        assert_eq!(error, CharsetError::NoCharacter { charset, at });
    }
    let error = named("gbk").decode(b"a\x81").unwrap_err();
    assert_eq!(error.to_string(), "text is not gbk: no character at byte 1");
}

fn any_text() -> impl Strategy<Value = Vec<u8>> {
    // Bytes that begin and go on with characters of several bytes, more often than all bytes would.
    let byte = prop_oneof![any::<u8>(), 0x81..=0xFE_u8, 0x30..=0x7E_u8, Just(0x8F), Just(0xD8)];
    prop::collection::vec(byte, 0..24)
}

proptest! {
    #[test]
    fn any_bytes_are_a_text_or_an_error_behind_a_text(encoded in any_text(), index in 0..KNOWN.len()) {
        let charset = Charset(&KNOWN[index]);
        match charset.decode(&encoded) {
            Ok(text) => prop_assert!(text.len() <= 4 * encoded.len()),
            Err(CharsetError::NoCharacter { at, .. }) => {
                prop_assert!(at < encoded.len());
                prop_assert!(charset.decode(&encoded[..at]).is_ok(), "{:?} {:?}", charset, encoded);
            }
            Err(CharsetError::Binary) => prop_assert!(charset.is_binary()),
        }
    }

    #[test]
    fn ascii_is_itself_but_in_swe7_and_wide_sets(text in "[ -~]{0,20}", index in 0..KNOWN.len()) {
        let charset = Charset(&KNOWN[index]);
        if !["swe7", "binary", "ucs2", "utf16", "utf16le", "utf32"].contains(&charset.name()) {
            prop_assert_eq!(charset.decode(text.as_bytes()).unwrap(), text.as_str());
        }
    }
}
