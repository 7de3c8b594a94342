use std::error::Error;

use proptest::prelude::*;

use super::super::golden::{Captured, GOLDEN, cuts};
use super::super::plan::TablePlan;
use super::super::sample::{SampleColumn, bare_map, field, full_map, lenenc_bytes};
use super::*;

fn parse(body: &[u8]) -> Result<TableMap, TableMapError> {
    TableMap::parse(&Bytes::copy_from_slice(body), Flavor::MySql)
}

/// The message with its causes.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

fn int() -> SampleColumn {
    SampleColumn::new(3, b"")
}

fn varchar() -> SampleColumn {
    SampleColumn::new(15, &[40, 0])
}

fn golden_maps() -> impl Iterator<Item = (&'static Bytes, Flavor)> {
    GOLDEN.iter().flat_map(|golden| {
        golden.events.iter().filter_map(|event| match event {
            Captured::Map { body, .. } => Some((body, golden.flavor())),
            Captured::Rows { .. } => None,
        })
    })
}

#[test]
fn metadata_goes_to_the_columns_that_it_counts() {
    let columns = [
        varchar().in_collation(8),
        int().unsigned(true),
        SampleColumn::new(245, &[4]),
        SampleColumn::new(254, &[247, 1])
            .in_collation(33)
            .of_strings(&["a", "b"]),
        SampleColumn::new(13, b"").unsigned(true),
        SampleColumn::new(254, &[248, 1]).in_collation(45).of_strings(&["x"]),
        varchar().in_collation(63),
        int(),
    ];
    let key = field(9, &[7, 0, 0, 5]);
    let map = parse(&[full_map(&columns), key].concat()).unwrap();
    let said: Vec<_> = map
        .columns
        .iter()
        .map(|column| {
            let strings = column.strings.as_ref().map(|strings| strings.len());
            (column.unsigned, column.collation, strings, column.key)
        })
        .collect();
    let expected = [
        (None, Some(8), None, true),
        (Some(true), None, None, false),
        (None, None, None, false),
        (None, Some(33), Some(2), false),
        (Some(true), None, None, false),
        (None, Some(45), Some(1), false),
        (None, Some(63), None, false),
        (Some(false), None, None, true),
    ];
    assert_eq!(said, expected);
    assert_eq!((map.full_name().as_str(), map.needs_description()), ("s.t", false));
}

#[test]
fn default_charset_counts_character_columns_only() {
    let columns = [int(), varchar(), SampleColumn::new(255, &[4]), varchar(), varchar()];
    let body = Bytes::from([bare_map(&columns), field(2, &[45, 1, 8, 2, 0xFC, 0xFF, 0])].concat());
    let collations = |flavor| {
        let map = TableMap::parse(&body, flavor).unwrap();
        map.columns.iter().map(|column| column.collation).collect::<Vec<_>>()
    };
    assert_eq!(collations(Flavor::MySql), [None, Some(45), None, Some(8), Some(255)]);
    // There GEOMETRY is the second of them.
    assert_eq!(
        collations(Flavor::MariaDb),
        [None, Some(45), Some(8), Some(255), Some(45)]
    );
}

#[test]
fn fields_of_later_servers_are_passed_over() {
    let columns = [int(), varchar()];
    let plain = parse(&full_map(&columns)).unwrap();
    let later = parse(&[full_map(&columns), field(12, b"\xFF"), field(200, b"new")].concat()).unwrap();
    assert_eq!(later.columns, plain.columns);
}

#[test]
fn description_is_needed_for_what_the_log_leaves_out() {
    let needs = |columns: &[SampleColumn], flavor, full| {
        let body = if full { full_map(columns) } else { bare_map(columns) };
        let map = TableMap::parse(&body.into(), flavor).unwrap();
        map.needs_description()
    };
    let bytes = || SampleColumn::new(254, &[254, 16]).in_collation(63);
    assert!(!needs(&[int(), varchar(), bytes()], Flavor::MySql, true));
    assert!(needs(&[int()], Flavor::MySql, false));
    let year = || SampleColumn::new(13, b"");
    assert!(needs(&[int(), year(), int()], Flavor::MySql8, true));
    assert!(!needs(&[int(), year(), int()], Flavor::MySql, true));
    assert!(!needs(&[int(), int(), year()], Flavor::MySql8, true));
    assert!(needs(&[bytes()], Flavor::MariaDb, true));
    assert!(!needs(&[bytes().in_collation(45)], Flavor::MariaDb, true));
    for old in [7, 11, 12] {
        assert!(needs(&[SampleColumn::new(old, b"")], Flavor::MariaDb, true));
    }
    let names_alone = [bare_map(&[int()]), field(4, b"\x01a")].concat();
    assert!(parse(&names_alone).unwrap().needs_description());
}

#[test]
fn map_that_no_server_writes_says_what_is_wrong() {
    let columns = [int(), varchar(), SampleColumn::new(254, &[247, 1])];
    let with = |code, value: &[u8]| [bare_map(&columns), field(code, value)].concat();
    let many = [b"\x01s\0\x01t\0\xFC\x01\x10".as_slice(), &[3; 5000]].concat();
    let metadata = "read metadata of `s.t` in its table map";
    let cases = [
        (
            b"".to_vec(),
            "read table map: schema name is cut: found 0 bytes, expected 1",
        ),
        (
            b"\x01s\x01\x01t\0".to_vec(),
            "schema name of a table map is not UTF-8, or does not end in a zero byte",
        ),
        (
            b"\x01s\0\x01\xFF\0".to_vec(),
            "table name of a table map is not UTF-8, or does not end in a zero byte",
        ),
        (
            b"\x01s\0\x01t\0\0".to_vec(),
            "`s.t` has 0 columns in its table map, expected 1 to 4096",
        ),
        (many, "`s.t` has 4097 columns in its table map, expected 1 to 4096"),
        (
            b"\x01s\0\x01t\0\x02\x03\x06\0\0".to_vec(),
            "read type of column 2 of `s.t`: column type 6 is unknown",
        ),
        (
            b"\x01s\0\x01t\0\x01\x03\x02ab\0".to_vec(),
            "table map of `s.t` has 2 bytes of column metadata too many",
        ),
        (
            with(1, b""),
            &format!("{metadata}: SIGNEDNESS is cut: found 0 bytes, expected 1"),
        ),
        (
            with(1, b"\0\0"),
            &format!("{metadata}: field SIGNEDNESS has 1 bytes too many"),
        ),
        (
            with(2, b"\x2D\x01\x08"),
            &format!("{metadata}: field DEFAULT_CHARSET names column 1, expected less than 1"),
        ),
        (
            with(3, b"\x2D\x2D"),
            &format!("{metadata}: field COLUMN_CHARSET has 1 bytes too many"),
        ),
        (
            with(4, b"\x01a\x01\xFF\x01c"),
            &format!("{metadata}: field COLUMN_NAME is not UTF-8"),
        ),
        (
            with(6, b"\xFE\0\0\0\0\0\0\0\x80"),
            &format!(
                "{metadata}: field ENUM_STR_VALUE has 9223372036854775808 strings for a column, expected at most 65535"
            ),
        ),
        (
            with(8, b"\x03"),
            &format!("{metadata}: field PRIMARY_KEY names column 3, expected less than 3"),
        ),
    ];
    for (body, expected) in cases {
        assert_eq!(chain(&parse(&body).unwrap_err()), expected);
    }
}

#[test]
fn map_cut_anywhere_is_an_error_or_lacks_its_metadata() {
    for (body, flavor) in golden_maps() {
        let whole = TableMap::parse(body, flavor).unwrap();
        let bare = lenenc_bytes(whole.schema.as_bytes()).len() + whole.table.len() + 3 + whole.columns.len();
        for end in cuts(body) {
            match TableMap::parse(&body.slice(..end), flavor) {
                Ok(cut) => assert!(end >= bare && cut.columns.len() == whole.columns.len()),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_map_or_an_error(body: Vec<u8>) {
        let _ = parse(&body);
        let _ = TableMap::name_of(&body);
    }

    #[test]
    fn changed_maps_are_maps_or_errors(choice: prop::sample::Index, changes: Vec<(prop::sample::Index, u8)>) {
        let maps: Vec<_> = golden_maps().collect();
        let (body, flavor) = maps[choice.index(maps.len())];
        let mut changed = body.to_vec();
        for (place, byte) in changes {
            let place = place.index(changed.len());
            changed[place] = byte;
        }
        if let Ok(map) = TableMap::parse(&changed.into(), flavor)
            && let Ok(plan) = TablePlan::new(&map, None)
        {
            prop_assert_eq!(plan.table().columns.len(), map.columns.len());
        }
    }
}
