//! A database server that dies, and a replica of it that is gone on with: without loss where it has all that was done, and
//! not at all, but at the operator's word, where it has not.

use std::time::Duration;

use mysql::Conn;
use mysql::prelude::Queryable;

use crate::support::app::{App, Door};
use crate::support::load::{Load, Plan};
use crate::support::mysql::{Flavor, Mysql, Script, connect};
use crate::support::mysql_bed::{Gtids, MysqlBed, gtids};
use crate::support::proxy::Proxy;
use crate::support::relay::Relay;
use crate::support::server::OwnServer;
use crate::support::{ANY_OUTBOX, DEADLINE, Db, Event, eventually, over_each};

/// A server that applications write to, and one that replicates from it.
struct Pair {
    db: Db,
    /// On the primary.
    bed: MysqlBed,
    /// The replica, in the bed's database.
    replica: Mysql,
    replica_server: OwnServer,
    primary_server: OwnServer,
}

impl Pair {
    fn new(db: Db) -> Self {
        let flavor = db.flavor().expect("a binlog");
        let log_replicated = match flavor {
            Flavor::Mysql => "",
            Flavor::Mariadb => "--log-slave-updates",
        };
        let primary_server = OwnServer::mysql(flavor, "");
        let replica_server = OwnServer::mysql(flavor, &format!("--server-id=2 --read-only {log_replicated}"));
        let bed = MysqlBed::on(flavor, &primary_server);
        let pair = Self {
            db,
            replica: replica_server.mysql_addresses(flavor).in_database(&bed.name),
            replica_server,
            bed,
            primary_server,
        };
        pair.replicate();
        pair
    }

    fn primary_port(&self) -> u16 {
        port(&self.bed.database.mysql.url)
    }

    fn replica_admin(&self) -> Conn {
        connect(&self.replica_server.mysql_addresses(self.bed.flavor()).admin_url)
    }

    /// Lets the replica begin with all that the primary has.
    fn replicate(&self) {
        let port = self.primary_port();
        let statements = match self.bed.flavor() {
            Flavor::Mysql => format!(
                "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {port}, SOURCE_USER = 'admin', \
                 SOURCE_PASSWORD = 'admin-pw', SOURCE_SSL = 1, SOURCE_AUTO_POSITION = 1; START REPLICA"
            ),
            Flavor::Mariadb => format!(
                "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, MASTER_USER = 'admin', \
                 MASTER_PASSWORD = 'admin-pw', MASTER_USE_GTID = slave_pos; START SLAVE"
            ),
        };
        self.replica_admin().run(&statements).unwrap();
    }

    /// Waits until the replica has all that the primary has.
    fn wait_replicated(&self) {
        let end = self.bed.gtids();
        let mut admin = self.replica_admin();
        eventually(DEADLINE, &format!("replicated up to {end}"), || {
            end.are_among(&gtids(self.bed.flavor(), &mut admin))
        });
    }

    /// Ends replication; what the primary writes from now on the replica lacks.
    fn part(&self) {
        let statement = match self.bed.flavor() {
            Flavor::Mysql => "STOP REPLICA",
            Flavor::Mariadb => "STOP SLAVE",
        };
        self.replica_admin().run(statement).unwrap();
    }

    /// The primary is dead: the replica takes its place.
    fn promote(&self) {
        let statements = match self.bed.flavor() {
            Flavor::Mysql => "STOP REPLICA; RESET REPLICA ALL; SET GLOBAL read_only = OFF",
            Flavor::Mariadb => "STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only = OFF",
        };
        self.replica_admin().run(statements).unwrap();
    }

    /// A connection of the application to the replica.
    fn app_of_replica(&self) -> App {
        self.replica_door().open().expect("the replica lets the application in")
    }

    fn replica_door(&self) -> Door {
        Door::new(self.db, &self.replica.app_url)
    }

    /// A relay that knows both servers.
    fn relay(&self) -> Relay {
        self.relay_by(&format!("127.0.0.1:{}", self.primary_port()))
    }

    /// A relay that reaches the primary by this address.
    fn relay_by(&self, primary: &str) -> Relay {
        let dsn = format!(
            "mysql://tailpost:tailpost-pw@{primary},127.0.0.1:{}/",
            port(&self.replica.url)
        );
        let source = format!("id: src1, dsn: '{dsn}', start: <start>");
        self.bed.relay(&ANY_OUTBOX.replace("<source>", &source))
    }

    fn values(&self, count: usize) -> Vec<String> {
        let mut reader = self.bed.reader(&["events"]);
        let records = reader.exactly(count).iter();
        records
            .map(|record| record.value_text().expect("a value").to_owned())
            .collect()
    }

    /// Waits until all that the replica has logged is saved as done.
    fn wait_saved_to_the_end_of_the_replica(&self, relay: &Relay) {
        let end = gtids(self.bed.flavor(), &mut self.replica_admin());
        eventually(DEADLINE, &format!("saved up to {end}"), || {
            relay.saved_mysql().is_some_and(|saved| end.are_in(&saved.base))
        });
    }

    /// Started with the operator's word, it relays what the new primary gets, and a later start needs no word.
    fn goes_on_at_the_operators_word(&self, relay: &mut Relay, values: &[&str]) {
        relay.start_with(&["--accept-gap"]);
        relay.wait_ready();
        relay.wait_log("a gap was accepted by the operator");
        assert_eq!(relay.metric("tailpost_accepted_gaps_total", &[]), 1.0);
        self.app_of_replica().emit(&Event::of("9"));
        assert_eq!(self.values(values.len()), values);
        self.wait_saved_to_the_end_of_the_replica(relay);
        relay.sigterm();
        assert_eq!(relay.wait_exit(DEADLINE), 0);
        relay.start_with(&["--once"]);
        assert_eq!(relay.wait_exit(DEADLINE), 0, "{}", relay.log());
        assert!(!relay.log().contains("gap"), "{}", relay.log());
    }
}

fn port(url: &str) -> u16 {
    mysql::Opts::from_url(url).expect("a MySQL URL").get_tcp_port()
}

fn emit(bed: &MysqlBed, payload: &str) {
    bed.door.open().unwrap().emit(&Event::of(payload));
}

over_each!(a_primary_that_dies_under_load_is_followed_by_its_replica_and_each_event_comes_once: mysql, mariadb);
fn a_primary_that_dies_under_load_is_followed_by_its_replica_and_each_event_comes_once(db: Db) {
    let pair = Pair::new(db);
    let bed = &pair.bed;
    let to_primary = format!("127.0.0.1:{}", pair.primary_port());
    let app = Proxy::start(&to_primary);
    let door = Door::new(db, &format!("mysql://app:app-pw@{}/{}", app.address(), bed.name));
    let plan = Plan {
        connections: 4,
        keys: 40,
        messages: 6000,
        batch: 10,
    };
    let load = Load::start_held_by(&[door], plan);
    load.allow(2000);
    eventually(DEADLINE, "2000 committed", || load.committed() >= 2000);
    // So much, and over so slow a way, that the primary dies in the middle.
    bed.door.open().unwrap().write_elsewhere(10);
    load.allow(2000);
    eventually(DEADLINE, "4000 committed", || load.committed() >= 4000);
    pair.wait_replicated();
    let way = Proxy::start(&to_primary);
    way.slow(Duration::from_millis(50));
    let mut relay = pair.relay_by(&way.address());
    relay.start();
    eventually(DEADLINE, "the first is published", || relay.published() > 0);
    pair.primary_server.kill();
    relay.wait_not_ready("none of the DSN's servers is the one that takes writes");
    let before = relay.published();
    assert!(before < 4000, "the primary died when all was read");
    relay.wait_not_ready("read_only");

    pair.promote();
    app.forward_to(&format!("127.0.0.1:{}", port(&pair.replica.url)));
    load.allow(2000);
    let committed = load.finish();
    relay.wait_log("another server than at the last save");
    relay.wait_ready();
    pair.wait_saved_to_the_end_of_the_replica(&relay);
    let mut reader = bed.reader(&["events"]);
    committed.account(reader.all()).assert_exact();
    relay.metrics().expect("/metrics answers").assert_accounted();
}

over_each!(a_transaction_that_was_relayed_in_part_is_gone_on_with_on_the_replica: mysql, mariadb);
fn a_transaction_that_was_relayed_in_part_is_gone_on_with_on_the_replica(db: Db) {
    const ROWS: usize = 24;
    let pair = Pair::new(db);
    let mut app = pair.bed.app();
    app.run("BEGIN").unwrap();
    for row in 0..ROWS {
        // Too large, all together, to be held until the transaction's end is seen.
        app.run(&format!(
            "INSERT INTO outbox (aggregate_id, payload) VALUES ('k', CONCAT('[{row}, \"', REPEAT('x', 900000), '\"]'))"
        ))
        .unwrap();
    }
    app.run("COMMIT").unwrap();
    pair.wait_replicated();
    let way = Proxy::start(&format!("127.0.0.1:{}", pair.primary_port()));
    way.slow(Duration::from_millis(20));
    let mut relay = pair.relay_by(&way.address());
    relay.start();
    eventually(DEADLINE, "the first is published", || relay.published() > 0);
    pair.primary_server.kill();
    relay.wait_not_ready("none of the DSN's servers");
    let before = relay.published();
    assert!((1..ROWS as u64).contains(&before), "{before} rows had been published");

    pair.promote();
    relay.wait_published(ROWS as u64);
    pair.app_of_replica().emit(&Event::of("[99]"));
    let values = pair.values(ROWS + 1);
    for (row, value) in values.iter().enumerate().take(ROWS) {
        assert!(value.starts_with(&format!("[{row}, ")), "{row}: {:.20}", value);
    }
    assert_eq!(values[ROWS], "[99]");
}

over_each!(a_replica_that_lacks_what_was_relayed_halts_and_names_it: mysql, mariadb);
fn a_replica_that_lacks_what_was_relayed_halts_and_names_it(db: Db) {
    let pair = Pair::new(db);
    let mut relay = pair.relay();
    relay.start();
    relay.wait_ready();
    emit(&pair.bed, "1");
    pair.wait_replicated();
    pair.part();
    emit(&pair.bed, "2");
    relay.wait_published(2);
    let missing = last_of(&pair.bed.gtids());
    pair.primary_server.kill();
    relay.wait_not_ready("none of the DSN's servers");
    pair.promote();
    relay.wait_halted(&["does not have", &missing, "--accept-gap"]);
    // What the new primary does meanwhile makes it no better.
    pair.app_of_replica().emit(&Event::of("3"));
    relay.start();
    relay.wait_halted(&["does not have", &missing, "--accept-gap"]);
    pair.goes_on_at_the_operators_word(&mut relay, &["1", "2", "3", "9"]);
}

over_each!(a_replica_that_has_purged_what_is_still_to_come_halts_and_names_it: mysql, mariadb);
fn a_replica_that_has_purged_what_is_still_to_come_halts_and_names_it(db: Db) {
    let pair = Pair::new(db);
    let mut relay = pair.relay();
    relay.start();
    relay.wait_ready();
    emit(&pair.bed, "1");
    relay.wait_published(1);
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    emit(&pair.bed, "2");
    let missing = last_of(&pair.bed.gtids());
    pair.wait_replicated();
    let mut admin = pair.replica_admin();
    admin.run("FLUSH BINARY LOGS").unwrap();
    emit(&pair.bed, "3");
    pair.wait_replicated();
    let files: Vec<mysql::Row> = admin.query("SHOW BINARY LOGS").unwrap();
    let newest: String = files.last().expect("a file").get(0).unwrap();
    pair.primary_server.kill();
    pair.promote();
    // A server leaves what it still uses itself, and says no word of it.
    eventually(DEADLINE, "the older files are purged", || {
        admin.run(&format!("PURGE BINARY LOGS TO '{newest}'")).unwrap();
        let files: Vec<mysql::Row> = admin.query("SHOW BINARY LOGS").unwrap();
        files.first().and_then(|file| file.get::<String, _>(0)).as_deref() == Some(newest.as_str())
    });
    relay.start();
    relay.wait_halted(&["has purged", &missing, "--accept-gap"]);
    pair.goes_on_at_the_operators_word(&mut relay, &["1", "3", "9"]);
}

#[test]
fn a_replica_of_mariadb_that_began_as_a_copy_is_gone_on_with() {
    let pair = Pair::new(Db::Mariadb);
    let mut relay = pair.relay();
    relay.start();
    relay.wait_ready();
    emit(&pair.bed, "1");
    relay.wait_published(1);
    pair.wait_replicated();
    // As one that was made of a backup: it knows where the primary stood, and its own log has nothing of it.
    pair.part();
    let position = pair.bed.gtids();
    pair.replica_admin()
        .run(&format!("RESET MASTER; SET GLOBAL gtid_slave_pos = '{position}'"))
        .unwrap();
    eventually(DEADLINE, "the event is saved", || {
        relay.saved_mysql().is_some_and(|saved| position.are_in(&saved.base))
    });
    pair.primary_server.kill();
    pair.promote();
    pair.app_of_replica().emit(&Event::of("2"));
    assert_eq!(pair.values(2), ["1", "2"]);
    relay.wait_ready();
}

/// `uuid:7` of `uuid:1-7`, `0-1-7` of MariaDB.
fn last_of(gtids: &Gtids) -> String {
    let text = gtids.to_string();
    match text.rsplit_once(':') {
        None => text,
        Some((uuid, numbers)) => format!("{uuid}:{}", numbers.rsplit('-').next().unwrap()),
    }
}
