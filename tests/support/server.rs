//! Servers: the shared ones, given by the environment, and a test's own.

use std::collections::HashMap;
use std::fs;
use std::process::{Command, Output};

use rustix::process::{Pid, Signal, kill_process};

use super::mysql::{Flavor, Mysql};
use super::postgres::connect;
use super::{Db, unique_name, variable};

/// For a broker that is frozen and thawed: it is not taken for gone meanwhile, so no election follows. In one, librdkafka repeats
/// records now and then (its issue 4953), which is no concern of what is tested.
pub const NO_ELECTION: &str = "broker.session.timeout.ms=600000";

/// A PostgreSQL server's addresses, each of one database: as the connector, the application and the administrator.
#[derive(Debug, Clone)]
pub struct Postgres {
    pub url: String,
    pub app_url: String,
    pub admin_url: String,
}

impl Postgres {
    /// The server that all tests share.
    pub fn shared() -> Self {
        Self::from(&variable)
    }

    fn from(variable: &dyn Fn(&str) -> String) -> Self {
        Self {
            url: variable("TAILPOST_TEST_PG_URL"),
            app_url: variable("TAILPOST_TEST_PG_APP_URL"),
            admin_url: variable("TAILPOST_TEST_PG_ADMIN_URL"),
        }
    }

    /// The same server's addresses in another database.
    pub fn in_database(&self, database: &str) -> Self {
        Self {
            url: with_database(&self.url, database),
            app_url: with_database(&self.app_url, database),
            admin_url: with_database(&self.admin_url, database),
        }
    }
}

/// The same URL with another database.
pub(super) fn with_database(url: &str, database: &str) -> String {
    let (start, rest) = url.rsplit_once('/').expect("a URL with a database");
    let options = rest
        .split_once('?')
        .map_or(String::new(), |(_, rest)| format!("?{rest}"));
    format!("{start}/{database}{options}")
}

/// A server of a test's own, to be restarted, killed, frozen or ruined. Stopped and wiped at the end.
pub struct OwnServer {
    name: String,
    /// How `tools/servers.sh` is called: the options of this one server.
    settings: Vec<(String, String)>,
    addresses: HashMap<String, String>,
}

impl OwnServer {
    /// PostgreSQL of the kind that TAILPOST_TEST_PG_KIND names (`pg`, the host's newest), with options such as
    /// `-c wal_sender_timeout=5s`.
    pub fn postgres(options: &str) -> Self {
        Self::postgres_with(&[("OPTS", options)])
    }

    /// The same, with more settings.
    pub fn postgres_with(settings: &[(&str, &str)]) -> Self {
        let kind = std::env::var("TAILPOST_TEST_PG_KIND").unwrap_or_else(|_| "pg".to_owned());
        Self::start(&kind, settings)
    }

    /// A copy of this PostgreSQL server that follows it, with options of its own. The primary has a slot for it:
    /// [`OwnServer::standby_slot`].
    pub fn standby_of(primary: &Self, options: &str) -> Self {
        let (kind, _) = primary.name.split_once('@').expect("an instance");
        Self::start(kind, &[("OPTS", options), ("STANDBY_OF", &primary.name)])
    }

    /// The slot on its primary through which a standby follows it.
    pub fn standby_slot(&self) -> String {
        let instance = self.name.split_once('@').expect("an instance").1;
        let mut primary = connect(&self.addresses().admin_url);
        let name: String = primary
            .query_one("SELECT current_setting('primary_slot_name')", &[])
            .expect("a standby")
            .get(0);
        assert!(name.ends_with(instance), "{name}");
        name
    }

    /// MySQL or MariaDB of the kind that TAILPOST_TEST_MYSQL_KIND or TAILPOST_TEST_MARIADB_KIND names (`mysql`, `mariadb`),
    /// with options such as `--binlog-row-image=MINIMAL`.
    pub fn mysql(flavor: Flavor, options: &str) -> Self {
        let kind = format!("TAILPOST_TEST_{}_KIND", flavor.name().to_uppercase());
        let kind = std::env::var(kind).unwrap_or_else(|_| flavor.name().to_owned());
        Self::start(&kind, &[("OPTS", options)])
    }

    /// Any of the databases, with options of its own.
    pub fn of(db: Db, options: &str) -> Self {
        match db.flavor() {
            None => Self::postgres(options),
            Some(flavor) => Self::mysql(flavor, options),
        }
    }

    /// Kafka with broker settings, such as `message.max.bytes=2000000`.
    pub fn kafka(options: &str) -> Self {
        Self::start("kafka", &[("OPTS", options)])
    }

    /// A server of any kind with any of its settings: OPTS, INITDB_OPTS, PORT.
    pub fn start(kind: &str, settings: &[(&str, &str)]) -> Self {
        let instance = unique_name();
        // What `pg` stands for is known to the tool only, and each version has variables of its own.
        let kinds = match kind {
            "pg" => (14..=20).map(|version| format!("pg{version}")).collect(),
            kind => vec![kind.to_owned()],
        };
        let settings = kinds.iter().flat_map(|kind| {
            settings.iter().map({
                let instance = &instance;
                move |(name, value)| (format!("{kind}_{instance}_{name}").to_uppercase(), (*value).to_owned())
            })
        });
        let mut server = Self {
            settings: settings.collect(),
            name: format!("{kind}@{instance}"),
            addresses: HashMap::new(),
        };
        server.up();
        let lines = server.tool(&["env", &server.name]);
        let lines = String::from_utf8_lossy(&lines.stdout).into_owned();
        server.addresses = lines
            .lines()
            .filter_map(|line| line.strip_prefix("export ")?.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        server
    }

    /// A line of its environment.
    pub fn variable(&self, name: &str) -> String {
        let value = self.addresses.get(name);
        value.unwrap_or_else(|| panic!("{} has no {name}", self.name)).clone()
    }

    pub fn addresses(&self) -> Postgres {
        Postgres::from(&|name| self.variable(name))
    }

    pub fn mysql_addresses(&self, flavor: Flavor) -> Mysql {
        Mysql::from(flavor, &|name| self.variable(name))
    }

    /// The address of a broker's plain listener.
    pub fn brokers(&self) -> String {
        self.variable("TAILPOST_TEST_KAFKA")
    }

    /// Starts it again, on the same ports and data.
    pub fn up(&self) {
        self.tool(&["up", &self.name]);
    }

    /// Stops it in order; PostgreSQL by a fast shutdown.
    ///
    /// # Panics
    /// When it does not stop within half a minute.
    pub fn down(&self) {
        let output = self.tool(&["down", &self.name]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!said.contains("does not stop"), "{said}");
    }

    /// Ends it by SIGKILL, as a crash does.
    pub fn kill(&self) {
        self.tool(&["kill", &self.name]);
    }

    /// Stops all its processes where they stand, until the guard ends; their connections stay open.
    pub fn freeze(&self) -> Frozen<'_> {
        let pids = self.pids().unwrap_or_else(|| panic!("{} is not up", self.name));
        signal(&pids, Signal::STOP);
        Frozen(self)
    }

    /// Its processes, while it is up: the first is the one that started the others.
    pub fn pids(&self) -> Option<Vec<i32>> {
        let status = self.tool(&["status"]);
        let status = String::from_utf8_lossy(&status.stdout).into_owned();
        let instance = self.name.split_once('@').expect("an instance").1;
        let line = status.lines().find(|line| {
            let name = line.split_whitespace().next();
            name.is_some_and(|name| name.ends_with(instance))
        })?;
        let pid = line.split_whitespace().skip_while(|word| *word != "pid").nth(1)?;
        let pid: i32 = pid.parse().ok()?;
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let children = children.split_whitespace().filter_map(|pid| pid.parse().ok());
        Some(std::iter::once(pid).chain(children).collect())
    }

    fn tool(&self, arguments: &[&str]) -> Output {
        let tool = concat!(env!("CARGO_MANIFEST_DIR"), "/tools/servers.sh");
        let output = Command::new(tool)
            .args(arguments)
            .envs(self.settings.iter().map(|(name, value)| (name, value)))
            .output()
            .expect("tools/servers.sh can be run");
        assert!(
            output.status.success(),
            "tools/servers.sh {arguments:?} failed:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        output
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        let tool = concat!(env!("CARGO_MANIFEST_DIR"), "/tools/servers.sh");
        // A failure here must not hide the test's own.
        match Command::new(tool).args(["wipe", &self.name]).output() {
            Ok(output) if output.status.success() => {}
            other => eprintln!("{} could not be wiped: {other:?}", self.name),
        }
    }
}

/// A server that stands still; it goes on when this is dropped. A test that fails must let it go, or nothing could be
/// cleaned up.
#[must_use]
pub struct Frozen<'a>(&'a OwnServer);

impl Frozen<'_> {
    pub fn thaw(self) {}
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        // It may have been killed meanwhile.
        signal(&self.0.pids().unwrap_or_default(), Signal::CONT);
    }
}

fn signal(pids: &[i32], signal: Signal) {
    for pid in pids {
        // A child may have ended since we looked.
        let _ = kill_process(Pid::from_raw(*pid).expect("a pid"), signal);
    }
}
