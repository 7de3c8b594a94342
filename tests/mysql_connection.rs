//! Ways into MySQL and MariaDB: each transport, ssl-mode and authentication method, and what is said of those refused.

use mysql::Conn;
use mysql::prelude::Queryable;

use crate::support::mysql::{Flavor, Script};
use crate::support::mysql_bed::MysqlBed;
use crate::support::relay::Relay;
use crate::support::server::OwnServer;
use crate::support::{ANY_OUTBOX, DEADLINE, Db, over_each};

/// A server with every way in.
struct Door {
    bed: MysqlBed,
    port: u16,
    socket: String,
    tls: String,
    /// Last, for the bed needs it at its end.
    _server: OwnServer,
}

/// An account that the server has not seen since it was made.
struct Fresh<'a> {
    name: String,
    door: &'a Door,
}

impl Door {
    fn open(db: Db, options: &str) -> Self {
        let flavor = db.flavor().expect("a binlog");
        let server = OwnServer::mysql(flavor, options);
        let bed = MysqlBed::on(flavor, &server);
        let url = mysql::Opts::from_url(&bed.database.mysql.url).expect("a MySQL URL");
        Self {
            port: url.get_tcp_port(),
            socket: server.variable(&format!("TAILPOST_TEST_{}_SOCKET", flavor.name().to_uppercase())),
            tls: server.variable("TAILPOST_TEST_TLS"),
            bed,
            _server: server,
        }
    }

    fn relay(&self, dsn: &str) -> Relay {
        let dsn = dsn
            .replace("<port>", &self.port.to_string())
            .replace("<tls>", &self.tls)
            .replace("<socket>", &self.socket);
        let mut relay = self
            .bed
            .relay(&ANY_OUTBOX.replace("<source>", &format!("id: m1, dsn: '{dsn}', start: <start>")));
        relay.keep_secret("-pw");
        relay
    }

    /// How many TLS handshakes the server has finished.
    fn handshakes(&self, admin: &mut Conn) -> u32 {
        let (_, count): (String, u32) = admin
            .query_first("SHOW GLOBAL STATUS LIKE 'Ssl_finished_accepts'")
            .expect("ask for the handshakes")
            .expect("a count");
        count
    }

    /// An event arrives by this way, and both connections to the server are encrypted or none is.
    fn lets_in(&self, dsn: &str, encrypted: bool) {
        println!("{dsn}");
        let mut admin = self.bed.admin();
        let before = self.handshakes(&mut admin);
        let mut relay = self.relay(dsn);
        relay.start();
        relay.wait_ready();
        let shaken = self.handshakes(&mut admin) - before;
        assert_eq!(shaken, if encrypted { 2 } else { 0 }, "{dsn}");
        self.bed.app().run("INSERT INTO outbox (payload) VALUES ('1')").unwrap();
        relay.wait_published(1);
        relay.sigterm();
        assert_eq!(relay.wait_exit(DEADLINE), 0);
    }

    fn refuses(&self, dsn: &str, because: &[&str]) {
        println!("{dsn}");
        let line = self.relay(dsn).fails();
        println!("{line}");
        for text in because {
            assert!(line.contains(text), "{dsn}: expected `{text}` in: {line}");
        }
    }

    fn has_user(&self, user: &str) -> bool {
        let statement = "SELECT COUNT(*) FROM mysql.user WHERE User = ?";
        self.bed.admin().exec_first::<u32, _, _>(statement, (user,)).unwrap() == Some(1)
    }

    /// A user with `method` (such as `caching_sha2_password`), whom nobody has logged in as.
    fn fresh(&self, method: &str) -> Fresh<'_> {
        let name = format!("{}_{}", self.bed.name, crate::support::unique_name());
        let user = format!("'{name}'@'%'");
        self.bed
            .admin()
            .run(&format!(
                "CREATE USER {user} IDENTIFIED {method}; \
                 GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO {user}"
            ))
            .unwrap();
        Fresh { name, door: self }
    }
}

impl Drop for Fresh<'_> {
    fn drop(&mut self) {
        let dropped = self.door.bed.admin().run(&format!("DROP USER '{}'@'%'", self.name));
        if let Err(error) = dropped {
            eprintln!("{} stays behind: {error}", self.name);
        }
    }
}

const USER: &str = "mysql://tailpost:tailpost-pw";

fn each_ssl_mode_trusts_what_it_says_and_no_more(db: Db) {
    let door = Door::open(db, "");
    let ca = "ssl-ca=<tls>/ca.crt";
    let other = "ssl-ca=<tls>/other-ca.crt";
    for (way, encrypted) in [
        ("@127.0.0.1:<port>/?ssl-mode=disabled".to_owned(), false),
        ("@127.0.0.1:<port>/".to_owned(), true),
        ("@127.0.0.1:<port>/?ssl-mode=preferred".to_owned(), true),
        ("@127.0.0.1:<port>/?ssl-mode=required".to_owned(), true),
        (format!("@127.0.0.1:<port>/?ssl-mode=verify-ca&{ca}"), true),
        // The certificate is of 127.0.0.1 and localhost.
        (format!("@127.0.0.2:<port>/?ssl-mode=verify-ca&{ca}"), true),
        (format!("@127.0.0.2:<port>/?{ca}"), true),
        (format!("@127.0.0.1:<port>/?ssl-mode=verify-identity&{ca}"), true),
        (format!("@localhost:<port>/?ssl-mode=verify-identity&{ca}"), true),
        ("@localhost/?socket=<socket>".to_owned(), false),
    ] {
        door.lets_in(&format!("{USER}{way}"), encrypted);
    }
    for (way, because) in [
        (
            format!("@127.0.0.2:<port>/?ssl-mode=verify-identity&{ca}"),
            "not valid for name",
        ),
        (
            format!("@127.0.0.1:<port>/?ssl-mode=verify-ca&{other}"),
            "UnknownIssuer",
        ),
        (
            format!("@127.0.0.1:<port>/?ssl-mode=verify-identity&{other}"),
            "UnknownIssuer",
        ),
    ] {
        door.refuses(&format!("{USER}{way}"), &[because, "127.0.0.", "ssl-ca"]);
    }
}
over_each!(each_ssl_mode_trusts_what_it_says_and_no_more: mysql, mariadb);

fn a_server_without_tls_is_reached_where_the_mode_allows_it(db: Db) {
    let off = match db.flavor() {
        Some(Flavor::Mariadb) => "--skip-ssl",
        _ => "--tls-version=",
    };
    let door = Door::open(db, off);
    let ca = "ssl-ca=<tls>/ca.crt";
    door.lets_in(&format!("{USER}@127.0.0.1:<port>/?ssl-mode=preferred"), false);
    for mode in [
        "required".to_owned(),
        format!("verify-ca&{ca}"),
        format!("verify-identity&{ca}"),
    ] {
        let name = format!("ssl-mode={}", mode.split('&').next().unwrap());
        let dsn = format!("{USER}@127.0.0.1:<port>/?ssl-mode={mode}");
        door.refuses(&dsn, &["offers no TLS", &name, "ssl-mode=preferred"]);
    }
}
over_each!(a_server_without_tls_is_reached_where_the_mode_allows_it: mysql, mariadb);

fn each_log_in_that_a_server_asks_for_is_taken(db: Db) {
    let door = Door::open(db, "");
    let at = "@127.0.0.1:<port>/";
    let cert = "ssl-cert=<tls>/client.crt&ssl-key=<tls>/client.key";
    let mut ways = vec![
        (format!("mysql://tls_user:tls-pw{at}"), true),
        (format!("mysql://cert_user:cert-pw{at}?{cert}"), true),
        (
            format!("mariadb://cert_user:cert-pw{at}?ssl-mode=required&{cert}"),
            true,
        ),
    ];
    for (user, password) in [("native_user", "native-pw"), ("ed25519_user", "ed25519-pw")] {
        if door.has_user(user) {
            for (mode, encrypted) in [("disabled", false), ("required", true)] {
                ways.push((format!("mysql://{user}:{password}{at}?ssl-mode={mode}"), encrypted));
            }
            ways.push((format!("mysql://{user}:{password}@localhost/?socket=<socket>"), false));
        }
    }
    // No password is a method of its own kind: nothing is hashed.
    let none = door.fresh("BY ''");
    ways.push((format!("mysql://{}{at}?ssl-mode=disabled", none.name), false));
    for (way, encrypted) in &ways {
        door.lets_in(way, *encrypted);
    }

    let other_cert = "ssl-cert=<tls>/other-client.crt&ssl-key=<tls>/other-client.key";
    for (way, because) in [
        (
            format!("mysql://tailpost:wr0ng-pw{at}"),
            vec!["1045", "Access denied", "check the user and password"],
        ),
        (
            format!("mysql://tailpost{at}"),
            vec!["1045", "check the user and password"],
        ),
        (
            format!("mysql://nobody:no-pw{at}"),
            vec!["1045", "nobody", "check the user and password"],
        ),
        (
            format!("mysql://tls_user:tls-pw{at}?ssl-mode=disabled"),
            vec!["1045", "check the user and password"],
        ),
        (
            format!("mysql://cert_user:cert-pw{at}?ssl-mode=required"),
            vec!["1045", "check the user and password"],
        ),
        (
            format!("mysql://cert_user:cert-pw{at}?{other_cert}"),
            vec!["UnknownCA", "ssl-cert"],
        ),
        (
            format!("{USER}{at}no_such_database"),
            vec!["1049", "no_such_database", "check the database's name"],
        ),
        (
            format!("mysql://reader_user:reader-pw{at}"),
            vec!["1227", "GRANT ", " ON *.* to the DSN's user"],
        ),
    ] {
        door.refuses(&way, &because);
    }
}
over_each!(each_log_in_that_a_server_asks_for_is_taken: mysql, mariadb);

#[test]
fn a_password_that_the_server_does_not_remember_is_told_under_tls_or_under_its_key() {
    let door = Door::open(Db::Mysql, "");
    let at = "@127.0.0.1:<port>/";
    // The first log-in of an account sends the password, encrypted by TLS or the server's key; the next ones only prove it.
    let (long, awkward) = ("x".repeat(200), "%C3%A9%27%22%5C%20%25%40%3A-pw");
    for (way, encrypted, password, escaped) in [
        (format!("{at}?ssl-mode=disabled"), false, "é''\"\\\\ %@:-pw", awkward),
        (format!("{at}?ssl-mode=required"), true, &long, long.as_str()),
        ("@localhost/?socket=<socket>".to_owned(), false, "fresh-pw", "fresh-pw"),
    ] {
        let fresh = door.fresh(&format!("WITH caching_sha2_password BY '{password}'"));
        door.refuses(
            &format!("mysql://{}:wr0ng-pw{way}", fresh.name),
            &["1045", "check the user and password"],
        );
        door.lets_in(&format!("mysql://{}:{escaped}{way}", fresh.name), encrypted);
        // It forgets them all.
        door.bed.admin().run("FLUSH PRIVILEGES").unwrap();
        door.lets_in(&format!("mysql://{}:{escaped}{way}", fresh.name), encrypted);
    }
}

fn a_user_without_a_right_is_refused_with_the_right_named(db: Db) {
    let door = Door::open(db, "");
    let monitor = match db.flavor() {
        Some(Flavor::Mariadb) => "BINLOG MONITOR",
        _ => "REPLICATION CLIENT",
    };
    for (granted, missing) in [
        ("REPLICATION SLAVE, SELECT", monitor),
        ("REPLICATION CLIENT, SELECT", "REPLICATION SLAVE"),
    ] {
        let fresh = door.fresh("BY 'fresh-pw'");
        let user = format!("'{}'@'%'", fresh.name);
        door.bed
            .admin()
            .run(&format!(
                "REVOKE ALL PRIVILEGES, GRANT OPTION FROM {user}; GRANT {granted} ON *.* TO {user}"
            ))
            .unwrap();
        let dsn = format!("mysql://{}:fresh-pw@127.0.0.1:<port>/", fresh.name);
        let remedy = format!("GRANT {missing} ON *.* to the DSN's user");
        door.refuses(&dsn, &[&remedy]);
        // Without any right to the tables, events come: the binlog has everything.
        door.bed
            .admin()
            .run(&format!(
                "REVOKE ALL PRIVILEGES, GRANT OPTION FROM {user}; GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {user}"
            ))
            .unwrap();
        door.lets_in(&dsn, true);
    }
}
over_each!(a_user_without_a_right_is_refused_with_the_right_named: mysql, mariadb);

fn each_version_of_tls_carries_a_log_that_is_large(db: Db) {
    for version in ["TLSv1.2", "TLSv1.3"] {
        let door = Door::open(db, &format!("--tls-version={version}"));
        let mut relay = door.relay(&format!("{USER}@127.0.0.1:<port>/?ssl-mode=required"));
        relay.start();
        relay.wait_ready();
        let mut app = door.bed.app();
        for _ in 0..24 {
            app.run("INSERT INTO outbox (payload) VALUES (JSON_QUOTE(REPEAT('x', 900000)))")
                .unwrap();
        }
        relay.wait_published(24);
        let mut reader = door.bed.reader(&["events"]);
        for record in reader.exactly(24) {
            assert_eq!(record.value.as_ref().map(Vec::len), Some(900_002), "{version}");
        }
        assert!(!relay.log().contains("is started again"), "{}", relay.log());
    }
}
over_each!(each_version_of_tls_carries_a_log_that_is_large: mysql, mariadb);
