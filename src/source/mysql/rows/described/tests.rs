use super::*;

fn strings(column_type: &str) -> Option<Vec<String>> {
    let strings = TypeText::of(column_type).strings()?;
    Some(strings.into_iter().map(Cow::into_owned).collect())
}

fn column(kind: ColumnType) -> MapColumn {
    MapColumn {
        kind,
        name: None,
        unsigned: None,
        collation: None,
        strings: None,
        key: false,
    }
}

fn described(column_type: &str, charset: Option<&str>) -> DescribedColumn {
    DescribedColumn {
        name: "c".to_owned(),
        column_type: column_type.to_owned(),
        charset: charset.map(str::to_owned),
        key: false,
    }
}

#[test]
fn strings_are_unquoted() {
    let cases: [(&str, &[&str]); 6] = [
        ("enum('a')", &["a"]),
        ("enum('','a,b','(c)')", &["", "a,b", "(c)"]),
        ("set('it''s','''')", &["it's", "'"]),
        (
            r"enum('back\\slash','new\nline','cr\rx','nul\0x')",
            &["back\\slash", "new\nline", "cr\rx", "nul\0x"],
        ),
        ("enum('é☃','x y')", &["é☃", "x y"]),
        ("enum('\\\\''')", &["\\'"]),
    ];
    for (column_type, expected) in cases {
        let found = strings(column_type).unwrap();
        assert_eq!(found, expected, "{column_type}");
    }
}

#[test]
fn text_that_no_server_prints_has_no_strings() {
    for column_type in [
        "enum",
        "enum()",
        "enum('a'",
        "enum('a',)",
        "enum('a'b)",
        r"enum('\x')",
        "enum(a)",
        "enum('a)",
    ] {
        assert_eq!(strings(column_type), None, "{column_type}");
    }
}

#[test]
fn columns_fit_types_of_their_layout_alone() {
    use ColumnType::{
        Bit, Blob, Char, CompressedBlob, CompressedVarChar, Decimal, Enum, Geometry, Integer, Json, OldTime, Set, Time,
        VarChar, Vector, Year,
    };
    const UTF8MB4: Option<&str> = Some("utf8mb4");
    const DECIMAL: ColumnType = Decimal {
        precision: 10,
        scale: 2,
        bytes: 5,
    };
    let cases: [(ColumnType, &str, Option<&str>, bool); 45] = [
        (Integer { bytes: 4 }, "int", None, true),
        (Integer { bytes: 4 }, "int(10) unsigned zerofill", None, true),
        (Integer { bytes: 4 }, "bigint", None, false),
        (Integer { bytes: 1 }, "tinyint(1)", None, true),
        (Year, "year(4)", None, true),
        (Year, "tinyint(1)", None, false),
        (DECIMAL, "decimal(10,2) unsigned", None, true),
        (DECIMAL, "decimal(10,3)", None, false),
        (Bit { bits: 9 }, "bit(9)", None, true),
        (Bit { bits: 9 }, "bit(8)", None, false),
        (Time { digits: 0 }, "time", None, true),
        (Time { digits: 6 }, "time(6)", None, true),
        (Time { digits: 6 }, "time(3)", None, false),
        (Time { digits: 6 }, "datetime(6)", None, false),
        (OldTime, "time(6) /* mariadb-5.3 */", None, true),
        (OldTime, "time(7)", None, false),
        (Char { bytes: 40 }, "char(10)", UTF8MB4, true),
        (Char { bytes: 40 }, "char(11)", UTF8MB4, false),
        (Char { bytes: 40 }, "char(40)", Some("latin1"), true),
        (Char { bytes: 40 }, "varchar(10)", UTF8MB4, false),
        (Char { bytes: 16 }, "binary(16)", None, true),
        (Char { bytes: 16 }, "uuid", None, true),
        (Char { bytes: 16 }, "inet6", None, true),
        (Char { bytes: 16 }, "inet4", None, false),
        (Char { bytes: 4 }, "inet4", None, true),
        (VarChar { bytes: 1200 }, "varchar(300)", UTF8MB4, true),
        (VarChar { bytes: 1200 }, "varchar(400)", Some("utf8mb3"), true),
        (
            VarChar { bytes: 1200 },
            "varchar(300) /*M!100301 COMPRESSED*/",
            UTF8MB4,
            false,
        ),
        (VarChar { bytes: 12 }, "vector(3)", None, true),
        (
            CompressedVarChar { bytes: 1201 },
            "varchar(300) /*M!100301 COMPRESSED*/",
            UTF8MB4,
            true,
        ),
        (CompressedVarChar { bytes: 1201 }, "varchar(300)", UTF8MB4, false),
        (Blob { length_bytes: 2 }, "text", UTF8MB4, true),
        (Blob { length_bytes: 2 }, "blob /*M!100301 COMPRESSED*/", None, false),
        (Blob { length_bytes: 4 }, "longtext", UTF8MB4, true),
        (Blob { length_bytes: 4 }, "json", None, false),
        (
            CompressedBlob { length_bytes: 1 },
            "tinyblob /*M!100301 COMPRESSED*/",
            None,
            true,
        ),
        (Enum { bytes: 1 }, "enum('a','b')", UTF8MB4, true),
        (Enum { bytes: 2 }, "enum('a','b')", UTF8MB4, false),
        (Enum { bytes: 1 }, "set('a','b')", UTF8MB4, false),
        (Set { bytes: 1 }, "set('a','b')", UTF8MB4, true),
        (Set { bytes: 2 }, "set('a','b')", UTF8MB4, false),
        (Json { length_bytes: 4 }, "json", None, true),
        (Geometry { length_bytes: 4 }, "point", None, true),
        (Vector { length_bytes: 4 }, "vector(3)", None, true),
        (Vector { length_bytes: 4 }, "longblob", None, false),
    ];
    for (kind, column_type, charset, expected) in cases {
        let found = described(column_type, charset).fits(&column(kind));
        assert_eq!(found, expected, "{kind} {column_type}");
    }
}

#[test]
fn sign_charset_and_strings_must_agree_where_the_log_has_them() {
    let kind = ColumnType::Integer { bytes: 4 };
    for (unsigned, column_type, expected) in [
        (true, "int(10) unsigned", true),
        (true, "int(11)", false),
        (false, "int(11)", true),
        (false, "int unsigned zerofill", false),
    ] {
        let unsigned = Some(unsigned);
        let mapped = MapColumn {
            unsigned,
            ..column(kind)
        };
        assert_eq!(described(column_type, None).fits(&mapped), expected, "{column_type}");
    }

    let kind = ColumnType::Blob { length_bytes: 2 };
    for (collation, column_type, charset, expected) in [
        (45, "text", Some("utf8mb4"), true),
        (255, "text", Some("utf8mb4"), true),
        (8, "text", Some("utf8mb4"), false),
        (33, "text", Some("utf8"), true),
        (63, "text", Some("utf8mb4"), false),
        (63, "blob", None, true),
        (45, "blob", None, false),
    ] {
        let collation = Some(collation);
        let mapped = MapColumn {
            collation,
            ..column(kind)
        };
        assert_eq!(
            described(column_type, charset).fits(&mapped),
            expected,
            "{collation:?} {column_type}"
        );
    }

    let kind = ColumnType::Enum { bytes: 1 };
    for (count, expected) in [(1, false), (2, true), (3, false)] {
        let strings = Some(vec![Default::default(); count]);
        let mapped = MapColumn {
            strings,
            ..column(kind)
        };
        assert_eq!(described("enum('a','b')", Some("utf8mb4")).fits(&mapped), expected);
    }
}

/// Each is what `SET` takes for so many strings: `get_set_pack_length` in the servers' sources.
#[test]
fn sets_take_one_to_four_or_eight_bytes() {
    for (count, bytes) in [(1, 1), (8, 1), (9, 2), (17, 3), (25, 4), (32, 4), (33, 8), (64, 8)] {
        assert_eq!(set_bytes(count), bytes);
    }
}
