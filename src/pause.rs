//! Waits that tokio does not have: for less than a millisecond, and until a moment that there may not be.

use std::io;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Never where there is no such moment.
pub(crate) async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// A timer of the kernel's, where it has such, since tokio's round up to a millisecond; elsewhere nothing is waited for.
#[derive(Debug)]
pub(crate) struct Pause {
    #[cfg(target_os = "linux")]
    timer: tokio::io::unix::AsyncFd<rustix::fd::OwnedFd>,
}

#[cfg(target_os = "linux")]
impl Pause {
    /// # Errors
    /// The kernel's, such as no more file descriptors.
    #[expect(unsafe_code, reason = "a file is registered by its number")]
    pub(crate) fn new() -> io::Result<Self> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        // SAFETY: an `OwnedFd` has one number, of a file that is open until it is dropped, and it is dropped with the
        // registration.
        let timer = unsafe { tokio::io::unix::AsyncFd::register(timer) }?;
        Ok(Self { timer })
    }

    /// Waits for so long, which must not be zero. Cancel safe: each wait begins anew.
    pub(crate) async fn wait(&mut self, time: Duration) -> io::Result<()> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let once = Itimerspec {
            it_interval: never,
            it_value: time.try_into().unwrap_or(never),
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        loop {
            let mut ready = self.timer.readable().await?;
            let mut count = [0; size_of::<u64>()];
            let read = ready.try_io(|timer| Ok(rustix::io::read(timer, &mut count)?));
            // It may still seem ready from an earlier wait.
            if let Ok(read) = read {
                return read.map(drop);
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl Pause {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {})
    }

    pub(crate) async fn wait(&mut self, _time: Duration) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_wait_lasts_its_own_time_also_after_one_that_was_given_up() {
        let mut pause = Pause::new().unwrap();
        let (short, long) = (Duration::from_micros(200), Duration::from_millis(20));
        for time in [short, long, short] {
            let begun = Instant::now();
            pause.wait(time).await.unwrap();
            assert!(begun.elapsed() >= time);
        }
        tokio::select! {
            biased;
            () = std::future::ready(()) => {}
            _ = pause.wait(short) => {}
        }
        let begun = Instant::now();
        pause.wait(long).await.unwrap();
        assert!(begun.elapsed() >= long);
    }
}
