use proptest::prelude::*;

use super::super::golden::{GOLDEN, cuts};
use super::super::model::{ModelRow, model};
use super::super::sample::{SampleColumn, plan, rows, text};
use super::*;

fn table() -> TablePlan {
    plan(&[
        SampleColumn::new(3, b""),
        SampleColumn::new(15, &[40, 0]),
        SampleColumn::new(1, b""),
    ])
}

fn row(values: &[Value]) -> Row {
    Row {
        values: values.to_vec(),
    }
}

fn read(plan: &TablePlan, kind: RowsKind, body: &[u8]) -> Vec<Result<RowPair, RowError>> {
    match Rows::new(plan, kind, Bytes::copy_from_slice(body)) {
        Ok(rows) => rows.collect(),
        Err(error) => vec![Err(error)],
    }
}

#[test]
fn nulls_are_counted_among_the_columns_that_are_there() {
    let plan = table();
    // The second and third column; of the two the first is NULL.
    let found = read(&plan, RowsKind::Write, b"\x03\x06\x01\x07");
    let after = Some(row(&[Value::Absent, Value::Null, text("7")]));
    assert_eq!(found, [Ok(RowPair { before: None, after })]);
}

#[test]
fn sides_of_an_update_have_their_own_columns() {
    let plan = table();
    let found = read(&plan, RowsKind::Update, b"\x03\x01\x06\0\x05\0\0\0\0\x01x\xFF");
    let before = Some(row(&[text("5"), Value::Absent, Value::Absent]));
    let after = Some(row(&[Value::Absent, text("x"), text("-1")]));
    assert_eq!(found, [Ok(RowPair { before, after })]);
}

#[test]
fn rows_of_another_table_are_refused() {
    let plan = table();
    let error = &read(&plan, RowsKind::Write, b"\x02\x03\0")[0];
    assert_eq!(
        error.as_ref().unwrap_err().to_string(),
        "rows of `s.t` have 2 columns, expected 3 as in its table map"
    );
}

#[test]
fn rows_without_columns_have_no_bytes() {
    let plan = table();
    let nothing = Some(row(&[Value::Absent, Value::Absent, Value::Absent]));
    for (kind, body, before, after) in [
        (RowsKind::Write, b"\x03\0".as_slice(), None, nothing.clone()),
        (RowsKind::Delete, b"\x03\0", nothing.clone(), None),
        (RowsKind::Update, b"\x03\0\0", nothing.clone(), nothing),
    ] {
        assert_eq!(read(&plan, kind, body), [Ok(RowPair { before, after })]);
        let body = Bytes::from_static(body);
        assert_eq!(count_rows(&plan, kind, &body), Ok(1));
        let mut rows = Rows::new(&plan, kind, body).unwrap();
        assert_eq!(
            (rows.skip_rows(0), rows.skip_rows(2), rows.next()),
            (Ok(0), Ok(1), None)
        );
    }
    let error = &read(&plan, RowsKind::Write, b"\x03\0\0")[0];
    assert_eq!(
        error.as_ref().unwrap_err().to_string(),
        "rows of `s.t` hold no column, but 1 bytes"
    );
}

#[test]
fn event_without_rows_has_none() {
    let plan = table();
    assert_eq!(read(&plan, RowsKind::Write, b"\x03\x07"), []);
    assert_eq!(count_rows(&plan, RowsKind::Write, &rows(3, &[])), Ok(0));
}

#[test]
fn rows_behind_a_cell_that_is_no_value_can_be_read() {
    let plan = table();
    let body = rows(3, &[b"\0\x05\0\0\0\x02a\xFF\x01", b"\0\x06\0\0\0\x01b\x02"]);
    let found = read(&plan, RowsKind::Write, &body);
    let error = found[0].as_ref().unwrap_err();
    let source = std::error::Error::source(error).unwrap();
    assert_eq!(
        format!("{error}: {source}"),
        "read column `c1` of `s.t`: text is not UTF-8"
    );
    let after = Some(row(&[text("6"), text("b"), text("2")]));
    assert_eq!(found[1..], [Ok(RowPair { before: None, after })]);

    // Of an update, a damaged old side does not hide where the next row begins.
    let body = [b"\x03\x02\x04".as_slice(), b"\0\x01\xFF\0\x01", b"\0\x01a\0\x02"].concat();
    let found = read(&plan, RowsKind::Update, &body);
    assert!(matches!(&found[0], Err(RowError::Cell { column, .. }) if column == "c1"));
    assert!(matches!(&found[1..], [Ok(_)]));
}

#[test]
fn cut_row_ends_its_event() {
    let plan = table();
    let body = rows(3, &[b"\0\x05\0\0\0\x01a\x01", b"\0\x06\0\0\0\x09b"]);
    let found = read(&plan, RowsKind::Write, &body);
    assert_eq!(found.len(), 2);
    let error = found[1].as_ref().unwrap_err();
    let source = std::error::Error::source(error).unwrap();
    assert_eq!(
        format!("{error}: {source}"),
        "read column `c1` of `s.t`: value is cut: found 1 bytes, expected 9"
    );
    assert_eq!(count_rows(&plan, RowsKind::Write, &body).as_ref(), Err(error));
    let mut rows = Rows::new(&plan, RowsKind::Write, body).unwrap();
    assert_eq!(rows.skip_rows(1), Ok(1));
    assert!(rows.skip_rows(1).is_err());
    assert_eq!((rows.skip_rows(1), rows.next()), (Ok(0), None));
}

#[test]
fn event_cut_anywhere_is_whole_rows_or_an_error() {
    for golden in GOLDEN.iter() {
        for (_, plan, kind, body) in golden.planned() {
            let whole = read(&plan, kind, &body);
            for end in cuts(&body) {
                let cut = body.slice(..end);
                let found = read(&plan, kind, &cut);
                let rows = found.iter().filter(|row| row.is_ok()).count();
                assert!(rows <= whole.len());
                let same = found.iter().zip(&whole).filter(|(found, whole)| found == whole).count();
                assert!(same >= rows);
                let failed = found.iter().any(Result::is_err);
                // Differences of documents can be counted, and not read.
                if kind != RowsKind::PartialUpdate {
                    assert_eq!(count_rows(&plan, kind, &cut).is_err(), failed);
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn rows_come_back_as_they_were_written(model in model()) {
        let body = Bytes::from(model.body.clone());
        let plan = model.plan();
        let read: Vec<_> = Rows::new(&plan, model.kind, body.clone()).unwrap().map(Result::unwrap).collect();
        let sides = |ModelRow { before, after }: &ModelRow| RowPair {
            before: before.clone().map(|values| Row { values }),
            after: after.clone().map(|values| Row { values }),
        };
        let expected: Vec<_> = model.rows.iter().map(sides).collect();
        prop_assert_eq!(&read, &expected);
        prop_assert_eq!(count_rows(&plan, model.kind, &body), Ok(expected.len() as u64));
        let mut rows = Rows::new(&plan, model.kind, body).unwrap();
        let half = expected.len() / 2;
        prop_assert_eq!(rows.skip_rows(half as u64), Ok(half as u64));
        prop_assert!(rows.map(Result::unwrap).eq(expected.into_iter().skip(half)));
    }

    #[test]
    fn any_bytes_are_rows_or_errors(body: Vec<u8>, choice: prop::sample::Index, kind in kinds()) {
        let golden = &GOLDEN[choice.index(GOLDEN.len())];
        for (_, plan, _, captured) in golden.planned().into_iter().take(1) {
            let head = captured.slice(..captured.len().min(12));
            for body in [body.clone(), [&head[..], &body].concat()] {
                let found = read(&plan, kind, &body);
                prop_assert!(found.len() <= body.len() + 1);
            }
        }
    }

    #[test]
    fn changed_events_are_rows_or_errors(
        choice: prop::sample::Index,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let golden = &GOLDEN[choice.index(GOLDEN.len())];
        for (_, plan, kind, body) in golden.planned() {
            let mut changed = body.to_vec();
            for (place, byte) in &changes {
                let place = place.index(changed.len());
                changed[place] = *byte;
            }
            let found = read(&plan, kind, &changed);
            let count = count_rows(&plan, kind, &changed.into());
            // Cells may be no values where rows can still be told apart.
            prop_assert!(count.is_err() || count == Ok(found.len() as u64));
        }
    }
}

fn kinds() -> impl Strategy<Value = RowsKind> {
    prop::sample::select(vec![
        RowsKind::Write,
        RowsKind::Update,
        RowsKind::Delete,
        RowsKind::PartialUpdate,
    ])
}
