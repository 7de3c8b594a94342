use super::super::sample::{SampleColumn, plan_of, rows, text};
use super::super::walk::{RowError, Rows};
use super::*;
use crate::source::mysql::RowsKind;

/// The values of a column in an event that holds these cells.
fn values(column: SampleColumn, cells: &[&[u8]]) -> (Bytes, Vec<Result<Value, String>>) {
    let plan = plan_of(column);
    let cells: Vec<_> = cells.iter().map(|cell| [b"\0", *cell].concat()).collect();
    let body = rows(1, &cells.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let read = Rows::new(&plan, RowsKind::Write, body.clone()).unwrap();
    let values = read.map(|pair| match pair {
        Ok(pair) => Ok(pair.after.unwrap().values.remove(0)),
        Err(RowError::Cell { source, .. }) => Err(source.to_string()),
        Err(error) => panic!("{error:?}"),
    });
    let values = values.collect();
    (body, values)
}

fn texts(column: SampleColumn, cells: &[&[u8]]) -> Vec<Result<Value, String>> {
    values(column, cells).1
}

#[test]
fn integers_have_their_sign() {
    let cases: [(u8, &[u8], bool, &str); 12] = [
        (1, b"\x80", false, "-128"),
        (1, b"\x80", true, "128"),
        (2, b"\xFF\xFF", false, "-1"),
        (2, b"\xFF\xFF", true, "65535"),
        (9, b"\0\0\x80", false, "-8388608"),
        (9, b"\xFF\xFF\xFF", false, "-1"),
        (9, b"\xFF\xFF\x7F", false, "8388607"),
        (9, b"\xFF\xFF\xFF", true, "16777215"),
        (3, b"\0\0\0\x80", false, "-2147483648"),
        (8, b"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", true, "18446744073709551615"),
        (8, b"\0\0\0\0\0\0\0\x80", false, "-9223372036854775808"),
        (13, b"\0", true, "0000"),
    ];
    for (code, cell, unsigned, expected) in cases {
        let column = SampleColumn::new(code, b"").unsigned(unsigned);
        assert_eq!(texts(column, &[cell]), [Ok(text(expected))]);
    }
}

#[test]
fn choices_are_the_strings_they_number() {
    let column = |kind, bytes| SampleColumn::new(254, &[kind, bytes]).of_strings(&["a", "é", "c"]);
    let found = texts(column(247, 1), &[b"\0", b"\x01", b"\x02", b"\x03", b"\x04"]);
    let invalid = Err("ENUM has the string 4, expected at most 3".to_owned());
    assert_eq!(
        found,
        [Ok(text("")), Ok(text("a")), Ok(text("é")), Ok(text("c")), invalid]
    );
    assert_eq!(texts(column(247, 2), &[b"\x02\0"]), [Ok(text("é"))]);
    let found = texts(column(248, 1), &[b"\0", b"\x02", b"\x05", b"\x07", b"\x08"]);
    let invalid = Err("SET has bits beyond its 3 strings".to_owned());
    assert_eq!(
        found,
        [Ok(text("")), Ok(text("é")), Ok(text("a,c")), Ok(text("a,é,c")), invalid]
    );

    let strings: Vec<_> = (0..64).map(|index| format!("{index}")).collect();
    let strings: Vec<_> = strings.iter().map(String::as_str).collect();
    let column = SampleColumn::new(254, &[248, 8]).of_strings(&strings);
    let found = texts(column, &[b"\x01\0\0\0\0\0\0\x80", &[0xFF; 8]]);
    assert_eq!(found, [Ok(text("0,63")), Ok(text(&strings.join(",")))]);
}

#[test]
fn fixed_bytes_have_their_zeros_again() {
    let column = || SampleColumn::new(254, &[254, 4]).in_collation(63);
    let bytes = |bytes: &[u8]| Ok(Value::Bytes(Bytes::copy_from_slice(bytes)));
    let found = texts(column(), &[b"\0", b"\x01a", b"\x04abcd", b"\x05abcde"]);
    let too_long = Err("value has 5 bytes, expected at most 4".to_owned());
    assert_eq!(found, [bytes(b"\0\0\0\0"), bytes(b"a\0\0\0"), bytes(b"abcd"), too_long]);
}

#[test]
fn text_that_is_not_in_its_charset_is_an_error() {
    let varchar = || SampleColumn::new(15, &[40, 0]);
    let not_utf8 = Err("text is not UTF-8".to_owned());
    assert_eq!(
        texts(varchar(), &[b"\x02a\xFF", b"\x02\xC3\xA9"]),
        [not_utf8, Ok(text("é"))]
    );
    let found = texts(varchar().in_collation(8), &[b"\x02a\xE9", b"\x01a"]);
    assert_eq!(found, [Ok(text("aé")), Ok(text("a"))]);
    // A high surrogate alone.
    let found = texts(varchar().in_collation(54), &[b"\x02\xD8\0", b"\x02\x26\x03"]);
    assert_eq!(
        found,
        [
            Err("text is not utf16: no character at byte 0".to_owned()),
            Ok(text("☃"))
        ]
    );
}

#[test]
fn other_damage_names_its_kind() {
    let cases: [(SampleColumn, &[u8], &str); 4] = [
        (
            SampleColumn::new(246, &[2, 0]),
            b"\xFF",
            "decimal(2,0) has a group that is no number of 2 digits",
        ),
        (
            SampleColumn::new(10, b""),
            b"\xFF\xFF\xFF",
            "DATE has a part out of range",
        ),
        (
            SampleColumn::new(245, &[4]),
            b"\x01\0\0\0\xFF",
            "json value at byte 1 has the unknown type 255",
        ),
        (SampleColumn::new(140, &[1]), b"\x01\x20", "uncompress value"),
    ];
    for (column, cell, expected) in cases {
        assert_eq!(texts(column, &[cell]), [Err(expected.to_owned())]);
    }
}

#[test]
fn text_and_bytes_stay_in_the_event() {
    let columns = [
        SampleColumn::new(15, &[40, 0]),
        SampleColumn::new(252, &[1]).in_collation(63),
        SampleColumn::new(254, &[254, 3]).in_collation(63),
        SampleColumn::new(15, &[40, 0]).in_collation(8),
        SampleColumn::new(141, &[40, 0]),
        SampleColumn::new(16, &[0, 3]),
    ];
    for column in columns {
        let cell: &[u8] = match column.code {
            141 => b"\x04\0abc",
            16 => b"abc",
            _ => b"\x03abc",
        };
        let (body, mut found) = values(column, &[cell]);
        let (Ok(Value::Text(bytes)) | Ok(Value::Bytes(bytes))) = found.remove(0) else {
            panic!()
        };
        assert_eq!(bytes, "abc");
        assert!(body.as_ptr_range().contains(&bytes.as_ptr()));
    }
}

#[test]
fn printed_cells_share_memory_and_stay_what_they_are() {
    let numbers: Vec<_> = (0..5_000_i32).map(i32::to_le_bytes).collect();
    let cells: Vec<_> = numbers.iter().map(<[u8; 4]>::as_slice).collect();
    let found = texts(SampleColumn::new(3, b""), &cells);
    let mut together = 0;
    for (index, pair) in found.windows(2).enumerate() {
        let [Ok(Value::Text(one)), Ok(Value::Text(next))] = pair else {
            panic!()
        };
        assert_eq!(*one, format!("{index}"));
        together += usize::from(one.as_ptr_range().end == next.as_ptr());
    }
    assert!(together > 4_900, "{together}");
}

#[test]
fn long_text_has_memory_of_its_own() {
    let long = vec![0xE9; 60_000];
    let cell = [&60_000_u16.to_le_bytes()[..], &long].concat();
    let column = SampleColumn::new(252, &[2]).in_collation(8);
    let found = texts(column, &[&cell, b"\x01\0\xE9"]);
    assert_eq!(found, [Ok(text(&"é".repeat(60_000))), Ok(text("é"))]);
}
