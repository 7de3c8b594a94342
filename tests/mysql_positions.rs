//! Where reading begins and goes on in a binlog, by each way in which a place in it is named.

use mysql::prelude::Queryable;
use tailpost::position::MysqlBase;

use crate::support::binlog::{Binlog, insert, log_end, over_each_binlog, values, wait_saved_to_the_end};
use crate::support::mysql::{Flavor, Script};
use crate::support::mysql_bed::MysqlBed;
use crate::support::relay::Relay;
use crate::support::{ANY_OUTBOX, DEADLINE, eventually};

/// A relay of the bed's outbox that begins so, if it has no checkpoint.
fn starting(bed: &MysqlBed, start: &str, topic: &str) -> Relay {
    let text = ANY_OUTBOX.replace("<topic>", &format!("<name>.{topic}"));
    bed.relay(
        &bed.fill(&text)
            .replace(&format!("start: {}", bed.start), &format!("start: {start}")),
    )
}

fn once(relay: &mut Relay) {
    relay.start_with(&["--once"]);
    assert_eq!(relay.wait_exit(DEADLINE), 0, "{}", relay.log());
}

fn values_of(bed: &MysqlBed, topic: &str, count: usize) -> Vec<String> {
    let mut reader = bed.reader(&[topic]);
    let records = reader.exactly(count).iter();
    records.map(|record| record.value_text().unwrap().to_owned()).collect()
}

fn stop(relay: &mut Relay) {
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0, "{}", relay.log());
}

fn each_start_begins_where_it_says(binlog: Binlog) {
    let (bed, _server) = binlog.own();
    insert(&bed, 1);
    bed.admin().run("FLUSH BINARY LOGS").unwrap();
    insert(&bed, 2);
    let (place, gtids) = (log_end(&bed), bed.gtids().to_string());
    insert(&bed, 3);
    let (file, pos) = (&place.file, place.pos);
    let mut starts = vec![
        ("earliest".to_owned(), vec!["1", "2", "3"]),
        ("latest".to_owned(), vec![]),
        (format!("{{file: {file}, pos: {pos}}}"), vec!["3"]),
        (format!("{{file: {file}}}"), vec!["2", "3"]),
    ];
    if binlog != Binlog::Files {
        starts.push((format!("{{gtid: '{gtids}'}}"), vec!["3"]));
    }
    let mut relays = Vec::new();
    for (at, (start, expected)) in starts.iter().enumerate() {
        let mut relay = starting(&bed, start, &format!("of{at}"));
        once(&mut relay);
        assert_eq!(
            values_of(&bed, &format!("of{at}"), expected.len()),
            *expected,
            "{start}"
        );
        // From now on the checkpoint says it.
        let elsewhere = if start == "latest" { "earliest" } else { "latest" };
        let text = std::fs::read_to_string(relay.pipeline_file()).unwrap();
        relay.rewrite(&text.replace(&format!("start: {start}"), &format!("start: {elsewhere}")));
        relays.push(relay);
    }
    insert(&bed, 4);
    for (at, (start, expected)) in starts.iter_mut().enumerate() {
        expected.push("4");
        once(&mut relays[at]);
        assert_eq!(
            values_of(&bed, &format!("of{at}"), expected.len()),
            *expected,
            "{start}"
        );
    }
}

fn a_start_that_there_is_not_is_refused_with_what_there_is(binlog: Binlog) {
    let (bed, _server) = binlog.own();
    insert(&bed, 1);
    let end = log_end(&bed).to_string();
    let (file, pos) = end.split_once(':').unwrap();
    let beyond = pos.parse::<u64>().unwrap() + 1;
    let uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5";
    let mut starts = vec![
        (
            "{file: binlog.000099, pos: 4}".to_owned(),
            vec!["binlog.000099:4", "binlog.000001:4", &end],
        ),
        (
            format!("{{file: {file}, pos: {beyond}}}"),
            vec!["binlog.000001:4", &end],
        ),
    ];
    match binlog {
        Binlog::Gtids => {
            starts.push((format!("{{gtid: '{uuid}'}}"), vec![uuid, "never had them"]));
            starts.push(("{gtid: 0-1-2}".to_owned(), vec!["MariaDB", "MySQL with GTIDs"]));
        }
        Binlog::Files => {
            starts.push((format!("{{gtid: '{uuid}'}}"), vec!["MySQL without gtid_mode = ON"]));
        }
        Binlog::Mariadb => {
            starts.push((format!("{{gtid: '{uuid}'}}"), vec!["GTID set of MySQL", "is MariaDB"]));
            starts.push((
                "{gtid: 0-1-999}".to_owned(),
                vec!["the place to begin at", "0-1-999", "never had"],
            ));
            starts.push((
                "{gtid: '0-1-1,5-1-1'}".to_owned(),
                vec!["the place to begin at", "5-1-1", "never had"],
            ));
        }
    }
    for (start, because) in starts {
        let mut relay = starting(&bed, &start, "events");
        let line = relay.fails();
        println!("{line}");
        for text in because {
            assert!(line.contains(text), "expected `{text}` in: {line}");
        }
        assert!(relay.position().is_none(), "nothing was saved");
    }
}

fn a_place_inside_an_event_is_refused(binlog: Binlog) {
    let (bed, _server) = binlog.own();
    let inside = log_end(&bed).pos + 5;
    insert(&bed, 1);
    let mut relay = starting(&bed, &format!("{{file: binlog.000001, pos: {inside}}}"), "events");
    let line = relay.fails();
    println!("{line}");
    assert!(
        line.contains("the place to begin at") && line.contains(&format!("binlog.000001:{inside}")),
        "{line}"
    );
    assert!(relay.position().is_none(), "nothing was saved");
}

/// Which transactions are done, of a server that has purged some: a start on it, and the next one.
fn what_was_purged_before_the_first_start_counts_as_done(binlog: Binlog) {
    let (bed, _server) = binlog.own();
    let mut admin = bed.admin();
    insert(&bed, 1);
    admin.run("FLUSH BINARY LOGS").unwrap();
    let oldest = log_end(&bed).file.to_string();
    admin.run(&format!("PURGE BINARY LOGS TO '{oldest}'")).unwrap();
    let mut relay = starting(&bed, "earliest", "events");
    relay.start();
    relay.wait_ready();
    insert(&bed, 2);
    relay.wait_published(1);
    wait_saved_to_the_end(&bed, &relay);
    relay.sigkill();
    // Without what was purged no start has everything.
    if binlog == Binlog::Mariadb {
        let line = starting(&bed, "{gtid: 0-1-1}", "none").fails();
        assert!(
            line.contains("the place to begin at") && line.contains("purged"),
            "{line}"
        );
    }
    let saved = relay.saved_mysql().unwrap();
    match binlog {
        Binlog::Gtids => {
            let line = starting(&bed, &format!("{{gtid: '{}:1'}}", server_uuid(&bed)), "none").fails();
            assert!(
                line.contains("the place to begin at") && line.contains("purged"),
                "{line}"
            );
            let purged: String = admin.query_first("SELECT @@GLOBAL.gtid_purged").unwrap().unwrap();
            assert!(!purged.is_empty());
            let purged: tailpost::gtid::GtidSet = purged.parse().unwrap();
            assert!(
                matches!(&saved.base, MysqlBase::Gtids(done) if purged.is_subset(done)),
                "{saved}"
            );
            assert!(bed.gtids().are_in(&saved.base));
        }
        Binlog::Mariadb => assert!(bed.gtids().are_in(&saved.base)),
        Binlog::Files => assert_eq!(*saved.place.file, *oldest),
    }
    insert(&bed, 3);
    relay.start();
    relay.wait_published(1);
    assert_eq!(values(&bed, 2), ["2", "3"]);
}

/// As after a restore from a backup: no file, and GTIDs of another server that count as had.
#[test]
fn gtids_of_a_backup_count_as_done() {
    let (bed, _server) = Binlog::Gtids.own();
    let backup = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:8-9";
    bed.admin()
        .run(&format!(
            "{}; SET GLOBAL gtid_purged = '{backup}'",
            reset(Binlog::Gtids)
        ))
        .unwrap();
    let mut relay = starting(&bed, "earliest", "events");
    relay.start();
    relay.wait_ready();
    insert(&bed, 1);
    relay.wait_published(1);
    wait_saved_to_the_end(&bed, &relay);
    relay.sigkill();
    let saved = relay.saved_mysql().unwrap().to_string();
    assert!(saved.contains(backup), "{saved}");
    insert(&bed, 2);
    relay.start();
    relay.wait_published(1);
    assert_eq!(values(&bed, 2), ["1", "2"]);
}

fn server_uuid(bed: &MysqlBed) -> String {
    bed.admin().query_first("SELECT @@server_uuid").unwrap().unwrap()
}

/// Forgets the whole binlog.
pub fn reset(binlog: Binlog) -> &'static str {
    let old = std::env::var("TAILPOST_TEST_MYSQL_KIND").is_ok_and(|kind| kind == "mysql80");
    match binlog.flavor() {
        Flavor::Mysql if !old => "RESET BINARY LOGS AND GTIDS",
        _ => "RESET MASTER",
    }
}

fn files_are_ordered_as_numbers(binlog: Binlog) {
    let (bed, server) = binlog.own();
    let mut relay = starting(&bed, "latest", "events");
    relay.start();
    relay.wait_ready();
    insert(&bed, 1);
    relay.wait_published(1);
    // The next file's number is one more than the largest in the folder.
    let stray = binlog.folder(&server).join("binlog.999998");
    server.down();
    std::fs::write(&stray, "").unwrap();
    server.up();
    std::fs::remove_file(&stray).unwrap();
    assert_eq!(*log_end(&bed).file, *"binlog.999999");
    insert(&bed, 2);
    relay.wait_published(2);
    wait_saved_to_the_end(&bed, &relay);
    bed.admin().run("FLUSH BINARY LOGS").unwrap();
    assert_eq!(*log_end(&bed).file, *"binlog.1000000");
    insert(&bed, 3);
    relay.wait_published(3);
    wait_saved_to_the_end(&bed, &relay);
    assert_eq!(*relay.saved_mysql().unwrap().place.file, *"binlog.1000000");
    relay.sigkill();
    insert(&bed, 4);
    once(&mut relay);
    assert_eq!(values(&bed, 4), ["1", "2", "3", "4"]);

    // Back over both files, by a start in the first.
    let mut again = starting(&bed, "{file: binlog.999999}", "again");
    once(&mut again);
    assert_eq!(values_of(&bed, "again", 3), ["2", "3", "4"]);
    // A checkpoint in the one is before one in the other.
    bed.admin().run("PURGE BINARY LOGS TO 'binlog.1000000'").unwrap();
    insert(&bed, 5);
    once(&mut again);
    assert_eq!(values_of(&bed, "again", 4), ["2", "3", "4", "5"]);
}

/// An outbox without events, and a neighbour that writes: the position moves, so that nothing is needed of the old files.
fn a_quiet_outbox_lets_the_log_be_purged(binlog: Binlog) {
    let (bed, _server) = binlog.own();
    let mut relay = starting(&bed, "latest", "events");
    relay.start();
    relay.wait_ready();
    let mut admin = bed.admin();
    admin.run("CREATE TABLE neighbour (i INT)").unwrap();
    for _ in 0..3 {
        admin
            .run("INSERT INTO neighbour VALUES (1); FLUSH BINARY LOGS")
            .unwrap();
    }
    wait_saved_to_the_end(&bed, &relay);
    relay.sigkill();
    let newest = log_end(&bed).file;
    admin.run(&format!("PURGE BINARY LOGS TO '{newest}'")).unwrap();
    insert(&bed, 1);
    relay.start();
    relay.wait_published(1);
    assert_eq!(values(&bed, 1), ["1"]);
}

fn without_a_checkpoint_it_begins_as_start_says_again(binlog: Binlog) {
    let (bed, _server) = binlog.own();
    insert(&bed, 1);
    let mut relay = starting(&bed, "earliest", "events");
    once(&mut relay);
    std::fs::remove_file(relay.checkpoint_file()).unwrap();
    insert(&bed, 2);
    once(&mut relay);
    assert_eq!(values(&bed, 3), ["1", "1", "2"]);
}

#[test]
fn tagged_gtids_and_holes_are_followed() {
    let (bed, _server) = Binlog::Gtids.own();
    let mut admin = bed.admin();
    let version: String = admin.query_first("SELECT VERSION()").unwrap().unwrap();
    let tagged = !version.starts_with("8.0");
    let mut relay = starting(&bed, "latest", "events");
    relay.start();
    relay.wait_ready();
    let uuid = server_uuid(&bed);
    let foreign = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
    let mut steps = vec![
        format!("SET gtid_next = '{uuid}:100'"),
        format!("SET gtid_next = '{foreign}:7'"),
        format!("SET gtid_next = '{foreign}:5'"),
        format!("SET gtid_next = '{uuid}:50'"),
        "SET gtid_next = 'AUTOMATIC'".to_owned(),
    ];
    if tagged {
        steps.extend([
            "SET gtid_next = 'AUTOMATIC:blue'".to_owned(),
            format!("SET gtid_next = '{uuid}:blue:9'"),
            format!("SET gtid_next = '{foreign}:red:1'"),
            "SET gtid_next = 'AUTOMATIC'".to_owned(),
        ]);
    }
    let mut count = 0;
    for step in &steps {
        count += 1;
        admin
            .run(&format!(
                "{step}; INSERT INTO outbox (payload) VALUES ({count}); SET gtid_next = 'AUTOMATIC'"
            ))
            .unwrap();
        relay.wait_published(1);
        wait_saved_to_the_end(&bed, &relay);
        assert!(bed.gtids().are_in(&relay.saved_mysql().unwrap().base));
        relay.sigkill();
        relay.start();
        relay.wait_ready();
    }
    let all: Vec<String> = (1..=count).map(|number| number.to_string()).collect();
    assert_eq!(values(&bed, count), all);
    // A hole that is filled while nobody reads.
    stop(&mut relay);
    admin
        .run(&format!(
            "SET gtid_next = '{foreign}:6'; INSERT INTO outbox (payload) VALUES (99); SET gtid_next = 'AUTOMATIC'"
        ))
        .unwrap();
    once(&mut relay);
    assert_eq!(values(&bed, count + 1).last().map(String::as_str), Some("99"));
}

#[test]
fn domains_of_mariadb_go_on_each_by_itself() {
    let (bed, _server) = Binlog::Mariadb.own();
    let mut relay = starting(&bed, "latest", "events");
    relay.start();
    relay.wait_ready();
    let mut admin = bed.admin();
    let mut count = 0;
    for (domain, server) in [(0, 1), (7, 1), (0, 9), (7, 9), (4_294_967_295_u32, 1), (0, 1)] {
        count += 1;
        admin
            .run(&format!(
                "SET SESSION gtid_domain_id = {domain}; SET SESSION server_id = {server}; \
                 INSERT INTO outbox (payload) VALUES ({count})"
            ))
            .unwrap();
        relay.wait_published(1);
        wait_saved_to_the_end(&bed, &relay);
        assert!(bed.gtids().are_in(&relay.saved_mysql().unwrap().base));
        relay.sigkill();
        relay.start();
        relay.wait_ready();
    }
    // Of domains that come while nobody reads, one is new.
    stop(&mut relay);
    for domain in [7, 8, 0] {
        count += 1;
        admin
            .run(&format!(
                "SET SESSION gtid_domain_id = {domain}; INSERT INTO outbox (payload) VALUES ({count})"
            ))
            .unwrap();
    }
    once(&mut relay);
    let all: Vec<String> = (1..=count).map(|number| number.to_string()).collect();
    assert_eq!(values(&bed, count), all);
}

/// gtid_mode goes on and off step by step; files and offsets hold throughout.
#[test]
fn a_position_by_file_goes_on_while_gtids_are_turned_on() {
    let (bed, _server) = Binlog::Files.own();
    let mut relay = starting(&bed, "latest", "events");
    relay.start();
    relay.wait_ready();
    let mut admin = bed.admin();
    for (number, step) in [
        "SET GLOBAL enforce_gtid_consistency = ON",
        "SET GLOBAL gtid_mode = OFF_PERMISSIVE",
        "SET GLOBAL gtid_mode = ON_PERMISSIVE",
        "SET GLOBAL gtid_mode = ON",
    ]
    .iter()
    .enumerate()
    {
        admin.run(step).unwrap();
        insert(&bed, number as u32);
    }
    relay.wait_published(4);
    wait_saved_to_the_end(&bed, &relay);
    relay.sigkill();
    insert(&bed, 4);
    once(&mut relay);
    assert!(matches!(relay.saved_mysql().unwrap().base, MysqlBase::File(_)));
    assert_eq!(values(&bed, 5), ["0", "1", "2", "3", "4"]);
}

over_each_binlog!(each_start_begins_where_it_says);
over_each_binlog!(a_start_that_there_is_not_is_refused_with_what_there_is);
over_each_binlog!(a_place_inside_an_event_is_refused);
over_each_binlog!(what_was_purged_before_the_first_start_counts_as_done);
over_each_binlog!(files_are_ordered_as_numbers);
over_each_binlog!(a_quiet_outbox_lets_the_log_be_purged);
over_each_binlog!(without_a_checkpoint_it_begins_as_start_says_again);

/// Two pipelines that ask for one server_id: the first to come is told, and does not come back.
#[test]
fn two_readers_of_one_server_id_do_not_evict_each_other_for_ever() {
    for binlog in [Binlog::Gtids, Binlog::Mariadb] {
        let (bed, _server) = binlog.own();
        let with_id = ANY_OUTBOX.replace("<source>", "<source>, server_id: 77");
        let mut first = bed.relay(&with_id);
        let mut second = bed.relay(&with_id.replace("{name: <name>}", "{name: <name>-second}"));
        first.start();
        first.wait_ready();
        second.start();
        first.wait_halted(&["server_id 77", "another replica", "`server_id`"]);
        second.wait_ready();
        insert(&bed, 1);
        second.wait_published(1);
        assert!(!second.log().contains("started again"), "{}", second.log());
        eventually(DEADLINE, "one reader", || bed.dump_of(&second).is_some());
    }
}
