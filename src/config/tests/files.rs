use std::fs;

use super::*;

fn file(folder: &Path, name: &str, pipeline: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, ours().replace("order-events", pipeline)).unwrap();
    path
}

#[test]
fn a_folder_gives_its_yaml_files_by_name_without_hidden_ones_and_folders() {
    let folder = tempfile::tempdir().unwrap();
    for (name, pipeline) in [
        ("b.yaml", "b"),
        ("a.yml", "a"),
        (".c.yaml", "c"),
        ("d.txt", "d"),
        ("e.yaml~", "e"),
    ] {
        file(folder.path(), name, pipeline);
    }
    fs::create_dir(folder.path().join("sub.yaml")).unwrap();
    file(&folder.path().join("sub.yaml"), "f.yaml", "f");
    let apart = tempfile::tempdir().unwrap();
    let single = file(apart.path(), "named.conf", "single");
    let loaded = load_all(&[single, folder.path().to_owned()], &environment()).unwrap();
    let names: Vec<_> = loaded.iter().map(|loaded| loaded.pipeline.name.as_str()).collect();
    assert_eq!(names, ["single", "a", "b"]);
}

#[test]
fn a_missing_path_and_an_empty_folder_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("none.yaml");
    let errors = load_all(&[missing.clone(), folder.path().to_owned()], &environment()).unwrap_err();
    assert_eq!(
        errors.to_string(),
        format!(
            "{}: cannot be read: entity not found\n{}: no pipeline files in this folder: expected names that end in .yaml or .yml",
            missing.display(),
            folder.path().display()
        )
    );
    assert_eq!(load(&missing, &environment()).unwrap_err().violations.len(), 1);
}

#[test]
fn the_violations_of_all_files_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    file(folder.path(), "a.yaml", "Bad A");
    file(folder.path(), "b.yaml", "Bad B");
    let errors = load_all(&[folder.path().to_owned()], &environment()).unwrap_err();
    assert_eq!(errors.violations().count(), 2);
}

#[test]
fn two_files_with_one_name_are_refused_and_both_named() {
    let folder = tempfile::tempdir().unwrap();
    let first = file(folder.path(), "a.yaml", "same");
    let second = file(folder.path(), "b.yaml", "same");
    let errors = load_all(&[folder.path().to_owned()], &environment()).unwrap_err();
    let expected = format!(
        "{}:4:9: metadata.name: pipeline `same` is also in {}: expected one file for a name",
        second.display(),
        first.display()
    );
    assert_eq!(errors.to_string(), expected);
}

#[test]
fn two_files_with_one_server_id_for_one_server_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, dsn: &str, id: &str| {
        let text = mysql::ours_mysql()
            .replace("name: shop", &format!("name: {name}"))
            .replace("${MYSQL_DSN}", dsn)
            .replace("      tables: [", &format!("      {id}\n      tables: ["));
        let path = folder.path().join(format!("{name}.yaml"));
        fs::write(&path, text).unwrap();
        path
    };
    let first = write("a", "mysql://u@h/x", "server_id: 5");
    write("b", "mysql://u@h2", "server_id: 5");
    write("c", "mysql://u@h", "server_id: 6");
    write("d", "mysql://u@h", "");
    write("e", "mysql://u@h", "");
    load_all(&[folder.path().to_owned()], &environment()).unwrap();
    let second = write("f", "mariadb://v:p@h:3306/y", "server_id: 5");
    let errors = load_all(&[folder.path().to_owned()], &environment()).unwrap_err();
    let expected = format!(
        "{}: spec.source.config.server_id: server id 5 is also in {}, for the same server: expected distinct ones",
        second.display(),
        first.display()
    );
    assert_eq!(errors.to_string(), expected);
}

#[test]
fn two_files_with_one_transactional_id_for_one_kafka_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, brokers: &str, sink: &str| {
        let text = sink_with(sink)
            .replace("name: order-events", &format!("name: {name}"))
            .replace("${KAFKA_BROKERS}", &format!("'{brokers}'"));
        let path = folder.path().join(format!("{name}.yaml"));
        fs::write(&path, text).unwrap();
        path
    };
    let once = |id: &str| format!("exactly_once: true\n        {id}");
    let first = write("a", "k1:9092,k2:9092", &once("transactional_id: tx"));
    write("b", "k3:9092", &once("transactional_id: tx"));
    write("c", "k1:9092", &once("transactional_id: ty"));
    write("d", "k1:9092", &once(""));
    write("e", "k1:9092", &once(""));
    write("tailpost-e", "k1:9092", "");
    load_all(&[folder.path().to_owned()], &environment()).unwrap();
    let second = write("f", "k2:9092", &once("transactional_id: tx"));
    let errors = load_all(&[folder.path().to_owned()], &environment()).unwrap_err();
    let expected = format!(
        "{}: spec.sinks[0].config.transactional_id: transactional id `tx` is also in {}, for the same brokers: expected distinct ones",
        second.display(),
        first.display()
    );
    assert_eq!(errors.to_string(), expected);
}

#[test]
fn two_files_with_one_audit_ledger_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, ledger: &str| {
        let text =
            spec_with(&format!("audit: {{path: {ledger}}}")).replace("name: order-events", &format!("name: {name}"));
        let path = folder.path().join(format!("{name}.yaml"));
        fs::write(&path, text).unwrap();
        path
    };
    let first = write("a", "a.jsonl");
    write("b", "b.jsonl");
    load_all(&[folder.path().to_owned()], &environment()).unwrap();
    let second = write("c", "a.jsonl");
    let errors = load_all(&[folder.path().to_owned()], &environment()).unwrap_err();
    let expected = format!(
        "{}: spec.audit.path: `a.jsonl` is the ledger of the pipeline in `{}` too: expected a file of its own",
        second.display(),
        first.display()
    );
    assert_eq!(errors.to_string(), expected);
}

#[test]
fn what_is_no_text_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.yaml");
    fs::write(&path, b"a: \xff\n").unwrap();
    assert!(
        load(&path, &environment())
            .unwrap_err()
            .to_string()
            .ends_with("a.yaml: is not UTF-8 text")
    );
    fs::write(&path, "x".repeat(2 * document::MAX_BYTES)).unwrap();
    assert!(
        load(&path, &environment())
            .unwrap_err()
            .to_string()
            .ends_with("expected at most 1 MiB of text")
    );
    assert!(load(Path::new("/dev/zero"), &environment()).is_err());
}

#[test]
fn the_ready_files_load_without_a_note() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    for name in [
        "pipelines/changes-mysql.yaml",
        "pipelines/contracts-postgres.yaml",
        "pipelines/graphdb-postgres.yaml",
        "pipelines/orders-postgres.yaml",
        "pipelines/outbox-table-postgres.yaml",
        "pipelines/shop-mysql.yaml",
        "pipelines/solr-postgres.yaml",
        "pipelines/webhooks-postgres.yaml",
        "examples/event-bus-mysql/pipeline.yaml",
        "examples/governed-datasets/pipeline.yaml",
        "examples/orders-postgres/pipeline.yaml",
        "examples/search-projector/pipeline.yaml",
        "examples/shop-mysql/pipeline.yaml",
        "src/cli/demo/pipelines/postgres.yaml",
        "src/cli/demo/pipelines/mysql.yaml",
    ] {
        let loaded = load(&folder.join(name), &environment()).unwrap();
        assert_eq!(loaded.notes, [], "{name}");
    }
}

#[test]
fn the_ready_file_with_secrets_loads_where_they_are() {
    let secrets = tempfile::tempdir().unwrap();
    for name in ["pg-password", "kafka-password", "ca.crt"] {
        fs::write(secrets.path().join(name), "it is a secret\n").unwrap();
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("pipelines/kafka-tls-postgres.yaml");
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(load(&path, &environment()).unwrap_err().violations.len(), 2);
    let text = text.replace("/run/secrets", secrets.path().to_str().unwrap());
    let loaded = load_text(&path, &text, &environment()).unwrap();
    assert_eq!(loaded.notes, []);
}
