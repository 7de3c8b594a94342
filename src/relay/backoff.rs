//! Waiting between tries: longer each time, and never in step with others.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(30);

/// Exponential back-off with jitter: each wait is between half and the whole of twice the one before.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: FIRST }
    }
}

impl Backoff {
    /// How long to wait before the next try.
    pub fn wait(&mut self) -> Duration {
        let wait = self.next.mul_f64(rand::random_range(0.5..=1.0));
        self.next = (self.next * 2).min(LONGEST);
        wait
    }

    /// A try went well.
    pub fn reset(&mut self) {
        self.next = FIRST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_bound() {
        let mut backoff = Backoff::default();
        assert!(backoff.wait() <= FIRST);
        let longest = (0..20).map(|_| backoff.wait()).max();
        assert!(longest <= Some(LONGEST) && longest > Some(LONGEST / 2));
        backoff.reset();
        assert!(backoff.wait() <= FIRST);
    }
}
