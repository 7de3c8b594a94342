//! A test's own place on a MySQL or MariaDB server: a database with an outbox table, and topics.

use std::collections::HashSet;
use std::fs;
use std::ops::Deref;

use mysql::Conn;
use mysql::prelude::Queryable;
use tailpost::gtid::{GtidSet, MariadbGtids};
use tailpost::position::MysqlBase;

use super::app::Door;
use super::mysql::{Database, Engine, Flavor, Mysql, Script};
use super::plot::Plot;
use super::relay::Relay;
use super::server::OwnServer;
use super::{Db, variable};

/// See the module's text. It has a table `outbox`, in BLACKHOLE where the server has that, and starts reading where the
/// server's binlog ended when the bed was made.
pub struct MysqlBed {
    // Before the plot: by its end nobody writes to the topics.
    pub database: Database,
    /// `<start>` in a pipeline.
    pub start: String,
    plot: Plot,
}

impl Deref for MysqlBed {
    type Target = Plot;

    fn deref(&self) -> &Plot {
        &self.plot
    }
}

impl MysqlBed {
    /// On the shared servers.
    pub fn new(flavor: Flavor) -> Self {
        Self::with(flavor, None, &variable("TAILPOST_TEST_KAFKA"))
    }

    /// On a server of the test's own and the shared broker.
    pub fn on(flavor: Flavor, server: &OwnServer) -> Self {
        Self::with(flavor, Some(server), &variable("TAILPOST_TEST_KAFKA"))
    }

    pub fn with(flavor: Flavor, server: Option<&OwnServer>, brokers: &str) -> Self {
        let server = server.map_or_else(|| Mysql::shared(flavor), |server| server.mysql_addresses(flavor));
        let database = Database::new(&server);
        let db = match flavor {
            Flavor::Mysql => Db::Mysql,
            Flavor::Mariadb => Db::Mariadb,
        };
        let plot = Plot::new(&database.name, brokers, Door::new(db, &database.mysql.app_url));
        make_outbox(&mut database.app(), engines(&mut database.admin())[0]);
        let start = match gtids(flavor, &mut database.connector()).to_string() {
            none if none.is_empty() => "earliest".to_owned(),
            gtids => format!("{{gtid: '{gtids}'}}"),
        };
        Self { database, start, plot }
    }

    pub fn flavor(&self) -> Flavor {
        self.database.mysql.flavor
    }

    /// Those that the server has, BLACKHOLE first.
    pub fn engines(&self) -> Vec<Engine> {
        engines(&mut self.admin())
    }

    /// Makes the empty outbox table anew.
    pub fn remake_outbox(&self, engine: Engine) {
        let mut app = self.app();
        app.run("DROP TABLE outbox").unwrap();
        make_outbox(&mut app, engine);
    }

    /// Puts the bed's own names into a text.
    pub fn fill(&self, template: &str) -> String {
        let template = template
            .replace("<type>", "mysql")
            .replace("<source>", "id: src1, dsn: '<dsn>', start: <start>")
            .replace("<outbox>", "tables: [<name>.outbox]")
            .replace("<schema>", "<name>")
            .replace("<dsn>", &self.database.mysql.url)
            .replace("<start>", &self.start);
        self.plot.fill(&template)
    }

    /// The connector with a pipeline file of this text (`fill`ed), not started yet. Each call gives one with its own state.
    pub fn relay(&self, pipeline: &str) -> Relay {
        let mut relay = Relay::new(&self.name, &self.fill(pipeline));
        relay.keep_secret(&self.password());
        relay
    }

    /// The password in the connector's DSN.
    pub fn password(&self) -> String {
        let options = mysql::Opts::from_url(&self.database.mysql.url).expect("a MySQL URL");
        options.get_pass().expect("a URL with a password").to_owned()
    }

    /// A connection of the application.
    pub fn app(&self) -> Conn {
        self.database.app()
    }

    /// A connection of the administrator.
    pub fn admin(&self) -> Conn {
        self.database.admin()
    }

    /// All that the server's binlog has had up to now.
    pub fn gtids(&self) -> Gtids {
        gtids(self.flavor(), &mut self.database.connector())
    }

    /// The server's connections that this relay's process holds, each with what it does.
    pub fn connections_of(&self, relay: &Relay) -> Vec<(u64, String)> {
        let ports = relay.running_pid().map(local_ports).unwrap_or_default();
        let listed: Vec<(u64, String, String)> = self
            .admin()
            .query("SELECT ID, HOST, COMMAND FROM information_schema.PROCESSLIST")
            .expect("list connections");
        let of_relay = listed.into_iter().filter(|(_, host, _)| {
            let port = host.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
            port.is_some_and(|port| ports.contains(&port))
        });
        of_relay.map(|(id, _, command)| (id, command)).collect()
    }

    /// The connection by which the server sends its binlog to this relay.
    pub fn dump_of(&self, relay: &Relay) -> Option<u64> {
        let mut connections = self.connections_of(relay).into_iter();
        let (id, _) = connections.find(|(_, command)| command.starts_with("Binlog Dump"))?;
        Some(id)
    }
}

fn engines(admin: &mut Conn) -> Vec<Engine> {
    let statement = "SELECT COUNT(*) FROM information_schema.ENGINES WHERE ENGINE = 'BLACKHOLE' AND SUPPORT <> 'NO'";
    match admin.query_first::<u32, _>(statement).expect("list engines") {
        Some(0) | None => vec![Engine::Innodb],
        Some(_) => vec![Engine::Blackhole, Engine::Innodb],
    }
}

/// With the columns that [`super::app::Event`] has. The number is nobody's: BLACKHOLE gives 1 to the first row of each
/// statement.
fn make_outbox(app: &mut Conn, engine: Engine) {
    app.run(&format!(
        "CREATE TABLE outbox (number BIGINT AUTO_INCREMENT PRIMARY KEY, id VARCHAR(64), aggregate_type VARCHAR(64), \
         aggregate_id VARCHAR(64), event_type VARCHAR(64), topic VARCHAR(249), payload JSON) ENGINE = {engine:?}"
    ))
    .expect("make the outbox table");
}

/// What a server's binlog has had.
#[derive(Debug, Clone)]
pub enum Gtids {
    Mysql(GtidSet),
    Mariadb(MariadbGtids),
}

impl Gtids {
    /// Whether all of them are done in this position.
    pub fn are_in(&self, base: &MysqlBase) -> bool {
        match (self, base) {
            (Self::Mysql(these), MysqlBase::Gtids(done)) => these.is_subset(done),
            (Self::Mariadb(these), MysqlBase::Mariadb(done)) => these.iter().all(|gtid| {
                let done = done.get(gtid.domain);
                done.is_some_and(|done| done.sequence >= gtid.sequence)
            }),
            (_, base) => panic!("{base:?} is of another kind of server than {self:?}"),
        }
    }

    /// Whether all of them are among those.
    pub fn are_among(&self, others: &Self) -> bool {
        match others {
            Self::Mysql(set) => self.are_in(&MysqlBase::Gtids(set.clone())),
            Self::Mariadb(gtids) => self.are_in(&MysqlBase::Mariadb(gtids.clone())),
        }
    }
}

impl std::fmt::Display for Gtids {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Mysql(set) => set.fmt(f),
            Self::Mariadb(gtids) => gtids.fmt(f),
        }
    }
}

/// What the server of this connection has in its binlog.
pub fn gtids(flavor: Flavor, conn: &mut Conn) -> Gtids {
    let statement = match flavor {
        Flavor::Mysql => "SELECT @@GLOBAL.gtid_executed",
        Flavor::Mariadb => "SELECT @@GLOBAL.gtid_binlog_pos",
    };
    let text: String = conn.query_first(statement).expect("ask for GTIDs").expect("GTIDs");
    match flavor {
        Flavor::Mysql => Gtids::Mysql(text.parse().expect("a GTID set")),
        Flavor::Mariadb => Gtids::Mariadb(text.parse().expect("GTIDs of MariaDB")),
    }
}

/// The ports on this side of a process's TCP connections.
fn local_ports(pid: i32) -> HashSet<u16> {
    let sockets: HashSet<String> = fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("it runs")
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .filter_map(|link| {
            let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some(inode.to_owned())
        })
        .collect();
    // Local address, as address:port in hexadecimal, is in the second column, the socket's inode in the tenth.
    let table = fs::read_to_string("/proc/net/tcp").expect("the connections of this machine");
    let ports = table.lines().skip(1).filter_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let inode = columns.get(9)?;
        let (_, port) = columns.get(1)?.rsplit_once(':')?;
        sockets.contains(*inode).then(|| u16::from_str_radix(port, 16).ok())?
    });
    ports.collect()
}
