use std::collections::HashMap;

use super::super::server::{Flavor, Variables};
use super::*;
use crate::position::ServerIdentity;

const A: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
const B: &str = "4e11fa47-71ca-11e1-9e33-c80aa9429562";

fn place(file: &str, pos: u64) -> BinlogPlace {
    BinlogPlace { file: file.into(), pos }
}

fn server(gtids: LogGtids) -> ServerFacts {
    let mariadb = matches!(gtids, LogGtids::Mariadb { .. });
    ServerFacts {
        flavor: if mariadb { Flavor::Mariadb } else { Flavor::Mysql },
        identity: ServerIdentity {
            uuid: (!mariadb).then(|| A.into()),
            id: 1,
        },
        variables: Variables::from(HashMap::new()),
        gtids,
        files: vec![place("binlog.000007", 500), place("binlog.000008", 900)],
    }
}

fn with_gtids(executed: &str, purged: &str) -> ServerFacts {
    server(LogGtids::Mysql {
        executed: set(executed),
        purged: set(purged),
    })
}

fn mariadb(oldest: &str, newest: &str) -> ServerFacts {
    let newest: MariadbGtids = newest.parse().unwrap();
    server(LogGtids::Mariadb {
        oldest: oldest.parse().unwrap(),
        state: newest.iter().collect(),
        newest,
        replicated: MariadbGtids::new(),
    })
}

fn set(text: &str) -> GtidSet {
    text.replace('A', A).replace('B', B).parse().unwrap()
}

fn saved(server: &ServerFacts, base: MysqlBase, place: BinlogPlace) -> MysqlPosition {
    at(server, base, place)
}

fn go(saved: Option<&MysqlPosition>, server: &ServerFacts, word: OperatorWord) -> Result<Plan, MysqlError> {
    plan(saved, server, &MysqlStart::Earliest, None, word, None)
}

fn begin(server: &ServerFacts, start: &MysqlStart) -> Result<MysqlPosition, String> {
    let start_gtids = "0-1-5".parse().unwrap();
    let planned = plan(None, server, start, Some(&start_gtids), OperatorWord::Nothing, None);
    planned.map(|plan| plan.position).map_err(|error| error.to_string())
}

/// The position is refused with these words, and gone on from there once that is accepted.
fn refused(saved: &MysqlPosition, server: &ServerFacts, words: &[&str]) -> MysqlPosition {
    let error = go(Some(saved), server, OperatorWord::Nothing).unwrap_err().to_string();
    for word in words {
        assert!(error.contains(word), "{word}: {error}");
    }
    let accepted = go(Some(saved), server, OperatorWord::AcceptGap).unwrap();
    assert_eq!(accepted.gap, Some(error));
    accepted.position
}

#[test]
fn a_first_start_counts_what_was_purged_as_done() {
    let server = with_gtids("A:1-9", "A:1-3");
    let position = begin(&server, &MysqlStart::Earliest).unwrap();
    assert_eq!(position.base, MysqlBase::Gtids(set("A:1-3")));
    assert_eq!(position.place, place("binlog.000007", 4));
    let position = begin(&server, &MysqlStart::Latest).unwrap();
    assert_eq!(position.base, MysqlBase::Gtids(set("A:1-9")));
    assert_eq!(position.place, place("binlog.000008", 900));

    let server = mariadb("0-1-3", "0-1-9,4-2-1");
    let base = |start| begin(&server, &start).unwrap().base;
    assert_eq!(base(MysqlStart::Earliest), MysqlBase::Mariadb("0-1-3".parse().unwrap()));
    assert_eq!(
        base(MysqlStart::Latest),
        MysqlBase::Mariadb("0-1-9,4-2-1".parse().unwrap())
    );

    let server = super::tests::server(LogGtids::Off);
    let position = begin(&server, &MysqlStart::Latest).unwrap();
    assert_eq!(
        (position.base, position.place),
        (MysqlBase::File(ByFile), place("binlog.000008", 900))
    );
}

#[test]
fn a_given_set_must_hold_what_was_purged_and_only_what_there_is() {
    let server = with_gtids("A:1-9", "A:1-3");
    let start = |text| MysqlStart::Gtid(GtidStart::Mysql(set(text)));
    assert_eq!(
        begin(&server, &start("A:1-5")).unwrap().base,
        MysqlBase::Gtids(set("A:1-5"))
    );
    let error = begin(&server, &start("A:1-2")).unwrap_err();
    assert!(
        error.contains(&format!("lacks {A}:3: they come after the start and were purged")),
        "{error}"
    );
    let error = begin(&server, &start("A:1-12,B:1")).unwrap_err();
    assert!(
        error.contains(&format!("lacks {A}:10-12,{B}:1: it never had them")),
        "{error}"
    );
    let error = begin(&mariadb("", "0-1-9"), &start("A:1-5")).unwrap_err();
    assert!(
        error.contains("the place to begin at is a GTID set of MySQL, and the server is MariaDB"),
        "{error}"
    );
}

#[test]
fn given_gtids_of_mariadb_must_be_what_the_binlog_has_had_and_still_follows() {
    let server = mariadb("0-1-3,2-1-5", "0-1-9,2-1-7,4-1-1");
    let start = |text: &str| MysqlStart::Gtid(GtidStart::Mariadb(text.parse().unwrap()));
    for good in ["0-1-3,2-1-5", "0-1-9,2-1-7,4-1-1"] {
        let position = begin(&server, &start(good)).unwrap();
        assert_eq!(position.base, MysqlBase::Mariadb(good.parse().unwrap()));
    }
    for (wrong, missing, reason) in [
        ("0-1-10,2-1-5", "0-1-10", NEVER_HAD),
        ("0-2-3,2-1-5", "0-2-3", NEVER_HAD),
        ("0-1-3,2-1-5,7-1-1", "7-1-1", NEVER_HAD),
        ("0-1-2,2-1-5", "0-1-3", WERE_PURGED),
        ("0-1-3", "2-1-5", WERE_PURGED),
    ] {
        let error = begin(&server, &start(wrong)).unwrap_err();
        assert!(
            error.contains(&format!("lacks {missing}: {reason}")),
            "{wrong}: {error}"
        );
    }
}

#[test]
fn a_given_place_must_be_one_of_the_binlog() {
    let start = |file: &str, position| MysqlStart::File {
        file: file.to_owned(),
        position,
    };
    let server = with_gtids("A:1-9", "");
    let position = begin(&server, &start("binlog.000007", 500)).unwrap();
    assert_eq!(
        (position.base, position.place),
        (MysqlBase::File(ByFile), place("binlog.000007", 500))
    );
    for (file, pos) in [("binlog.000007", 501), ("binlog.000006", 4), ("binlog.000009", 4)] {
        let error = begin(&server, &start(file, pos)).unwrap_err();
        assert!(error.contains("from binlog.000007:4 to binlog.000008:900"), "{error}");
    }
    // MariaDB says where its GTIDs stood there.
    let position = begin(&mariadb("", "0-1-9"), &start("binlog.000007", 400)).unwrap();
    assert_eq!(position.base, MysqlBase::Mariadb("0-1-5".parse().unwrap()));
}

#[test]
fn a_saved_set_goes_on_where_the_server_has_all_of_it_and_all_that_follows() {
    let server = with_gtids("A:1-9:blue:1-2,B:1-5", "A:1-3,B:1-4");
    let position = saved(&server, MysqlBase::Gtids(set("A:1-5:blue:1,B:1-4")), server.end());
    let plan = go(Some(&position), &server, OperatorWord::Nothing).unwrap();
    assert_eq!((plan.position, plan.gap), (position.clone(), None));
    // After a fail-over it is another server's log.
    let mut other = server.clone();
    other.identity.uuid = Some(B.into());
    let plan = go(Some(&position), &other, OperatorWord::Nothing).unwrap();
    assert_eq!(plan.position.server, other.identity);
    assert_eq!(plan.position.base, position.base);
    assert_eq!(
        plan.position.place,
        other.oldest(),
        "the saved one was in the other log"
    );
    let mut renamed = server.clone();
    renamed.identity.id = 99;
    assert_eq!(
        go(Some(&position), &renamed, OperatorWord::Nothing)
            .unwrap()
            .position
            .place,
        position.place
    );
}

#[test]
fn a_set_whose_next_transactions_were_purged_halts() {
    let server = with_gtids("A:1-9", "A:1-7");
    let position = saved(&server, MysqlBase::Gtids(set("A:1-5")), server.end());
    let missing = format!("the missing transactions are {A}:6-7");
    let oldest = format!("the oldest that the server has is binlog.000007:4, behind {A}:1-7");
    let then = refused(&position, &server, &[&missing, &oldest, "--accept-gap"]);
    assert_eq!(then.base, MysqlBase::Gtids(set("A:1-7")));
}

#[test]
fn a_set_that_the_server_does_not_have_halts() {
    let server = with_gtids("A:1-4,B:1", "A:1-2");
    let position = saved(&server, MysqlBase::Gtids(set("A:1-9")), server.end());
    let then = refused(
        &position,
        &server,
        &[&format!("does not have ({A}:5-9)"), "--accept-gap"],
    );
    assert_eq!(then.base, MysqlBase::Gtids(set("A:1-4")));
}

#[test]
fn mariadb_domains_are_compared_one_by_one() {
    let server = mariadb("0-1-3,1-1-2", "0-1-9,1-1-4");
    let position = |text: &str| saved(&server, MysqlBase::Mariadb(text.parse().unwrap()), server.end());
    let good = position("0-1-5,1-1-2");
    assert_eq!(go(Some(&good), &server, OperatorWord::Nothing).unwrap().position, good);
    let words = ["transactions up to 0-1-3 are missing", "binlog.000007:4"];
    let then = refused(&position("0-1-2,1-1-4"), &server, &words);
    assert_eq!(then.base, MysqlBase::Mariadb("0-1-3,1-1-4".parse().unwrap()));
    let then = refused(&position("0-1-5"), &server, &["transactions up to 1-1-2 are missing"]);
    assert_eq!(then.base, MysqlBase::Mariadb("0-1-5,1-1-2".parse().unwrap()));
    let then = refused(&position("0-1-12,1-1-3"), &server, &["does not have (0-1-12)"]);
    assert_eq!(then.base, MysqlBase::Mariadb("0-1-9,1-1-3".parse().unwrap()));
    let then = refused(&position("0-9-4,1-1-3"), &server, &["does not have (0-9-4)"]);
    assert_eq!(then.base, MysqlBase::Mariadb("0-1-9,1-1-3".parse().unwrap()));
}

#[test]
fn what_a_promoted_replica_of_mariadb_wrote_is_no_part_of_the_gap() {
    // It had 0-1-7 last, was promoted, and has written since.
    let mut server = mariadb("0-1-3", "0-2-12");
    if let LogGtids::Mariadb { state, .. } = &mut server.gtids {
        state.push("0-1-7".parse().unwrap());
    }
    let position = saved(&server, MysqlBase::Mariadb("0-1-9".parse().unwrap()), server.end());
    let then = refused(&position, &server, &["does not have (0-1-9)"]);
    assert_eq!(then.base, MysqlBase::Mariadb("0-1-7".parse().unwrap()));
}

#[test]
fn a_replica_of_mariadb_may_lack_in_its_log_what_it_began_with() {
    // Promoted, it has written 0-2-6; the log has nothing before.
    let mut server = mariadb("", "0-2-6");
    if let LogGtids::Mariadb { replicated, .. } = &mut server.gtids {
        *replicated = "0-1-5,1-1-2".parse().unwrap();
    }
    let position = |text: &str| saved(&server, MysqlBase::Mariadb(text.parse().unwrap()), server.end());
    let good = position("0-1-5,1-1-2");
    assert_eq!(go(Some(&good), &server, OperatorWord::Nothing).unwrap().position, good);
    refused(&position("0-1-4"), &server, &["does not have (0-1-4)"]);
    refused(&position("0-1-6"), &server, &["does not have (0-1-6)"]);
    refused(&position("0-1-5,1-1-1"), &server, &["does not have (1-1-1)"]);
}

#[test]
fn another_server_of_a_domain_may_have_a_lower_sequence() {
    // Without gtid_strict_mode: 0-1-16 came first, then 0-2-5.
    let mut server = mariadb("0-1-3", "0-2-5");
    if let LogGtids::Mariadb { state, .. } = &mut server.gtids {
        state.push("0-1-16".parse().unwrap());
    }
    let position = saved(&server, MysqlBase::Mariadb("0-1-16".parse().unwrap()), server.end());
    assert_eq!(
        go(Some(&position), &server, OperatorWord::Nothing).unwrap().position,
        position
    );
    let mut server = mariadb("0-2-5", "0-2-7");
    if let LogGtids::Mariadb { state, .. } = &mut server.gtids {
        state.push("0-1-16".parse().unwrap());
    }
    assert!(
        go(Some(&position), &server, OperatorWord::Nothing).is_ok(),
        "the server knows, and refuses"
    );
}

#[test]
fn what_the_server_refused_is_gone_on_from_its_oldest() {
    let server = mariadb("0-1-3", "0-1-9");
    let position = saved(&server, MysqlBase::Mariadb("0-1-5".parse().unwrap()), server.end());
    let refusal = MysqlError::Closed;
    let start = MysqlStart::Latest;
    let plan = plan(
        Some(&position),
        &server,
        &start,
        None,
        OperatorWord::AcceptGap,
        Some(&refusal),
    )
    .unwrap();
    assert_eq!(plan.position.base, MysqlBase::Mariadb("0-1-3".parse().unwrap()));
    assert_eq!(plan.gap, Some(refusal.to_string()));
}

#[test]
fn prepared_transactions_must_still_be_readable() {
    let server = mariadb("0-1-6", "0-1-9");
    let mut position = saved(&server, MysqlBase::Mariadb("0-1-8".parse().unwrap()), server.end());
    assert!(go(Some(&position), &server, OperatorWord::Nothing).is_ok());
    position.reread = Some(Box::new(crate::position::RereadFrom {
        base: MysqlBase::Mariadb("0-1-5".parse().unwrap()),
        place: place("binlog.000006", 4),
    }));
    refused(&position, &server, &["transactions up to 0-1-6 are missing"]);
}

#[test]
fn a_place_in_a_file_belongs_to_one_server() {
    let server = server(LogGtids::Off);
    let position = |file: &str, pos| saved(&server, MysqlBase::File(ByFile), place(file, pos));
    let good = position("binlog.000007", 500);
    assert_eq!(go(Some(&good), &server, OperatorWord::Nothing).unwrap().position, good);
    let earliest = place("binlog.000007", 4);
    assert_eq!(
        refused(
            &position("binlog.000006", 4),
            &server,
            &["binlog.000006 is gone", "binlog.000007:4"]
        )
        .place,
        earliest
    );
    assert_eq!(
        refused(
            &position("binlog.000009", 4),
            &server,
            &["its binlog ends at binlog.000008:900"]
        )
        .place,
        earliest
    );
    assert_eq!(
        refused(&position("binlog.000008", 901), &server, &["ends at binlog.000008:900"]).place,
        earliest
    );
    let mut other = good;
    other.server.uuid = Some(B.into());
    assert_eq!(
        refused(&other, &server, &["the server is another one", A, B]).place,
        earliest
    );
}

#[test]
fn a_place_beyond_4_gib_cannot_be_asked_for() {
    let mut server = server(LogGtids::Off);
    server.files = vec![place("binlog.000007", 5 << 30), place("binlog.000008", 900)];
    let position = saved(&server, MysqlBase::File(ByFile), place("binlog.000007", 5 << 30));
    let then = refused(&position, &server, &["beyond 4 GiB", "gtid_mode"]);
    assert_eq!(then.place, place("binlog.000008", 4));
    server.files.pop();
    let error = go(Some(&position), &server, OperatorWord::AcceptGap).unwrap_err();
    assert!(error.to_string().contains("FLUSH BINARY LOGS"), "{error}");
}

#[test]
fn a_checkpoint_of_another_kind_of_log_halts() {
    let off = server(LogGtids::Off);
    let gtids = with_gtids("A:1-9", "A:1-3");
    let by_set = saved(&gtids, MysqlBase::Gtids(set("A:1-5")), gtids.end());
    let then = refused(&by_set, &off, &["MySQL's GTIDs", "is MySQL without gtid_mode = ON"]);
    assert_eq!(then.base, MysqlBase::File(ByFile));
    refused(&by_set, &mariadb("", "0-1-1"), &["is MariaDB"]);
    // A place in a file stays good when GTIDs are turned on.
    let by_file = saved(&gtids, MysqlBase::File(ByFile), place("binlog.000008", 900));
    assert_eq!(
        go(Some(&by_file), &gtids, OperatorWord::Nothing).unwrap().position,
        by_file
    );
}

#[test]
fn a_checkpoint_can_be_set_aside() {
    let server = with_gtids("A:1-9", "A:1-7");
    let position = saved(&server, MysqlBase::Gtids(set("A:1-5")), server.end());
    let plan = go(Some(&position), &server, OperatorWord::FromSlot).unwrap();
    assert_eq!(plan.position.base, MysqlBase::Gtids(set("A:1-7")));
    assert!(plan.gap.unwrap().contains("set aside"));
}
