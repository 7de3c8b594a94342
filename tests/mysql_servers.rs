//! The MySQL and MariaDB servers that `tools/servers.sh` starts: what every test about a binlog takes for granted.

use mysql::prelude::Queryable;

use crate::support::mysql::{Database, Engine, Flavor, Mysql, Script, connect};
use crate::support::server::OwnServer;

#[test]
fn the_connector_sees_a_full_row_binlog() {
    for flavor in Flavor::ALL {
        let database = Database::new(&Mysql::shared(flavor));
        let mut connector = database.connector();
        let settings = "SELECT CONCAT_WS(' ', @@binlog_format, @@binlog_row_image, @@binlog_row_metadata, @@time_zone)";
        let settings: Option<String> = connector.query_first(settings).unwrap();
        assert_eq!(settings.as_deref(), Some("ROW FULL FULL +00:00"), "{flavor:?}");
        let files: Vec<mysql::Row> = connector.query("SHOW BINARY LOGS").unwrap();
        assert!(!files.is_empty(), "{flavor:?}");

        let mut app = database.app();
        for engine in [Engine::Blackhole, Engine::Innodb] {
            let table = format!("{engine:?}_outbox").to_lowercase();
            app.create_outbox(&table, engine);
            let insert = format!("INSERT INTO {table} (event_type, payload) VALUES ('made', '{{}}')");
            app.run(&insert).unwrap();
            let rows: Option<u32> = app.query_first(format!("SELECT COUNT(*) FROM {table}")).unwrap();
            assert_eq!(rows, Some(u32::from(matches!(engine, Engine::Innodb))), "{flavor:?}");
            let refused = connector.query_drop(&insert).unwrap_err();
            assert!(refused.to_string().contains("denied"), "{flavor:?}: {refused}");
        }
        assert!(app.query_drop("SHOW BINARY LOGS").is_err(), "{flavor:?}");
    }
}

#[test]
fn a_script_fails_with_its_first_statement_that_fails() {
    let database = Database::new(&Mysql::shared(Flavor::Mysql));
    let mut app = database.app();
    let failed = app.run("CREATE TABLE a (i INT); SELECT * FROM missing; CREATE TABLE b (i INT)");
    assert!(failed.unwrap_err().to_string().contains("missing"));
    let tables: Vec<String> = app.query("SHOW TABLES").unwrap();
    assert_eq!(tables, ["a"]);
}

/// A new server has no transaction yet, takes options, and has after a SIGKILL all that it has committed.
fn own_server(flavor: Flavor, gtids: &str) {
    let server = OwnServer::mysql(flavor, "--server-id=7");
    let gtids = |url: &str| connect(url).query_first::<String, _>(gtids).unwrap();
    let addresses = server.mysql_addresses(flavor);
    assert_eq!(gtids(&addresses.url).as_deref(), Some(""));

    let database = Database::new(&addresses);
    let mut app = database.app();
    app.create_outbox("outbox", Engine::Innodb);
    for _ in 0..100 {
        app.query_drop("INSERT INTO outbox (event_type) VALUES ('made')")
            .unwrap();
    }
    let before = gtids(&addresses.url);
    server.kill();
    server.up();
    assert_eq!(gtids(&addresses.url), before);
    let left = "SELECT COUNT(*), @@server_id FROM outbox";
    assert_eq!(database.admin().query_first(left).unwrap(), Some((100, 7)));
    server.down();
    server.up();
    assert_eq!(gtids(&addresses.url), before);
}

#[test]
fn mysql_keeps_through_a_crash_what_it_committed() {
    own_server(Flavor::Mysql, "SELECT @@GLOBAL.gtid_executed");
}

#[test]
fn mariadb_keeps_through_a_crash_what_it_committed() {
    own_server(Flavor::Mariadb, "SELECT @@GLOBAL.gtid_binlog_pos");
}
