//! What a start finds in a binlog that does not fit what was saved: it halts and names both, and goes on only at the
//! operator's word.

use std::fs;

use mysql::prelude::Queryable;

use crate::mysql_positions::reset;
use crate::support::binlog::{Binlog, insert, log_end, over_each_binlog, values, wait_saved_to_the_end};
use crate::support::mysql::Script;
use crate::support::mysql_bed::MysqlBed;
use crate::support::relay::Relay;
use crate::support::server::OwnServer;
use crate::support::{ANY_OUTBOX, DEADLINE, OUTBOX, TestBed};

/// A pipeline that has relayed the event 1, saved it and was stopped.
fn stopped(binlog: Binlog) -> (MysqlBed, Relay, OwnServer) {
    let (bed, server) = binlog.own();
    let mut relay = bed.relay(ANY_OUTBOX);
    relay.start();
    relay.wait_ready();
    insert(&bed, 1);
    relay.wait_published(1);
    wait_saved_to_the_end(&bed, &relay);
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    (bed, relay, server)
}

/// Started with this word, it relays what is written from now on, and a later start needs no word.
fn goes_on_by(bed: &MysqlBed, relay: &mut Relay, word: &str, values_after: &[&str]) {
    relay.start_with(&[word]);
    relay.wait_ready();
    relay.wait_log("a gap was accepted by the operator");
    assert_eq!(relay.metric("tailpost_accepted_gaps_total", &[]), 1.0);
    insert(bed, 9);
    values(bed, values_after.len());
    wait_saved_to_the_end(bed, relay);
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    relay.start_with(&["--once"]);
    assert_eq!(relay.wait_exit(DEADLINE), 0, "{}", relay.log());
    assert!(!relay.log().contains("gap"), "{}", relay.log());
    assert_eq!(values(bed, values_after.len()), values_after);
}

fn a_binlog_that_was_purged_past_the_checkpoint_halts_and_names_the_oldest(binlog: Binlog) {
    let (bed, mut relay, _server) = stopped(binlog);
    let saved = relay.saved_mysql().unwrap();
    insert(&bed, 2);
    let missing = bed.gtids();
    let mut admin = bed.admin();
    admin.run("FLUSH BINARY LOGS").unwrap();
    insert(&bed, 3);
    let oldest = log_end(&bed).file.to_string();
    admin.run(&format!("PURGE BINARY LOGS TO '{oldest}'")).unwrap();
    let mut names = vec![
        saved.to_string(),
        format!("{oldest}:4"),
        "has purged".to_owned(),
        "--accept-gap".to_owned(),
    ];
    match binlog {
        Binlog::Files => names.push(format!("{} is gone", saved.place.file)),
        // The last transaction of the set, or of the domain.
        Binlog::Gtids => names.push(format!(
            "the missing transactions are {}",
            last_of(&missing.to_string())
        )),
        Binlog::Mariadb => names.push(missing.to_string()),
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    relay.start();
    relay.wait_halted(&names);
    // A second try is no operator's word.
    relay.start();
    relay.wait_halted(&names);
    assert_eq!(relay.saved_mysql().as_ref(), Some(&saved));
    goes_on_by(&bed, &mut relay, "--accept-gap", &["1", "3", "9"]);
}
over_each_binlog!(a_binlog_that_was_purged_past_the_checkpoint_halts_and_names_the_oldest);

/// `uuid:7` of `uuid:1-7`.
fn last_of(set: &str) -> String {
    let (uuid, numbers) = set.rsplit_once(':').unwrap();
    let last = numbers.rsplit('-').next().unwrap();
    format!("{uuid}:{last}")
}

fn a_server_that_has_less_than_was_saved_halts(binlog: Binlog) {
    let (bed, mut relay, _server) = stopped(binlog);
    let saved = relay.saved_mysql().unwrap().to_string();
    bed.admin().run(reset(binlog)).unwrap();
    relay.start();
    relay.wait_halted(&[&saved, "does not have", "--accept-gap"]);
    // One transaction is there again, under a name that was used before: still less than what was saved.
    insert(&bed, 2);
    relay.start();
    relay.wait_halted(&[&saved, "does not have", "--accept-gap"]);
    let expected: &[&str] = match binlog {
        // What has the name of a transaction that was done is taken for that one.
        Binlog::Gtids | Binlog::Mariadb => &["1", "9"],
        Binlog::Files => &["1", "2", "9"],
    };
    goes_on_by(&bed, &mut relay, "--accept-gap", expected);
}
over_each_binlog!(a_server_that_has_less_than_was_saved_halts);

/// Makes it another server by its identity, with all that it has.
fn change_identity(binlog: Binlog, bed: &MysqlBed, server: &OwnServer) {
    match binlog {
        Binlog::Gtids | Binlog::Files => {
            let file = binlog.folder(server).join("auto.cnf");
            server.down();
            fs::remove_file(file).unwrap();
            server.up();
        }
        Binlog::Mariadb => bed.admin().run("SET GLOBAL server_id = 9").unwrap(),
    }
}

#[test]
fn another_server_with_the_same_transactions_is_gone_on_with() {
    for binlog in [Binlog::Gtids, Binlog::Mariadb] {
        let (bed, mut relay, server) = stopped(binlog);
        change_identity(binlog, &bed, &server);
        insert(&bed, 2);
        relay.start();
        relay.wait_published(1);
        let line = relay.wait_log("another server than at the last save");
        assert!(line.contains("WARN"), "{line}");
        assert_eq!(values(&bed, 2), ["1", "2"]);
        wait_saved_to_the_end(&bed, &relay);
        relay.sigkill();
        relay.start_with(&["--once"]);
        assert_eq!(relay.wait_exit(DEADLINE), 0, "{}", relay.log());
        assert!(!relay.log().contains("another server"), "{}", relay.log());
    }
}

#[test]
fn by_file_another_server_halts_and_names_both() {
    let (bed, mut relay, server) = stopped(Binlog::Files);
    let saved = relay.saved_mysql().unwrap().server.to_string();
    change_identity(Binlog::Files, &bed, &server);
    let found: String = bed.admin().query_first("SELECT @@server_uuid").unwrap().unwrap();
    insert(&bed, 2);
    relay.start();
    relay.wait_halted(&[&saved, &found, "another one", "--accept-gap"]);
    goes_on_by(&bed, &mut relay, "--accept-gap", &["1", "1", "2", "9"]);
}

#[test]
fn a_server_whose_gtids_were_turned_off_halts() {
    let (bed, mut relay, _server) = stopped(Binlog::Gtids);
    bed.admin()
        .run("SET GLOBAL gtid_mode = ON_PERMISSIVE; SET GLOBAL gtid_mode = OFF_PERMISSIVE; SET GLOBAL gtid_mode = OFF")
        .unwrap();
    insert(&bed, 2);
    relay.start();
    relay.wait_halted(&["MySQL's GTIDs", "without gtid_mode = ON", "--accept-gap"]);
}

#[test]
fn a_checkpoint_of_another_kind_of_server_halts_and_is_set_aside_at_the_operators_word() {
    let postgres = TestBed::new();
    let mut other = postgres.relay(OUTBOX);
    other.start();
    other.wait_ready();
    other.sigterm();
    assert_eq!(other.wait_exit(DEADLINE), 0);
    let (bed, mut relay, _server) = stopped(Binlog::Mariadb);
    let text = fs::read_to_string(other.checkpoint_file()).unwrap();
    let text = text.replace("pg1", "src1").replace(&postgres.name, &bed.name);
    fs::write(relay.checkpoint_file(), text).unwrap();
    relay.start();
    relay.wait_halted(&["another kind of database", "--from-slot"]);
    // Its own start, which lies before the event that has come already.
    relay.start_with(&["--from-slot", "--once"]);
    assert_eq!(relay.wait_exit(DEADLINE), 0, "{}", relay.log());
    assert_eq!(values(&bed, 2), ["1", "1"]);

    // The other way round, of MySQL and MariaDB.
    let (mysql, mut mysql_relay, _mysql_server) = stopped(Binlog::Gtids);
    let text = fs::read_to_string(relay.checkpoint_file()).unwrap();
    fs::write(mysql_relay.checkpoint_file(), text.replace(&bed.name, &mysql.name)).unwrap();
    mysql_relay.start();
    mysql_relay.wait_halted(&["MariaDB's GTIDs", "MySQL with GTIDs", "--accept-gap"]);
}

#[test]
fn from_slot_sets_the_checkpoint_aside_and_begins_as_start_says() {
    let (bed, mut relay, _server) = stopped(Binlog::Gtids);
    insert(&bed, 2);
    goes_on_by(&bed, &mut relay, "--from-slot", &["1", "1", "2", "9"]);
}
