use super::super::golden::GOLDEN;
use super::super::sample::{SampleColumn, bare_map, full_map};
use super::super::table_map::Flavor;
use super::*;

fn map(body: Vec<u8>, flavor: Flavor) -> TableMap {
    TableMap::parse(&body.into(), flavor).unwrap()
}

fn described(columns: &[(&str, &str, Option<&str>)]) -> DescribedTable {
    let columns = columns.iter().map(|(name, column_type, charset)| DescribedColumn {
        name: (*name).to_owned(),
        column_type: (*column_type).to_owned(),
        charset: charset.map(str::to_owned),
        key: *name == "id",
    });
    DescribedTable {
        columns: columns.collect(),
    }
}

fn bytes16() -> SampleColumn {
    SampleColumn::new(254, &[254, 16]).in_collation(63)
}

fn varchar() -> SampleColumn {
    SampleColumn::new(15, &[40, 0])
}

fn error(map: &TableMap, described: Option<&DescribedTable>) -> String {
    TablePlan::new(map, described).unwrap_err().to_string()
}

#[test]
fn columns_without_names_need_the_database() {
    let map = map(bare_map(&[bytes16(), varchar()]), Flavor::MySql);
    assert_eq!(
        error(&map, None),
        "log does not name the columns of `s.t`: set binlog_row_metadata=FULL in the server"
    );
    let described = described(&[("id", "binary(16)", None), ("note", "varchar(10)", Some("utf8mb4"))]);
    let plan = TablePlan::new(&map, Some(&described)).unwrap();
    let column = |name: &str, kind, key| Column {
        name: name.to_owned(),
        kind,
        key,
    };
    let expected = Table {
        database: "s".to_owned(),
        schema: "s".to_owned(),
        name: "t".to_owned(),
        columns: vec![
            column("id", ColumnKind::Binary, true),
            column("note", ColumnKind::Text, false),
        ],
        keyed: true,
    };
    assert_eq!(**plan.table(), expected);
}

#[test]
fn description_of_an_altered_table_does_not_fit() {
    let columns = [bytes16(), varchar(), SampleColumn::new(3, b"")];
    let map = map(bare_map(&columns), Flavor::MySql);
    let mut columns = vec![
        ("id", "binary(16)", None),
        ("note", "varchar(20)", Some("utf8mb4")),
        ("n", "int unsigned", None),
    ];
    let found = error(&map, Some(&described(&columns)));
    let expected = "column `note` of `s.t` is `varchar(20)` in `utf8mb4` in the database, expected VARCHAR or VARBINARY of \
                    40 bytes as in the log: it was altered since; set binlog_row_metadata=FULL in the server";
    assert_eq!(found, expected);

    columns.pop();
    let found = error(&map, Some(&described(&columns)));
    assert!(
        found.starts_with("`s.t` has 2 columns in the database, expected 3 as in the log"),
        "{found}"
    );
}

/// Whatever layout a column was altered to, its rows are not read as that.
#[test]
fn description_with_any_other_type_does_not_fit() {
    let types = [
        ("tinyint", None),
        ("bigint(20)", None),
        ("year", None),
        ("float", None),
        ("double", None),
        ("decimal(11,3)", None),
        ("bit(5)", None),
        ("date", None),
        ("time(2)", None),
        ("datetime(5)", None),
        ("timestamp(4)", None),
        ("char(7)", Some("utf8mb3")),
        ("varchar(7)", Some("utf8mb3")),
        ("binary(9)", None),
        ("varbinary(9)", None),
        ("enum('a','b','c')", Some("sjis")),
        ("set('a','b','c')", Some("sjis")),
        ("vector(777)", None),
    ];
    let mut refused = 0;
    let unnamed = GOLDEN.iter().filter(|golden| golden.name.contains("-no-log"));
    for (map, described) in unnamed.flat_map(|golden| golden.described_maps()) {
        for (index, column) in described.columns.iter().enumerate() {
            for (column_type, charset) in types {
                let mut altered = described.clone();
                altered.columns[index].column_type = column_type.to_owned();
                altered.columns[index].charset = charset.map(str::to_owned);
                let name = |column_type: &str| column_type.split(['(', ' ']).next().unwrap().to_owned();
                if name(column_type) == name(&column.column_type) {
                    continue;
                }
                match TablePlan::new(&map, Some(&altered)) {
                    Err(PlanError::DoesNotFit { column: found, .. }) => assert_eq!(found, column.name),
                    found => panic!("{} as {column_type}: {found:?}", column.column_type),
                }
                refused += 1;
            }
        }
    }
    assert!(refused > 1000);
}

#[test]
fn types_that_only_the_database_knows_are_taken_from_it() {
    let body = full_map(&[bytes16(), bytes16(), varchar()]);
    let maria = map(body.clone(), Flavor::MariaDb);
    let kinds = |described: &DescribedTable| {
        let plan = TablePlan::new(&maria, Some(described)).unwrap();
        plan.table()
            .columns
            .iter()
            .map(|column| column.kind)
            .collect::<Vec<_>>()
    };
    // By name, whatever else has changed.
    let found = kinds(&described(&[
        ("new", "int", None),
        ("c1", "inet6", None),
        ("c0", "uuid", None),
    ]));
    assert_eq!(found, [ColumnKind::Uuid, ColumnKind::Text, ColumnKind::Text]);
    let found = kinds(&described(&[("c0", "binary(16)", None), ("c1", "uuid", None)]));
    assert_eq!(found, [ColumnKind::Binary, ColumnKind::Uuid, ColumnKind::Text]);
    // The key is that of the log, where names are.
    let mut rekeyed = described(&[("c0", "uuid", None), ("c1", "uuid", None)]);
    rekeyed.columns[0].key = true;
    assert!(!TablePlan::new(&maria, Some(&rekeyed)).unwrap().table().keyed);

    let gone = described(&[("c0", "uuid", None)]);
    assert_eq!(
        error(&maria, Some(&gone)),
        "column `c1` of `s.t` is not in the database any more, which alone knows the type of CHAR or BINARY of 16 bytes"
    );
    assert_eq!(
        error(&maria, None),
        "log does not hold the type (BINARY, UUID, INET4 or INET6) of column `c0` of `s.t`: expected it there or in the \
         database"
    );
    let other = described(&[("c0", "varchar(16)", Some("utf8mb4")), ("c1", "uuid", None)]);
    let found = error(&maria, Some(&other));
    assert!(
        found.starts_with("column `c0` of `s.t` is `varchar(16)` in `utf8mb4`"),
        "{found}"
    );

    // MySQL has no such types.
    let plan = TablePlan::new(&map(body, Flavor::MySql), None).unwrap();
    assert_eq!(plan.table().columns[0].kind, ColumnKind::Binary);
}

#[test]
fn digits_of_old_temporal_types_are_never_guessed() {
    let map = map(full_map(&[SampleColumn::new(11, b"")]), Flavor::MariaDb);
    assert_eq!(
        error(&map, None),
        "log does not hold the fractional digits of column `c0` of `s.t`: expected it there or in the database"
    );
    assert!(TablePlan::new(&map, Some(&described(&[("c0", "time(6)", None)]))).is_ok());
}

#[test]
fn unknown_charsets_are_named() {
    let unknown = map(full_map(&[varchar().in_collation(9999)]), Flavor::MySql);
    assert_eq!(
        error(&unknown, None),
        "column `c0` of `s.t` has the collation 9999, whose charset is not known"
    );
    let described = described(&[("c", "varchar(40)", Some("klingon"))]);
    assert_eq!(
        error(&map(bare_map(&[varchar()]), Flavor::MySql), Some(&described)),
        "column `c` of `s.t` has the charset `klingon`, which is not known"
    );
}

#[test]
fn strings_must_be_in_their_charset() {
    let mut column = SampleColumn::new(254, &[247, 1]);
    column.strings = vec![b"ok".to_vec(), b"\xFF".to_vec()];
    assert_eq!(
        error(&map(full_map(&[column]), Flavor::MySql), None),
        "strings of column `c0` of `s.t` are not in its charset"
    );
}
