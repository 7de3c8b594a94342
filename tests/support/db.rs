//! The databases that one behaviour is shown on.

use super::mysql::Flavor;

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Db {
    Postgres,
    Mysql,
    Mariadb,
}

impl Db {
    /// None: it has no binlog.
    pub fn flavor(self) -> Option<Flavor> {
        match self {
            Self::Postgres => None,
            Self::Mysql => Some(Flavor::Mysql),
            Self::Mariadb => Some(Flavor::Mariadb),
        }
    }
}

/// Makes tests of a function of a [`Db`]: `sentence::postgres`, `sentence::mysql` and `sentence::mariadb`, or those that are
/// listed.
macro_rules! over_each {
    ($sentence:ident) => {
        $crate::support::db::over_each!($sentence: postgres, mysql, mariadb);
    };
    ($sentence:ident: $($db:ident),+) => {
        mod $sentence {
            $($crate::support::db::over_each!(@test $sentence $db);)+
        }
    };
    (@test $sentence:ident postgres) => {
        #[test]
        fn postgres() {
            super::$sentence($crate::support::Db::Postgres);
        }
    };
    (@test $sentence:ident mysql) => {
        #[test]
        fn mysql() {
            super::$sentence($crate::support::Db::Mysql);
        }
    };
    (@test $sentence:ident mariadb) => {
        #[test]
        fn mariadb() {
            super::$sentence($crate::support::Db::Mariadb);
        }
    };
}
pub(crate) use over_each;
