//! Waiting between tries: longer each time, and never in step with others.

use std::time::Duration;

use crate::config::Restart;

/// How long to wait after so many tries, of which there was one at least, as [`Restart`] has it.
pub fn delay(restart: &Restart, tries: u32) -> Duration {
    let Restart {
        base_delay,
        max_delay,
        multiplier,
        jitter: (least, largest),
    } = *restart;
    let exponent = i32::try_from(tries.saturating_sub(1)).unwrap_or(i32::MAX);
    // In seconds as a float: a product past what a duration holds is cut to the maximum all the same.
    let grown = base_delay.as_secs_f64() * multiplier.powi(exponent);
    let wait = grown.min(max_delay.as_secs_f64()) * rand::random_range(least..=largest);
    Duration::try_from_secs_f64(wait).unwrap_or(max_delay)
}

/// Exponential back-off with jitter.
#[derive(Debug)]
pub struct Backoff {
    restart: Restart,
    tries: u32,
}

impl Backoff {
    pub fn new(restart: Restart) -> Self {
        Self { restart, tries: 0 }
    }

    /// How long to wait before the next try.
    pub fn wait(&mut self) -> Duration {
        self.tries = self.tries.saturating_add(1);
        delay(&self.restart, self.tries)
    }

    /// A try went well.
    pub fn reset(&mut self) {
        self.tries = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESTART: Restart = Restart {
        base_delay: Duration::from_millis(100),
        max_delay: Duration::from_secs(10),
        multiplier: 3.0,
        jitter: (0.5, 1.5),
    };

    #[test]
    fn waits_grow_to_a_bound() {
        let mut backoff = Backoff::new(RESTART);
        let expected = [100, 300, 900, 2700, 8100, 10_000, 10_000].map(Duration::from_millis);
        for delay in expected {
            let wait = backoff.wait();
            assert!(
                wait >= delay.mul_f64(0.499) && wait <= delay.mul_f64(1.501),
                "{wait:?} for {delay:?}"
            );
        }
        backoff.reset();
        assert!(backoff.wait() <= RESTART.base_delay.mul_f64(1.501));
    }

    #[test]
    fn the_largest_settings_do_not_overflow() {
        let mut backoff = Backoff::new(Restart {
            base_delay: Duration::from_secs(u64::MAX / 8),
            max_delay: Duration::from_secs(u64::MAX / 8),
            multiplier: f64::MAX,
            jitter: (1.0, 1.0),
        });
        for _ in 0..3 {
            backoff.wait();
        }
    }
}
