//! MySQL's and MariaDB's side: addresses, a database of one's own, outbox tables, scripts.

use mysql::prelude::Queryable;
use mysql::{Conn, Opts};

use super::server::with_database;
use super::{unique_name, variable};

/// Two kinds of server with one protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavor {
    Mysql,
    Mariadb,
}

impl Flavor {
    pub const ALL: [Self; 2] = [Self::Mysql, Self::Mariadb];

    /// As `tools/servers.sh` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mysql => "mysql",
            Self::Mariadb => "mariadb",
        }
    }
}

/// A server's addresses: as the connector, the application and the administrator.
#[derive(Debug, Clone)]
pub struct Mysql {
    pub flavor: Flavor,
    pub url: String,
    pub app_url: String,
    pub admin_url: String,
}

impl Mysql {
    /// The server of this flavor that all tests share.
    pub fn shared(flavor: Flavor) -> Self {
        Self::from(flavor, &variable)
    }

    pub(super) fn from(flavor: Flavor, variable: &dyn Fn(&str) -> String) -> Self {
        let variable = |what| variable(&format!("TAILPOST_TEST_{}_{what}", flavor.name().to_uppercase()));
        Self {
            flavor,
            url: variable("URL"),
            app_url: variable("APP_URL"),
            admin_url: variable("ADMIN_URL"),
        }
    }

    /// The same server's addresses in a database.
    pub fn in_database(&self, database: &str) -> Self {
        Self {
            flavor: self.flavor,
            url: with_database(&self.url, database),
            app_url: with_database(&self.app_url, database),
            admin_url: with_database(&self.admin_url, database),
        }
    }
}

/// Connects, or says to what it could not.
pub fn connect(url: &str) -> Conn {
    let options = Opts::from_url(url).unwrap_or_else(|error| panic!("{url}: {error}"));
    Conn::new(options).unwrap_or_else(|error| panic!("connect to {url}: {error}"))
}

/// A test's own database, which the application may do anything in; dropped at the end.
pub struct Database {
    pub name: String,
    /// The server, in this database.
    pub mysql: Mysql,
}

impl Database {
    pub fn new(server: &Mysql) -> Self {
        let name = unique_name();
        let app = Opts::from_url(&server.app_url).expect("a MySQL URL");
        let app = app.get_user().expect("a URL with a user");
        connect(&server.admin_url)
            .run(&format!("CREATE DATABASE {name}; GRANT ALL ON {name}.* TO {app}@'%'"))
            .unwrap();
        Self {
            mysql: server.in_database(&name),
            name,
        }
    }

    /// A connection of the connector's user.
    pub fn connector(&self) -> Conn {
        connect(&self.mysql.url)
    }

    /// A connection of the application.
    pub fn app(&self) -> Conn {
        connect(&self.mysql.app_url)
    }

    /// A connection of the administrator.
    pub fn admin(&self) -> Conn {
        connect(&self.mysql.admin_url)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // A server of the test's own may be gone by now, and is wiped anyway.
        let dropped = Opts::from_url(&self.mysql.admin_url)
            .map_err(mysql::Error::from)
            .and_then(Conn::new)
            .and_then(|mut admin| admin.query_drop(format!("DROP DATABASE {}", self.name)));
        if let Err(error) = dropped {
            eprintln!("{} stays behind in {}: {error}", self.name, self.mysql.flavor.name());
        }
    }
}

/// What keeps an outbox table's rows: nothing at all, so that they are in the binlog only, or a table.
#[derive(Debug, Clone, Copy)]
pub enum Engine {
    Blackhole,
    Innodb,
}

/// Several statements at once, on a connection.
pub trait Script {
    /// Runs statements with `;` between them, each a transaction of its own unless they say otherwise.
    ///
    /// # Errors
    /// The first that fails; those behind it are not run.
    fn run(&mut self, statements: &str) -> mysql::Result<()>;

    /// Makes an outbox table with the columns that a pipeline file expects by default.
    fn create_outbox(&mut self, table: &str, engine: Engine);
}

impl<Q: Queryable> Script for Q {
    fn run(&mut self, statements: &str) -> mysql::Result<()> {
        let mut results = self.query_iter(statements)?;
        // Only a result that is read tells whether its statement failed.
        while let Some(rows) = results.iter() {
            for row in rows {
                row?;
            }
        }
        Ok(())
    }

    fn create_outbox(&mut self, table: &str, engine: Engine) {
        self.run(&format!(
            "CREATE TABLE {table} (id BIGINT AUTO_INCREMENT PRIMARY KEY, aggregate_type VARCHAR(64), \
             aggregate_id VARCHAR(64), event_type VARCHAR(64), topic VARCHAR(249), payload JSON) ENGINE = {engine:?}"
        ))
        .unwrap();
    }
}
