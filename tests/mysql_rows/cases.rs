//! The types that [`super::types`] goes through, and their values.

/// How a cell stands in an envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// The server's text as a JSON number.
    Number,
    /// The server's text as a JSON string.
    Text,
    /// The server's text as it is.
    Json,
    /// The bytes in hexadecimal digits.
    Bytes,
}
use Shown::{Bytes, Json, Number, Text};

/// The servers that have the type, each from a version on, as `080023`.
#[derive(Debug, Clone, Copy)]
pub(super) struct On {
    pub(super) mysql: Option<u32>,
    pub(super) mariadb: Option<u32>,
}

const BOTH: On = On {
    mysql: Some(0),
    mariadb: Some(0),
};
const MYSQL: On = mysql_from(0);
const MARIADB: On = mariadb_from(0);

const fn mysql_from(version: u32) -> On {
    On {
        mysql: Some(version),
        mariadb: None,
    }
}

const fn mariadb_from(version: u32) -> On {
    On {
        mysql: None,
        mariadb: Some(version),
    }
}

pub(super) type Case = (&'static str, Shown, On, &'static [&'static str]);

/// Column types, and values as SQL writes them; beside these every column is NULL once.
pub(super) const CASES: &[Case] = &[
    ("tinyint", Number, BOTH, &["-128", "-1", "0", "127"]),
    ("tinyint unsigned", Number, BOTH, &["0", "128", "255"]),
    ("boolean", Number, BOTH, &["true", "false"]),
    ("smallint", Number, BOTH, &["-32768", "-1", "32767"]),
    ("smallint unsigned", Number, BOTH, &["0", "65535"]),
    ("mediumint", Number, BOTH, &["-8388608", "-1", "0", "8388607"]),
    ("mediumint unsigned", Number, BOTH, &["0", "8388608", "16777215"]),
    ("int", Number, BOTH, &["-2147483648", "-1", "2147483647"]),
    ("int unsigned", Number, BOTH, &["0", "3230202323", "4294967295"]),
    (
        "bigint",
        Number,
        BOTH,
        &["-9223372036854775808", "-1", "9223372036854775807"],
    ),
    (
        "bigint unsigned",
        Number,
        BOTH,
        &["0", "9223372036854775808", "18446744073709551615"],
    ),
    (
        "decimal(10,2)",
        Text,
        BOTH,
        &["-0.05", "0", "0.05", "-99999999.99", "99999999.99"],
    ),
    (
        "decimal(65,30)",
        Text,
        BOTH,
        &[
            "-99999999999999999999999999999999999.999999999999999999999999999999",
            "0.000000000000000000000000000001",
            "-0.000000001000000000000000000001",
            "12345678901234567890",
        ],
    ),
    ("decimal(5,0)", Text, BOTH, &["-1", "99999"]),
    ("decimal(9,9)", Text, BOTH, &["-0.000000001", "0.999999999"]),
    (
        "float",
        Number,
        BOTH,
        &[
            "3.402823466e38",
            "-1.175494351e-38",
            "0.1",
            "-1.5",
            "16777216",
            "123456.789",
            "1e-10",
            "1e20",
            "0",
        ],
    ),
    (
        "double",
        Number,
        BOTH,
        &[
            "1.7976931348623157e308",
            "-1.7976931348623157e308",
            "2.2250738585072014e-308",
            "0.1",
            "-0e0",
            "1e14",
            "1e15",
            "123456789012345680",
            "0.0001",
            "1e-5",
            "0.1e0 + 0.2e0",
        ],
    ),
    ("year", Number, BOTH, &["1901", "2000", "2155"]),
    // No number in JSON begins so.
    ("year", Text, BOTH, &["0"]),
    (
        "date",
        Text,
        BOTH,
        &[
            "'0000-00-00'",
            "'1000-01-01'",
            "'2024-00-00'",
            "'2024-02-29'",
            "'9999-12-31'",
        ],
    ),
    (
        "time",
        Text,
        BOTH,
        &["'-838:59:59'", "'-00:00:01'", "'00:00:00'", "'838:59:59'"],
    ),
    (
        "time(1)",
        Text,
        BOTH,
        &["'-00:00:00.1'", "'-12:34:56.7'", "'838:59:59.0'"],
    ),
    (
        "time(2)",
        Text,
        BOTH,
        &["'-00:00:00.01'", "'-12:34:56.78'", "'12:34:56.99'"],
    ),
    (
        "time(3)",
        Text,
        BOTH,
        &["'-00:00:00.001'", "'-12:34:56.789'", "'12:34:56.999'"],
    ),
    (
        "time(4)",
        Text,
        BOTH,
        &["'-00:00:00.0001'", "'-01:00:00.0000'", "'12:34:56.9999'"],
    ),
    (
        "time(5)",
        Text,
        BOTH,
        &["'-00:00:00.00001'", "'-12:34:56.78901'", "'12:34:56.99999'"],
    ),
    (
        "time(6)",
        Text,
        BOTH,
        &[
            "'-838:59:58.999999'",
            "'-00:00:00.000001'",
            "'-00:00:01.000000'",
            "'838:59:58.999999'",
        ],
    ),
    (
        "datetime",
        Text,
        BOTH,
        &[
            "'0000-00-00 00:00:00'",
            "'1000-01-01 00:00:00'",
            "'2024-00-01 01:02:03'",
            "'9999-12-31 23:59:59'",
        ],
    ),
    (
        "datetime(1)",
        Text,
        BOTH,
        &["'0000-00-00 00:00:00.0'", "'2024-02-29 12:34:56.7'"],
    ),
    (
        "datetime(2)",
        Text,
        BOTH,
        &["'2024-02-29 12:34:56.78'", "'2024-02-29 12:34:56.00'"],
    ),
    (
        "datetime(3)",
        Text,
        BOTH,
        &["'2024-02-29 12:34:56.789'", "'2024-02-29 12:34:56.001'"],
    ),
    (
        "datetime(4)",
        Text,
        BOTH,
        &["'2024-02-29 12:34:56.7890'", "'9999-12-31 23:59:59.9999'"],
    ),
    (
        "datetime(5)",
        Text,
        BOTH,
        &["'2024-02-29 12:34:56.78901'", "'0001-01-01 00:00:00.00001'"],
    ),
    (
        "datetime(6)",
        Text,
        BOTH,
        &[
            "'0000-00-00 00:00:00.000000'",
            "'1000-01-01 00:00:00.000001'",
            "'9999-12-31 23:59:59.999999'",
        ],
    ),
    (
        "timestamp null",
        Text,
        BOTH,
        &[
            "'0000-00-00 00:00:00'",
            "'1970-01-01 00:00:01'",
            "'2038-01-19 03:14:07'",
        ],
    ),
    (
        "timestamp(1) null",
        Text,
        BOTH,
        &["'0000-00-00 00:00:00.0'", "'2024-02-29 12:34:56.7'"],
    ),
    ("timestamp(2) null", Text, BOTH, &["'2024-02-29 12:34:56.07'"]),
    (
        "timestamp(3) null",
        Text,
        BOTH,
        &["'1970-01-01 00:00:01.001'", "'2024-02-29 12:34:56.789'"],
    ),
    ("timestamp(4) null", Text, BOTH, &["'2024-02-29 12:34:56.7890'"]),
    ("timestamp(5) null", Text, BOTH, &["'2024-02-29 12:34:56.00001'"]),
    (
        "timestamp(6) null",
        Text,
        BOTH,
        &[
            "'0000-00-00 00:00:00.000000'",
            "'1970-01-01 00:00:01.000001'",
            "'2038-01-19 03:14:07.999999'",
        ],
    ),
    (
        "enum('a', 'it''s', 'é', 'com,ma')",
        Text,
        BOTH,
        &["'a'", "'it''s'", "'é'", "'com,ma'", "'no such'"],
    ),
    ("enum('a', 'é') charset latin1", Text, BOTH, &["'é'"]),
    (
        "set('a', 'it''s', 'é')",
        Text,
        BOTH,
        &["''", "'a'", "'a,é'", "'a,it''s,é'"],
    ),
    ("set('я', 'ю') charset cp1251", Text, BOTH, &["'ю'", "'я,ю'"]),
    ("bit(1)", Bytes, BOTH, &["b'0'", "b'1'"]),
    ("bit(9)", Bytes, BOTH, &["1", "b'100000001'"]),
    ("bit(64)", Bytes, BOTH, &["0", "1", "18446744073709551615"]),
    (
        "binary(16)",
        Bytes,
        BOTH,
        &[
            "X'00112233445566778899AABBCCDDEE00'",
            "X'00'",
            "''",
            "X'FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF'",
        ],
    ),
    ("binary(4)", Bytes, BOTH, &["X'0100'", "X'20202020'"]),
    ("varbinary(16)", Bytes, BOTH, &["''", "X'00'", "X'FF00'"]),
    ("varbinary(300)", Bytes, BOTH, &["X'00FF'", "REPEAT(X'FE', 300)"]),
    ("char(10)", Text, BOTH, &["''", "'a b  '", "'ä€😀'"]),
    ("char(255)", Text, BOTH, &["''", "REPEAT('😀', 255)"]),
    (
        "varchar(63)",
        Text,
        BOTH,
        &[
            "''",
            "'trailing  '",
            r#"'quote " backslash \\ tab \t newline \n zero \0 del '"#,
        ],
    ),
    ("varchar(64)", Text, BOTH, &["'null'", "REPEAT('€', 64)"]),
    ("varchar(300)", Text, BOTH, &["REPEAT('😀', 300)"]),
    ("tinytext", Text, BOTH, &["''", "REPEAT('x', 255)"]),
    ("text", Text, BOTH, &["''", "REPEAT('x', 65535)"]),
    ("mediumtext", Text, BOTH, &["REPEAT('é', 35000)"]),
    ("longtext", Text, BOTH, &["''", "REPEAT('x', 70000)"]),
    ("tinyblob", Bytes, BOTH, &["''", "REPEAT(X'00', 255)"]),
    ("blob", Bytes, BOTH, &["X'00FF27'", "REPEAT(X'80', 65535)"]),
    ("mediumblob", Bytes, BOTH, &["REPEAT(X'FF', 70000)"]),
    ("longblob", Bytes, BOTH, &["X'0A'", "REPEAT(X'01', 70000)"]),
    ("varchar(20) charset latin1", Text, BOTH, &["'é€'", "'plain'"]),
    ("char(20) charset latin1", Text, BOTH, &["'ÿ'"]),
    ("text charset latin1", Text, BOTH, &["'£'"]),
    ("varchar(20) charset latin2", Text, BOTH, &["'łž'"]),
    ("varchar(20) charset latin7", Text, BOTH, &["'ąč'"]),
    ("varchar(20) charset ascii", Text, BOTH, &["'ascii'"]),
    ("varchar(20) charset utf8mb3", Text, BOTH, &["'é€'"]),
    ("varchar(20) charset ucs2", Text, BOTH, &["'é€'"]),
    ("char(20) charset utf16", Text, BOTH, &["'é€😀'", "'a'"]),
    ("text charset utf16", Text, BOTH, &["'é€😀'"]),
    ("varchar(20) charset utf16le", Text, BOTH, &["'é😀'"]),
    ("varchar(20) charset utf32", Text, BOTH, &["'é😀'"]),
    ("varchar(20) charset sjis", Text, BOTH, &["'日本ソ表ｱ'"]),
    ("varchar(20) charset cp932", Text, BOTH, &["'日本①'"]),
    ("varchar(20) charset ujis", Text, BOTH, &["'日本ｱ'"]),
    ("varchar(20) charset gbk", Text, BOTH, &["'中文誠'"]),
    ("varchar(20) charset gb2312", Text, BOTH, &["'中文'"]),
    ("varchar(20) charset gb18030", Text, MYSQL, &["'中文😀'"]),
    ("varchar(20) charset big5", Text, BOTH, &["'中功'"]),
    ("varchar(20) charset euckr", Text, BOTH, &["'한국'"]),
    ("varchar(20) charset cp1250", Text, BOTH, &["'łž'"]),
    ("varchar(20) charset cp1251", Text, BOTH, &["'Привет'"]),
    ("varchar(20) charset cp1257", Text, BOTH, &["'ąč'"]),
    ("varchar(20) charset cp850", Text, BOTH, &["'éÄ'"]),
    ("varchar(20) charset cp866", Text, BOTH, &["'Привет'"]),
    ("varchar(20) charset koi8r", Text, BOTH, &["'Привет'"]),
    ("varchar(20) charset greek", Text, BOTH, &["'αβ'"]),
    ("varchar(20) charset hebrew", Text, BOTH, &["'שלום'"]),
    ("varchar(20) charset tis620", Text, BOTH, &["'ไทย'"]),
    (
        "json",
        Json,
        MYSQL,
        &[
            "'null'",
            "'true'",
            "'\"text\"'",
            "'-1'",
            "'18446744073709551615'",
            "'1.5e300'",
            "'[]'",
            "'{}'",
            r#"'{"long key": 1, "b": [1, -2, 70000, 5000000000, {"deep": [null, false]}], "a": "é\\u0001\\n\\"😀"}'"#,
            "JSON_OBJECT('amount', 12.50, 'small', -0.05, 'big', CAST('12345678901234567890.123456789' AS DECIMAL(30, 9)))",
            "JSON_OBJECT('date', DATE'2024-02-29', 'time', TIME'-12:34:56.789', 'at', TIMESTAMP'2024-02-29 12:34:56.000001')",
            "JSON_ARRAY(CAST(X'00FF' AS BINARY), 9223372036854775807, 18446744073709551615, 1e0, 0.1e0, JSON_ARRAY(b'101'))",
            "JSON_OBJECT('large', REPEAT('x', 70000))",
        ],
    ),
    // A name for LONGTEXT there, which keeps what was written.
    (
        "json",
        Text,
        MARIADB,
        &["'null'", r#"' { "b" : 1.50, "a":[ ] , "b": 12345678901234567890 } '"#],
    ),
    (
        "geometry",
        Bytes,
        BOTH,
        &[
            "ST_GeomFromText('POINT(1 -2.5)')",
            "ST_GeomFromText('LINESTRING(0 0, 1 1)', 4326)",
        ],
    ),
    ("point", Bytes, BOTH, &["ST_GeomFromText('POINT(0 0)')"]),
    (
        "polygon",
        Bytes,
        BOTH,
        &["ST_GeomFromText('POLYGON((0 0, 1 0, 1 1, 0 0))')"],
    ),
    (
        "vector(3)",
        Bytes,
        mysql_from(90000),
        &["STRING_TO_VECTOR('[1, -2.5, 0]')"],
    ),
    (
        "vector(3)",
        Bytes,
        mariadb_from(110_701),
        &["VEC_FromText('[1, -2.5, 0]')"],
    ),
    (
        "uuid",
        Text,
        mariadb_from(100_700),
        &[
            "'123e4567-e89b-12d3-a456-426655440000'",
            "'00000000-0000-0000-0000-000000000000'",
            "'0191f0a0-0000-7000-8000-0000000000ff'",
            "'ffffffff-ffff-ffff-ffff-ffffffffff00'",
        ],
    ),
    (
        "inet6",
        Text,
        mariadb_from(100_500),
        &[
            "'::'",
            "'::1'",
            "'2001:db8::ff00:42:8329'",
            "'::ffff:192.168.0.1'",
            "'fe80::'",
        ],
    ),
    (
        "inet4",
        Text,
        mariadb_from(101_000),
        &["'0.0.0.0'", "'192.168.1.0'", "'255.255.255.255'"],
    ),
    (
        "varchar(200) compressed",
        Text,
        MARIADB,
        &["''", "'é'", "REPEAT('é', 200)"],
    ),
    (
        "varbinary(200) compressed",
        Bytes,
        MARIADB,
        &["''", "X'00'", "REPEAT(X'FF', 200)"],
    ),
    ("text compressed", Text, MARIADB, &["'short'", "REPEAT('é', 20000)"]),
    ("blob compressed", Bytes, MARIADB, &["X'00'", "REPEAT(X'00', 65535)"]),
    (
        "longtext compressed charset latin1",
        Text,
        MARIADB,
        &["REPEAT('é', 2000)"],
    ),
    ("int AS (c0 + 1) STORED", Number, BOTH, &["DEFAULT"]),
    (
        "varchar(20) AS (CONCAT('<', c0, '>')) VIRTUAL",
        Text,
        BOTH,
        &["DEFAULT"],
    ),
    ("int INVISIBLE", Number, mysql_from(80023), &["-7"]),
    ("int INVISIBLE", Number, MARIADB, &["-7"]),
    (
        "varchar(20) DEFAULT (UPPER('made'))",
        Text,
        mysql_from(80013),
        &["DEFAULT"],
    ),
    ("varchar(20) DEFAULT (UPPER('made'))", Text, MARIADB, &["DEFAULT"]),
    // As the log has them, an INT or a DOUBLE: how many digits are shown is the table's matter alone.
    ("int zerofill", Number, BOTH, &["4294967295"]),
    ("double(10,2)", Number, BOTH, &["12.25"]),
];
