//! A test's own place on a server of any of the databases, for behaviour that is the same over all of them.

use std::ops::Deref;

use tailpost::position::{LogPlace, Lsn};

use super::app::App;
use super::mysql_bed::MysqlBed;
use super::plot::Plot;
use super::relay::Relay;
use super::server::{OwnServer, Postgres};
use super::{DEADLINE, Db, TestBed, eventually, mysql_bed, variable};

/// The bed's outbox events ([`App::emit`]), as they are, to the bed's topic. `<source>` and `<outbox>` are what differs
/// between databases; more options can be added to both.
pub const ANY_OUTBOX: &str = "
apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: <name>}
spec:
  source: {type: <type>, config: {<source>, outbox: {<outbox>}}}
  processors:
    - {type: outbox, topic: '<topic>', raw_payload: true}
  sinks:
    - {type: kafka, config: {id: k1, brokers: '<brokers>'}}
";

/// See the module's text.
pub enum Bed {
    Postgres(TestBed),
    Mysql(MysqlBed),
}

impl Deref for Bed {
    type Target = Plot;

    fn deref(&self) -> &Plot {
        match self {
            Self::Postgres(bed) => bed,
            Self::Mysql(bed) => bed,
        }
    }
}

/// An end of a server's log, as it was once.
#[derive(Debug, Clone)]
pub enum LogEnd {
    Lsn(Lsn),
    Mysql(mysql_bed::Gtids),
}

impl Bed {
    /// On the shared servers.
    pub fn new(db: Db) -> Self {
        Self::with(db, None, None)
    }

    /// On a database server of the test's own, of this kind, and the shared broker.
    pub fn on(db: Db, server: &OwnServer) -> Self {
        Self::with(db, Some(server), None)
    }

    /// On servers of the test's own where given.
    pub fn with(db: Db, server: Option<&OwnServer>, broker: Option<&OwnServer>) -> Self {
        let brokers = broker.map_or_else(|| variable("TAILPOST_TEST_KAFKA"), OwnServer::brokers);
        match db.flavor() {
            None => {
                let server = server.map_or_else(Postgres::shared, OwnServer::addresses);
                Self::Postgres(TestBed::on(server, &brokers))
            }
            Some(flavor) => Self::Mysql(MysqlBed::with(flavor, server, &brokers)),
        }
    }

    pub fn db(&self) -> Db {
        self.door.db
    }

    /// Puts the bed's own names into a text.
    pub fn fill(&self, template: &str) -> String {
        match self {
            Self::Postgres(bed) => bed.fill(template),
            Self::Mysql(bed) => bed.fill(template),
        }
    }

    /// The connector with a pipeline file of this text (`fill`ed), not started yet. Each call gives one with its own state.
    pub fn relay(&self, pipeline: &str) -> Relay {
        match self {
            Self::Postgres(bed) => bed.relay(pipeline),
            Self::Mysql(bed) => bed.relay(pipeline),
        }
    }

    /// A connection of the application.
    pub fn app(&self) -> App {
        self.door.open().expect("the server lets the application in")
    }

    /// Where the log ends now.
    pub fn log_end(&self) -> LogEnd {
        match self {
            Self::Postgres(bed) => LogEnd::Lsn(bed.log_end()),
            Self::Mysql(bed) => LogEnd::Mysql(bed.gtids()),
        }
    }

    /// Whether the log before this is done with: confirmed to PostgreSQL; saved, with the others, which are told nothing.
    pub fn is_done(&self, relay: &Relay, end: &LogEnd) -> bool {
        match (self, end) {
            (Self::Postgres(bed), LogEnd::Lsn(end)) => bed.confirmed() >= Some(*end),
            (Self::Mysql(_), LogEnd::Mysql(end)) => relay.saved_mysql().is_some_and(|saved| end.are_in(&saved.base)),
            (_, end) => panic!("{end:?} is of another database"),
        }
    }

    /// How far the log is done with.
    pub fn done(&self, relay: &Relay) -> Option<LogPlace> {
        match self {
            Self::Postgres(bed) => bed.confirmed().map(|confirmed| LogPlace {
                file: 0,
                offset: confirmed.0,
            }),
            Self::Mysql(_) => relay.position().map(|saved| saved.log_place()),
        }
    }

    /// Waits until all that was written up to now is done with.
    pub fn wait_done_to_the_end(&self, relay: &Relay) {
        let end = self.log_end();
        eventually(DEADLINE, &format!("done up to {end:?}"), || self.is_done(relay, &end));
    }

    /// The number that the server has for the connection which sends the log to this relay: a pid, or a connection's id.
    pub fn reader_of(&self, relay: &Relay) -> Option<u64> {
        match self {
            Self::Postgres(bed) => bed.active_pid().map(|pid| u64::try_from(pid).expect("a pid")),
            Self::Mysql(bed) => bed.dump_of(relay),
        }
    }
}
