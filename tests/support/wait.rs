//! Waiting for a named condition. A test never sleeps for a while and hopes.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// Far beyond what anything takes on a slow machine; only a fault is ever waited for so long.
pub const DEADLINE: Duration = Duration::from_secs(60);
/// Between the first looks, and at most: what takes longer is not worth a processor that looks all the time.
const POLL: Duration = Duration::from_millis(5);
const LONGEST_POLL: Duration = Duration::from_millis(50);

/// Waits until `condition` holds.
///
/// # Panics
/// After `deadline`, naming `what` did not come.
pub fn eventually(deadline: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    found(deadline, what, || condition().then_some(()));
}

/// Waits until `search` finds something.
///
/// # Panics
/// After `deadline`, naming `what` did not come.
pub fn found<T>(deadline: Duration, what: &str, mut search: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + deadline;
    let mut poll = POLL;
    loop {
        if let Some(found) = search() {
            return found;
        }
        assert!(
            Instant::now() < end,
            "within {} s there was not: {what}",
            deadline.as_secs()
        );
        sleep(poll);
        poll = (poll + poll / 4).min(LONGEST_POLL);
    }
}
