//! Ways in: each transport, sslmode and log-in that servers ask for, and what is said of those that are refused.

use crate::support::relay::Relay;
use crate::support::server::OwnServer;
use crate::support::{DEADLINE, Emit, OUTBOX, TestBed, message, variable};

/// A server with every way in, and a slot and publication that any role can read.
struct Door {
    bed: TestBed,
    port: String,
    socket_dir: String,
    tls: String,
    /// Last, for the bed needs it at its end.
    _server: OwnServer,
}

impl Door {
    fn open() -> Self {
        let server = OwnServer::postgres("");
        let bed = TestBed::on(server.addresses(), &variable("TAILPOST_TEST_KAFKA"));
        let mut admin = bed.admin();
        admin
            .batch_execute(&format!("CREATE PUBLICATION {}", bed.publication))
            .unwrap();
        let slot = "SELECT pg_create_logical_replication_slot($1, 'pgoutput')";
        admin.execute(slot, &[&bed.slot]).unwrap();
        Self {
            port: server.variable("TAILPOST_TEST_PG_PORT"),
            socket_dir: server.variable("TAILPOST_TEST_PG_SOCKET_DIR"),
            tls: server.variable("TAILPOST_TEST_TLS"),
            bed,
            _server: server,
        }
    }

    fn relay(&self, dsn: &str) -> Relay {
        let dsn = dsn.replace("<tls>", &self.tls).replace("<sockets>", &self.socket_dir);
        let dsn = format!("port={} dbname={} {dsn}", self.port, self.bed.name);
        let pipeline = OUTBOX.replace("dsn: '<dsn>'", &format!("dsn: '{dsn}', create: false"));
        self.bed.relay(&pipeline)
    }

    /// A message arrives by this way, and all connections to the server are encrypted or none is.
    fn lets_in(&self, dsn: &str, encrypted: bool) {
        println!("{dsn}");
        let mut relay = self.relay(dsn);
        relay.start();
        relay.wait_ready();
        let ways = "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                    WHERE datname = $1 AND application_name = 'tailpost'";
        let ways: Vec<bool> = self
            .bed
            .admin()
            .query(ways, &[&self.bed.name])
            .unwrap()
            .iter()
            .map(|row| row.get(0))
            .collect();
        assert_eq!(ways, [encrypted; 2], "{dsn}");
        self.bed.app().emit("outbox", &message("Way", "1", "Taken", "{}"));
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
}

#[test]
fn each_sslmode_trusts_what_it_says_and_no_more() {
    let door = Door::open();
    let ca = "sslrootcert=<tls>/ca.crt";
    let other = "sslrootcert=<tls>/other-ca.crt";
    let repl = "user=repl password=repl-pw";
    for (way, encrypted) in [
        ("host=127.0.0.1 sslmode=disable".to_owned(), false),
        ("host=127.0.0.1 sslmode=prefer".to_owned(), true),
        ("host=127.0.0.1 sslmode=require".to_owned(), true),
        (format!("host=127.0.0.1 sslmode=verify-ca {ca}"), true),
        // The certificate is of 127.0.0.1 and localhost.
        (format!("host=127.0.0.2 sslmode=verify-ca {ca}"), true),
        (format!("host=127.0.0.1 sslmode=verify-full {ca}"), true),
        (format!("host=localhost sslmode=verify-full {ca}"), true),
        ("host=<sockets>".to_owned(), false),
    ] {
        door.lets_in(&format!("{way} {repl}"), encrypted);
    }
    for (way, because) in [
        (format!("host=127.0.0.2 sslmode=verify-full {ca}"), "not valid for name"),
        (format!("host=127.0.0.1 sslmode=verify-ca {other}"), "UnknownIssuer"),
        (format!("host=127.0.0.1 sslmode=verify-full {other}"), "UnknownIssuer"),
        (format!("host=127.0.0.1 sslmode=require {other}"), "UnknownIssuer"),
    ] {
        door.refuses(&format!("{way} {repl}"), &[because, "127.0.0.", "sslrootcert"]);
    }
}

#[test]
fn each_log_in_that_a_server_asks_for_is_taken() {
    let door = Door::open();
    let cert = "sslcert=<tls>/client.crt sslkey=<tls>/client.key";
    for (way, encrypted) in [
        (
            "user=repl password=repl-pw sslmode=require channel_binding=require".to_owned(),
            true,
        ),
        (
            "user=repl password=repl-pw sslmode=require channel_binding=disable".to_owned(),
            true,
        ),
        ("user=md5_user password=md5-pw sslmode=disable".to_owned(), false),
        ("user=pw_user password=pw-pw sslmode=disable".to_owned(), false),
        ("user=tls_user password=tls-pw".to_owned(), true),
        (format!("user=cert_user sslmode=require {cert}"), true),
    ] {
        door.lets_in(&format!("host=127.0.0.1 {way}"), encrypted);
    }
    let other_cert = "sslcert=<tls>/other-client.crt sslkey=<tls>/other-client.key";
    for (way, because) in [
        (
            "user=repl password=repl-pw sslmode=disable channel_binding=require".to_owned(),
            vec!["channel_binding"],
        ),
        (
            "user=tls_user password=tls-pw sslmode=disable".to_owned(),
            vec!["28000", "no encryption", "pg_hba.conf"],
        ),
        (
            "user=cert_user sslmode=require".to_owned(),
            vec!["28000", "certificate"],
        ),
        (
            format!("user=cert_user sslmode=require {other_cert}"),
            vec!["UnknownCA", "sslcert"],
        ),
        ("user=repl sslmode=disable".to_owned(), vec!["the DSN has none"]),
    ] {
        door.refuses(&format!("host=127.0.0.1 {way}"), &because);
    }
}

#[test]
fn the_next_server_of_the_dsn_is_tried_when_one_is_away() {
    let door = Door::open();
    let dsn = format!("host=127.0.0.1,127.0.0.1 port=1,{}", door.port);
    let dsn = format!("{dsn} dbname={} user=repl password=repl-pw", door.bed.name);
    let mut relay = door.bed.relay(&OUTBOX.replace("<dsn>", &dsn));
    relay.start();
    relay.wait_ready();
    door.bed.app().emit("outbox", &message("Way", "1", "Taken", "{}"));
    relay.wait_published(1);
    assert!(!relay.log().contains("is started again"), "{}", relay.log());
}

#[test]
fn kafka_is_reached_by_tls_and_each_sasl_mechanism_and_refusals_end_the_pipeline() {
    let broker = OwnServer::kafka("");
    let bed = TestBed::on(crate::support::server::Postgres::shared(), &broker.brokers());
    bed.kafka.create_topic(&bed.events(), 1, &[]);
    let (tls, port) = (
        broker.variable("TAILPOST_TEST_TLS"),
        broker.variable("TAILPOST_TEST_KAFKA_SASL_SSL"),
    );
    let relay = |brokers: &str, conf: &str| {
        let conf = conf.replace("<tls>", &tls);
        let with = format!("brokers: '{brokers}', client_conf: {{{conf}}}");
        bed.relay(&OUTBOX.replace("brokers: '<brokers>'", &with))
    };
    let ssl = broker.variable("TAILPOST_TEST_KAFKA_SSL");
    let sasl = |mechanism: &str, password: &str| {
        format!(
            "security.protocol: SASL_SSL, ssl.ca.location: <tls>/ca.crt, sasl.mechanism: {mechanism}, \
             sasl.username: kafka, sasl.password: {password}"
        )
    };
    let client = "security.protocol: SSL, ssl.ca.location: <tls>/ca.crt, ssl.certificate.location: <tls>/client.crt, \
                  ssl.key.location: <tls>/client.key";
    let ways = [
        (&ssl, "security.protocol: SSL, ssl.ca.location: <tls>/ca.crt".to_owned()),
        (&ssl, client.to_owned()),
        (&port, sasl("SCRAM-SHA-256", "kafka-pw")),
        (&port, sasl("SCRAM-SHA-512", "kafka-pw")),
        (&port, sasl("PLAIN", "kafka-pw")),
    ];
    for (brokers, conf) in &ways {
        println!("{conf}");
        let mut relay = relay(brokers, conf);
        relay.start();
        relay.wait_ready();
        bed.app().emit("outbox", &message("Way", "1", "Taken", "{}"));
        relay.wait_published(1);
        relay.sigterm();
        assert_eq!(relay.wait_exit(DEADLINE), 0);
    }
    assert_eq!(bed.reader(&["events"]).exactly(ways.len()).len(), ways.len());

    let refusals = [
        (&port, sasl("SCRAM-SHA-512", "wr0ng-pw"), vec!["sasl.password", "SCRAM"]),
        (&port, sasl("PLAIN", "wr0ng-pw"), vec!["sasl.password"]),
        (
            &ssl,
            "security.protocol: SSL, ssl.ca.location: <tls>/other-ca.crt".to_owned(),
            vec!["ssl.ca.location", "certificate"],
        ),
    ];
    for (brokers, conf, because) in &refusals {
        let mut relay = relay(brokers, conf);
        let line = relay.fails();
        println!("{line}");
        for text in because.iter().chain([&brokers.as_str()]) {
            assert!(line.contains(text), "expected `{text}` in: {line}");
        }
        assert!(!relay.log().contains("wr0ng-pw"), "{}", relay.log());
    }
}
