//! Places at which a test kills the process, as a crash would. Only with the feature `failpoints`, which no release has:
//! without it there is nothing here.
//!
//! `TAILPOST_FAILPOINT=after_save:2` is SIGKILL at the second time that the process comes by `after_save`.
//!
//! | point | what has happened |
//! |---|---|
//! | `send` | the sink has taken a record |
//! | `ack` | the watermark has come to a boundary, and nobody was told |
//! | `before_save`, `after_save` | the checkpoint is to be saved; it is durable and may be confirmed |
//! | `after_numbers` | sequence numbers are written, and the checkpoint is not saved yet |
//! | `before_confirm`, `after_confirm` | PostgreSQL is to be told; it was |
//! | `before_commit`, `after_commit` | a sink that commits is to do so; it did, and nothing is acked yet |

/// Comes by a point, and does not come back where it is the one, this time.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub(crate) fn hit(_point: &str) {}

#[cfg(feature = "failpoints")]
pub(crate) use armed::hit;

#[cfg(feature = "failpoints")]
mod armed {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use rustix::process::{Signal, getpid, kill_process};

    const VARIABLE: &str = "TAILPOST_FAILPOINT";

    struct Failpoint {
        point: String,
        at: u64,
        hits: AtomicU64,
    }

    static ARMED: LazyLock<Option<Failpoint>> = LazyLock::new(|| {
        let text = std::env::var(VARIABLE).ok()?;
        let armed = parse(&text);
        match &armed {
            Some(Failpoint { point, at, .. }) => tracing::warn!(point, at, "the process will be killed"),
            None => tracing::error!(
                found = text,
                "{VARIABLE} is not of the form point:number, such as after_save:2"
            ),
        }
        armed
    });

    fn parse(text: &str) -> Option<Failpoint> {
        let (point, at) = text.split_once(':')?;
        Some(Failpoint {
            point: point.to_owned(),
            at: at.parse().ok().filter(|at| *at > 0)?,
            hits: AtomicU64::new(0),
        })
    }

    /// Comes by a point, and does not come back where it is the one, this time.
    pub(crate) fn hit(point: &str) {
        let Some(armed) = ARMED.as_ref().filter(|armed| armed.point == point) else {
            return;
        };
        if armed.hits.fetch_add(1, Ordering::Relaxed) + 1 == armed.at
            && let Err(error) = kill_process(getpid(), Signal::KILL)
        {
            tracing::error!(point, error = %error, "the process could not be killed");
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_point_and_the_number_of_the_hit_are_read() {
            let armed = parse("after_save:2").expect("a failpoint");
            assert_eq!((&armed.point[..], armed.at), ("after_save", 2));
            for text in ["", "send", "send:", "send:0", "send:-1", "send:x"] {
                assert!(parse(text).is_none(), "{text}");
            }
        }
    }
}
