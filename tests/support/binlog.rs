//! The kinds of binlog, by how a place in them is named, and a server of a test's own for each.

use std::path::PathBuf;

use mysql::prelude::Queryable;
use tailpost::position::BinlogPlace;

use super::mysql::{Flavor, Script};
use super::mysql_bed::MysqlBed;
use super::relay::Relay;
use super::server::OwnServer;
use super::{DEADLINE, eventually};

/// By what a position names transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binlog {
    /// MySQL with GTIDs.
    Gtids,
    /// MySQL with gtid_mode=OFF: by file and offset.
    Files,
    Mariadb,
}

impl Binlog {
    pub fn flavor(self) -> Flavor {
        match self {
            Self::Gtids | Self::Files => Flavor::Mysql,
            Self::Mariadb => Flavor::Mariadb,
        }
    }

    fn options(self) -> &'static str {
        match self {
            Self::Gtids | Self::Mariadb => "",
            Self::Files => "--gtid-mode=OFF --enforce-gtid-consistency=OFF",
        }
    }

    /// A server that nobody else writes to, and a bed on it whose payloads are numbers.
    pub fn own(self) -> (MysqlBed, OwnServer) {
        self.own_with("")
    }

    /// The same with more options.
    pub fn own_with(self, options: &str) -> (MysqlBed, OwnServer) {
        let server = OwnServer::mysql(self.flavor(), &format!("{} {options}", self.options()));
        let bed = MysqlBed::on(self.flavor(), &server);
        bed.app().run("ALTER TABLE outbox MODIFY payload INT").unwrap();
        (bed, server)
    }

    /// The folder that the server has its binlog in.
    pub fn folder(self, server: &OwnServer) -> PathBuf {
        let variable = format!("TAILPOST_TEST_{}_SOCKET", self.flavor().name().to_uppercase());
        let socket = PathBuf::from(server.variable(&variable));
        socket.parent().expect("a folder").join("data")
    }
}

/// Makes tests of a function of a [`Binlog`], one of each kind.
macro_rules! over_each_binlog {
    ($sentence:ident) => {
        mod $sentence {
            #[test]
            fn gtids() {
                super::$sentence($crate::support::binlog::Binlog::Gtids);
            }
            #[test]
            fn files() {
                super::$sentence($crate::support::binlog::Binlog::Files);
            }
            #[test]
            fn mariadb() {
                super::$sentence($crate::support::binlog::Binlog::Mariadb);
            }
        }
    };
}
pub(crate) use over_each_binlog;

/// Writes one event.
pub fn insert(bed: &MysqlBed, payload: u32) {
    bed.app()
        .run(&format!("INSERT INTO outbox (payload) VALUES ({payload})"))
        .unwrap();
}

/// Where the server's binlog ends.
pub fn log_end(bed: &MysqlBed) -> BinlogPlace {
    let files: Vec<mysql::Row> = bed.admin().query("SHOW BINARY LOGS").unwrap();
    let last = files.last().expect("a file");
    BinlogPlace {
        file: last.get::<String, _>(0).unwrap().into(),
        pos: last.get(1).unwrap(),
    }
}

/// Waits until everything that the binlog has now is saved as done.
pub fn wait_saved_to_the_end(bed: &MysqlBed, relay: &Relay) {
    let end = log_end(bed);
    eventually(DEADLINE, &format!("saved up to {end}"), || {
        relay
            .saved_mysql()
            .is_some_and(|saved| saved.place.log_place() >= end.log_place())
    });
}

/// The values of the bed's topic, of which there must be so many.
pub fn values(bed: &MysqlBed, count: usize) -> Vec<String> {
    let mut reader = bed.reader(&["events"]);
    let records = reader.exactly(count).iter();
    records
        .map(|record| record.value_text().expect("a value").to_owned())
        .collect()
}
