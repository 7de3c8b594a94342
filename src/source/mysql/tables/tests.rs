use super::super::rows::DescribedColumn;
use super::*;
use crate::row::ColumnKind;

/// MariaDB's description of `s.t`, whose key `id` has 16 bytes.
const BODY: &[u8] = b"\x01s\0\x01t\0\x01\xfe\x02\xfe\x10\0\x02\x01\x3f\x04\x03\x02id\x08\x01\0";

fn tables() -> Tables {
    let mut tables = Tables::new(Selector::of(Vec::new(), Vec::new(), Vec::new()), false);
    tables.begin_file(Flavor::MariaDb);
    tables
}

/// Describes the table under this id, and gives the database's answer.
fn answered(tables: &mut Tables, id: u64, answer: Answer) -> Result<Arc<TablePlan>, Missing> {
    tables.describe(id, &Bytes::from_static(BODY)).unwrap();
    assert!(matches!(tables.plan(id), Err(Missing::Description)));
    tables.describe_from_schema(id, answer);
    tables.plan(id)
}

fn column(name: &str, column_type: &str) -> Answer {
    Answer::Table(DescribedTable {
        columns: vec![DescribedColumn {
            name: name.to_owned(),
            column_type: column_type.to_owned(),
            charset: None,
            key: true,
        }],
    })
}

fn kind(plan: Result<Arc<TablePlan>, Missing>) -> ColumnKind {
    plan.unwrap().table().columns[0].kind
}

#[test]
fn a_type_of_the_same_width_is_told_of_once_where_another_was_known() {
    let mut tables = tables();
    assert_eq!(kind(answered(&mut tables, 1, column("id", "uuid"))), ColumnKind::Uuid);
    assert_eq!(kind(answered(&mut tables, 2, column("id", "uuid"))), ColumnKind::Uuid);
    let retyped = RetypedColumn {
        name: "id".to_owned(),
        before: "uuid".to_owned(),
        now: "binary(16)".to_owned(),
        key: true,
    };
    let found = answered(&mut tables, 3, column("id", "binary(16)"));
    assert!(matches!(found, Err(Missing::Retyped(found)) if found == [retyped]));
    tables.forget_known("s.t");
    assert_eq!(kind(tables.plan(3)), ColumnKind::Binary);
    assert_eq!(
        kind(answered(&mut tables, 4, column("id", "binary(16)"))),
        ColumnKind::Binary
    );
    // Rows that were described before stay what they were.
    assert_eq!(kind(tables.plan(1)), ColumnKind::Uuid);
}

#[test]
fn a_table_that_is_gone_is_what_it_was_or_bytes() {
    let mut tables = tables();
    let Err(Missing::GuessOfGone(guessed)) = answered(&mut tables, 1, Answer::Gone) else {
        panic!()
    };
    tables.guess(1, guessed.table);
    assert_eq!(kind(tables.plan(1)), ColumnKind::Binary);
    // What was guessed is not known.
    assert_eq!(kind(answered(&mut tables, 2, column("id", "uuid"))), ColumnKind::Uuid);
    assert_eq!(kind(answered(&mut tables, 3, Answer::Gone)), ColumnKind::Uuid);
}

#[test]
fn a_column_that_is_gone_or_hidden_is_a_guess() {
    for answer in [Answer::Hidden, column("ident", "uuid"), column("id", "varchar(36)")] {
        let mut tables = tables();
        let found = answered(&mut tables, 1, answer.clone());
        assert!(matches!(found, Err(Missing::Guess(_))), "{answer:?}");
    }
}
