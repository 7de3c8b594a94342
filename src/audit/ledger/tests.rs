use super::*;
use crate::audit::Verifier;

const BODY: &[u8] = br#"{"a":"0123456789""#;

fn place(folder: &Path, max_size: u64, keep: Option<usize>) -> LedgerPlace {
    LedgerPlace {
        path: folder.join("audit/orders.jsonl"),
        max_size,
        keep,
    }
}

fn append(ledger: &mut Ledger, count: usize) {
    let mut done = 0;
    let entries = vec![(); count];
    ledger
        .append(&entries, &mut done, |out, ()| out.extend_from_slice(BODY))
        .unwrap();
    assert_eq!(done, count);
}

/// All files, one after the other.
fn verified(path: &Path) -> Verifier<usize> {
    let mut verifier = Verifier::default();
    let files = full_files(path).unwrap().into_iter().map(|(_, file)| file);
    let text: Vec<u8> = files
        .chain([path.to_owned()])
        .flat_map(|file| fs::read(file).unwrap())
        .collect();
    for (index, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        verifier.line(index, line);
    }
    assert_eq!(verifier.fault(), None);
    verifier
}

#[test]
fn the_chain_goes_over_files_and_processes() {
    let folder = tempfile::tempdir().unwrap();
    let place = place(folder.path(), 1000, None);
    for _ in 0..3 {
        let mut ledger = Ledger::new(place.clone());
        append(&mut ledger, 7);
        ledger.sync().unwrap();
    }
    let full = full_files(&place.path).unwrap();
    assert!(full.len() > 2, "{full:?}");
    let verifier = verified(&place.path);
    assert_eq!(verifier.line_count(), 21 + full.len() as u64);
    let text = fs::read_to_string(&place.path).unwrap();
    let (_, last) = full.last().unwrap();
    let name = last.file_name().unwrap().to_string_lossy();
    assert!(
        text.starts_with(&format!("{{\"continues\":\"{name}\",\"time\":")),
        "{text}"
    );
    for (_, file) in &full {
        assert!(fs::metadata(file).unwrap().len() < 1000 + 300);
    }
}

#[test]
fn only_so_many_full_files_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let place = place(folder.path(), 500, Some(2));
    append(&mut Ledger::new(place.clone()), 20);
    let numbers: Vec<u64> = full_files(&place.path)
        .unwrap()
        .iter()
        .map(|(number, _)| *number)
        .collect();
    assert_eq!(numbers.len(), 2);
    let verifier = verified(&place.path);
    assert!(verifier.first().unwrap().seq > 1);
}

#[test]
fn a_torn_line_is_taken_away_and_the_chain_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let place = place(folder.path(), u64::MAX, None);
    append(&mut Ledger::new(place.clone()), 2);
    let mut file = OpenOptions::new().append(true).open(&place.path).unwrap();
    file.write_all(b"{\"a\":").unwrap();
    append(&mut Ledger::new(place.clone()), 1);
    assert_eq!(verified(&place.path).line_count(), 3);
}

#[test]
fn a_crash_between_two_files_breaks_no_chain() {
    let folder = tempfile::tempdir().unwrap();
    let place = place(folder.path(), u64::MAX, None);
    append(&mut Ledger::new(place.clone()), 2);
    for left_behind in [None, Some("")] {
        fs::rename(&place.path, numbered(&place.path, 1 + left_behind.map_or(0, |_| 1))).unwrap();
        if let Some(text) = left_behind {
            fs::write(&place.path, text).unwrap();
        }
        append(&mut Ledger::new(place.clone()), 1);
    }
    assert_eq!(verified(&place.path).line_count(), 6);
}

#[test]
fn one_that_was_changed_at_its_end_is_not_gone_on_with() {
    let folder = tempfile::tempdir().unwrap();
    let place = place(folder.path(), u64::MAX, None);
    append(&mut Ledger::new(place.clone()), 2);
    let text = fs::read_to_string(&place.path).unwrap();
    let (first, second) = text.split_once('\n').unwrap();
    fs::write(&place.path, format!("{first}\n{}", second.replacen("012", "112", 1))).unwrap();
    let error = Ledger::new(place.clone()).open().unwrap_err();
    assert!(matches!(error, LedgerError::Damaged { .. }), "{error}");
}

#[test]
fn a_ledger_is_one_process_s() {
    let folder = tempfile::tempdir().unwrap();
    let place = place(folder.path(), u64::MAX, None);
    let mut first = Ledger::new(place.clone());
    first.open().unwrap();
    let mut second = Ledger::new(place);
    let error = second.open().unwrap_err();
    assert!(error.to_string().ends_with("is in use by another process"), "{error}");
    drop(first);
    second.open().unwrap();
}

#[test]
fn a_disk_that_is_full_takes_nothing_until_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let place = place(folder.path(), u64::MAX, None);
    fs::create_dir(place.path.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/dev/full", &place.path).unwrap();
    let mut ledger = Ledger::new(place.clone());
    let mut done = 0;
    let mut add = |done: &mut usize| ledger.append(&[(); 2], done, |out, ()| out.extend_from_slice(BODY));
    let error = add(&mut done).unwrap_err();
    assert!(
        matches!(&error, LedgerError::Write { source, .. } if source.kind() == io::ErrorKind::StorageFull),
        "{error}"
    );
    assert_eq!(done, 0);
    fs::remove_file(&place.path).unwrap();
    add(&mut done).unwrap();
    assert_eq!(done, 2);
    assert_eq!(verified(&place.path).line_count(), 2);
}

#[test]
fn what_a_failed_sync_left_in_doubt_is_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let place = place(folder.path(), u64::MAX, None);
    let mut ledger = Ledger::new(place.clone());
    append(&mut ledger, 1);
    ledger.sync().unwrap();
    append(&mut ledger, 2);
    ledger.open.as_mut().unwrap().is_suspect = true;
    append(&mut ledger, 1);
    assert_eq!(verified(&place.path).line_count(), 4);
    // Another's bytes in their place are not vouched for.
    append(&mut ledger, 1);
    let text = fs::read(&place.path).unwrap();
    let changed: Vec<u8> = text
        .iter()
        .map(|byte| if *byte == b'7' { b'8' } else { *byte })
        .collect();
    fs::write(&place.path, changed).unwrap();
    ledger.open.as_mut().unwrap().is_suspect = true;
    assert!(matches!(ledger.sync().unwrap_err(), LedgerError::Damaged { .. }));
}
