//! What the tests share: servers, a bed of one's own on them, the binary as a child, and readers of what came out.

pub mod acl;
pub mod any_bed;
pub mod app;
pub mod bed;
pub mod binlog;
pub mod broker_proxy;
pub mod cli;
pub mod connect;
pub mod db;
pub mod http;
pub mod java;
pub mod kafka;
pub mod lives;
pub mod load;
pub mod mysql;
pub mod mysql_bed;
pub mod place;
pub mod plot;
pub mod positions;
pub mod postgres;
pub mod proxy;
pub mod relay;
pub mod server;
pub mod target;
pub mod wait;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

pub use any_bed::{ANY_OUTBOX, Bed};
pub use app::Event;
pub use bed::{OUTBOX, TestBed};
pub use db::Db;
pub(crate) use db::over_each;
pub use postgres::{Emit, message};
pub use wait::{DEADLINE, eventually, found};

/// Held by a test that keeps the cores busy for long: two such at a time.
pub struct Heavy(());

static HEAVY: (Mutex<u8>, Condvar) = (Mutex::new(2), Condvar::new());

pub fn heavy() -> Heavy {
    let left = HEAVY.0.lock().unwrap_or_else(PoisonError::into_inner);
    let mut left = HEAVY
        .1
        .wait_while(left, |left| *left == 0)
        .unwrap_or_else(PoisonError::into_inner);
    *left -= 1;
    Heavy(())
}

impl Drop for Heavy {
    fn drop(&mut self) {
        *HEAVY.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        HEAVY.1.notify_one();
    }
}

/// A short name that no other test has, of this run or another: letters and digits, a letter first.
pub fn unique_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock after 1970");
    let run = (now.as_millis() as u64 ^ u64::from(std::process::id()) << 20) & 0xFFF_FFFF;
    format!("t{run:07x}{:02}", COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A variable that `tools/servers.sh env` prints.
///
/// # Panics
/// Without it: a test that lacks its server fails, it never skips.
pub fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: run `make test`, or `make up` and `eval \"$(tools/servers.sh env)\"` first")
    })
}
