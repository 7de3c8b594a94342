//! Waiting for a condition that has a name and a deadline.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::error::DemoError;

/// Between two looks.
pub(super) const POLL: Duration = Duration::from_millis(20);

/// Looks until there is something, or the time is up.
pub(super) async fn until<T>(
    what: &'static str,
    limit: Duration,
    mut look: impl AsyncFnMut() -> Result<Option<T>, DemoError>,
) -> Result<T, DemoError> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        if Instant::now() >= deadline {
            return Err(late(what, limit));
        }
        sleep(POLL).await;
    }
}

pub(super) fn late(what: &'static str, limit: Duration) -> DemoError {
    DemoError::Deadline {
        what,
        limit,
        log: String::new(),
    }
}
