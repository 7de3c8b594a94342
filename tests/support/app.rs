//! The application's side, whatever its database: a connection, and outbox events in transactions.
//!
//! An event is a message in the log of PostgreSQL, and a row of the table `outbox` in MySQL and MariaDB.

use std::error::Error;

use mysql::prelude::Queryable;
use mysql::{Conn, Opts};
use postgres::{Client, NoTls};

use super::mysql::Script;
use super::{Db, Emit};

/// An outbox event by its fields. What is None is absent: no member of the message, NULL in the row.
#[derive(Debug, Clone, Default)]
pub struct Event {
    pub id: Option<String>,
    pub aggregate_type: Option<String>,
    pub aggregate_id: Option<String>,
    pub event_type: Option<String>,
    pub topic: Option<String>,
    /// JSON, put in as it is.
    pub payload: Option<String>,
}

impl Event {
    /// Only a payload.
    pub fn of(payload: impl Into<String>) -> Self {
        Self {
            payload: Some(payload.into()),
            ..Self::default()
        }
    }

    pub fn key(mut self, aggregate_id: impl Into<String>) -> Self {
        self.aggregate_id = Some(aggregate_id.into());
        self
    }

    pub fn aggregate_type(mut self, aggregate_type: impl Into<String>) -> Self {
        self.aggregate_type = Some(aggregate_type.into());
        self
    }

    pub fn event_type(mut self, event_type: impl Into<String>) -> Self {
        self.event_type = Some(event_type.into());
        self
    }

    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// The columns that are texts, with their names.
    fn texts(&self) -> [(&'static str, Option<&str>); 5] {
        [
            ("id", self.id.as_deref()),
            ("aggregate_type", self.aggregate_type.as_deref()),
            ("aggregate_id", self.aggregate_id.as_deref()),
            ("event_type", self.event_type.as_deref()),
            ("topic", self.topic.as_deref()),
        ]
    }

    /// What a message of it contains.
    pub fn message(&self) -> String {
        let texts = self.texts().into_iter();
        let texts = texts.filter_map(|(name, text)| Some(format!("\"{name}\": {}", serde_json::json!(text?))));
        let payload = self.payload.iter().map(|payload| format!("\"payload\": {payload}"));
        let members: Vec<String> = texts.chain(payload).collect();
        format!("{{{}}}", members.join(", "))
    }

    fn values(&self, literal: fn(Option<&str>) -> String) -> String {
        let texts = self.texts().into_iter().map(|(_, text)| text);
        let literals: Vec<String> = texts.chain([self.payload.as_deref()]).map(literal).collect();
        format!("({})", literals.join(", "))
    }
}

fn mysql_literal(text: Option<&str>) -> String {
    mysql::Value::from(text).as_sql(false)
}

fn postgres_literal(text: Option<&str>) -> String {
    text.map_or("NULL".to_owned(), |text| format!("'{}'", text.replace('\'', "''")))
}

/// Whatever a database's client says went wrong.
pub type AppError = Box<dyn Error + Send + Sync>;

/// A way to a database, for any number of connections.
#[derive(Debug, Clone)]
pub struct Door {
    pub db: Db,
    pub url: String,
    /// What each connection begins with.
    pub settings: String,
}

impl Door {
    pub fn new(db: Db, url: &str) -> Self {
        Self {
            db,
            url: url.to_owned(),
            settings: String::new(),
        }
    }

    /// # Errors
    /// The server does not let it in.
    pub fn open(&self) -> Result<App, AppError> {
        let mut app = match self.db {
            Db::Postgres => App::Postgres(Box::new(Client::connect(&self.url, NoTls)?)),
            Db::Mysql | Db::Mariadb => App::Mysql(Conn::new(Opts::from_url(&self.url)?)?),
        };
        if !self.settings.is_empty() {
            app.try_run(&self.settings)?;
        }
        Ok(app)
    }
}

/// A connection. Without [`App::begin`] each call is a transaction of its own.
pub enum App {
    Postgres(Box<Client>),
    Mysql(Conn),
}

impl App {
    /// Runs statements with `;` between them.
    ///
    /// # Panics
    /// When one fails.
    pub fn run(&mut self, statements: &str) {
        self.try_run(statements)
            .unwrap_or_else(|error| panic!("{statements}: {error:?}"));
    }

    /// The same.
    ///
    /// # Errors
    /// The first statement that fails; those behind it are not run.
    pub fn try_run(&mut self, statements: &str) -> Result<(), AppError> {
        match self {
            Self::Postgres(client) => client.batch_execute(statements)?,
            Self::Mysql(conn) => conn.run(statements)?,
        }
        Ok(())
    }

    /// The text that is all a query gives.
    pub fn text(&mut self, query: &str) -> String {
        match self {
            Self::Postgres(client) => client.query_one(query, &[]).expect("a row").get(0),
            Self::Mysql(conn) => conn.query_first(query).expect("an answer").expect("a row"),
        }
    }

    pub fn begin(&mut self) {
        self.run("BEGIN");
    }

    pub fn commit(&mut self) {
        self.run("COMMIT");
    }

    pub fn rollback(&mut self) {
        self.run("ROLLBACK");
    }

    /// Makes the log longer by about this many MB, by a table that is of no pipeline.
    pub fn write_elsewhere(&mut self, megabytes: u32) {
        let rows = match self {
            Self::Postgres(_) => "SELECT n, repeat(md5(n::text), 30) FROM generate_series(1, 1000) n",
            Self::Mysql(_) => {
                "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 1000) \
                 SELECT n, REPEAT(SHA2(n, 256), 15) FROM n"
            }
        };
        self.run("CREATE TABLE neighbour (n int, pad varchar(1000))");
        for _ in 0..megabytes {
            self.run(&format!("INSERT INTO neighbour {rows}"));
        }
    }

    /// Writes an event.
    pub fn emit(&mut self, event: &Event) {
        self.emit_all(std::slice::from_ref(event)).expect("write an event");
    }

    /// Writes events by one statement.
    ///
    /// # Errors
    /// None was written, or nobody knows.
    pub fn emit_all(&mut self, events: &[Event]) -> Result<(), AppError> {
        match self {
            Self::Postgres(client) => {
                let messages: Vec<String> = events.iter().map(Event::message).collect();
                Emit::emit_all(client.as_mut(), "outbox", &messages)?;
            }
            Self::Mysql(_) => self.insert_all(events)?,
        }
        Ok(())
    }

    /// The same as rows of the table `outbox`, which a test with PostgreSQL must have made.
    ///
    /// # Errors
    /// As above.
    pub fn insert_all(&mut self, events: &[Event]) -> Result<(), AppError> {
        let literal = match self {
            Self::Postgres(_) => postgres_literal,
            Self::Mysql(_) => mysql_literal,
        };
        let rows: Vec<String> = events.iter().map(|event| event.values(literal)).collect();
        self.try_run(&format!(
            "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, topic, payload) VALUES {}",
            rows.join(", ")
        ))
    }
}
