//! What a promotion makes of a position. Pure.
//!
//! A promoted standby goes on with a log of its own, a *timeline*, from the place where its primary's log ended for it: the
//! switch point. Up to there the two logs are one; behind it the same LSNs mean other things. So a position is carried over
//! only if all that was done of events lies before the switch point.

use crate::position::{Lsn, PostgresPosition};

use super::error::PostgresError;
use super::setup::ServerFacts;

/// The timelines that a server's log came from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct History(Vec<Ancestor>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ancestor {
    timeline: u32,
    /// Where the server's log left it.
    switch_point: Lsn,
}

impl History {
    /// Parses the content of a `.history` file, which `TIMELINE_HISTORY` gives: a line for each ancestor of `timeline` with
    /// its number, the switch point and a reason in words. Blank lines and comments (`#`) are passed over. Layout and order
    /// are those of PostgreSQL's `readTimeLineHistory`.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(super) fn parse(text: &str, timeline: u32) -> Result<Self, String> {
        let mut ancestors: Vec<Ancestor> = Vec::new();
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let mut fields = line.split_whitespace();
            let number = fields.next().and_then(|field| field.parse().ok());
            let switch_point = fields.next().and_then(|field| field.parse().ok());
            let ancestor = match number.zip(switch_point) {
                Some((timeline, switch_point)) => Ancestor { timeline, switch_point },
                None => return Err(format!("line `{line}` has no timeline and switch point")),
            };
            let last = ancestors.last();
            if last.is_some_and(|last| last.timeline >= ancestor.timeline) || ancestor.timeline >= timeline {
                return Err(format!("timeline {} is out of order", ancestor.timeline));
            }
            ancestors.push(ancestor);
        }
        Ok(Self(ancestors))
    }

    /// Where the server's log left this timeline; None where it never was on it.
    fn switch_point(&self, timeline: u32) -> Option<Lsn> {
        let found = self.0.iter().find(|ancestor| ancestor.timeline == timeline);
        found.map(|ancestor| ancestor.switch_point)
    }
}

/// The position on the server's timeline.
///
/// # Errors
/// The server is on an older timeline, on one that did not come from the position's, or left that one before events that
/// were done.
pub(super) fn carry_over(saved: &PostgresPosition, server: &ServerFacts) -> Result<PostgresPosition, PostgresError> {
    if saved.timeline == server.timeline {
        return Ok(saved.clone());
    }
    if server.timeline < saved.timeline {
        return Err(PostgresError::OlderTimeline {
            found: server.timeline,
            timeline: saved.timeline,
            saved: saved.base,
        });
    }
    let foreign = |reason: String| PostgresError::Timeline {
        found: server.timeline,
        timeline: saved.timeline,
        saved: saved.base,
        reason,
    };
    let history = server
        .history
        .as_ref()
        .map_err(|reason| foreign(format!("its history could not be read: {reason}")))?;
    let switch_point = history
        .switch_point(saved.timeline)
        .ok_or_else(|| foreign("which is none of those that its log came from".to_owned()))?;
    // A commit record that starts before the switch point lies before it as a whole.
    let beyond = saved.partial.filter(|partial| partial.commit >= switch_point);
    let relayed = beyond.map_or(saved.last_event_end, |partial| partial.commit);
    let base = saved.base.min(switch_point);
    if beyond.is_some() || relayed > switch_point {
        return Err(PostgresError::PastSwitchPoint {
            relayed,
            timeline: saved.timeline,
            found: server.timeline,
            switch_point,
            resume: base,
        });
    }
    Ok(PostgresPosition {
        timeline: server.timeline,
        // Idle progress moves the base without an event; what the new primary wrote in that place is new.
        base,
        ..saved.clone()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::position::Partial;

    /// Timeline 2 left 1 at 0/100, timeline 3 left 2 at 0/200.
    const HISTORY: &str =
        "# a comment\n\n1\t0/100\tno recovery target specified\n  2 0/200 before 2026-01-01 00:00:00+00\n\n";

    fn server(timeline: u32) -> ServerFacts {
        ServerFacts {
            system_identifier: 7,
            timeline,
            log_end: Lsn(0x1000),
            history: History::parse(HISTORY, 3),
        }
    }

    fn saved(timeline: u32, base: u64, last_event_end: u64) -> PostgresPosition {
        PostgresPosition {
            system_identifier: 7,
            timeline,
            base: Lsn(base),
            partial: None,
            last_event_end: Lsn(last_event_end),
        }
    }

    fn inside(position: PostgresPosition, commit: u64) -> PostgresPosition {
        let partial = Partial {
            commit: Lsn(commit),
            change: Lsn(0x10),
            index: 0,
        };
        PostgresPosition {
            partial: Some(partial),
            ..position
        }
    }

    #[test]
    fn a_history_is_read_with_comments_blank_lines_and_reasons() {
        let history = History::parse(HISTORY, 3).unwrap();
        let points = [0, 1, 2, 3].map(|timeline| history.switch_point(timeline));
        assert_eq!(points, [None, Some(Lsn(0x100)), Some(Lsn(0x200)), None]);
        assert_eq!(History::parse("", 1), Ok(History::default()));
    }

    #[test]
    fn a_damaged_history_is_refused() {
        for text in [
            "1",
            "x\t0/100",
            "1\t0-100",
            "1\t",
            "2\t0/1\n1\t0/2",
            "1\t0/1\n1\t0/2",
            "3\t0/1",
            "-1\t0/1",
        ] {
            assert!(History::parse(text, 3).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_position_before_the_switch_point_goes_on_where_it_is() {
        for (timeline, base) in [(1, 0xFF), (1, 0x100), (2, 0x200), (3, 0x900)] {
            let carried = carry_over(&saved(timeline, base, base), &server(3)).unwrap();
            assert_eq!(carried, saved(3, base, base));
        }
        // The transaction that was in progress is there, whole.
        let position = inside(saved(1, 0x80, 0x80), 0xF0);
        let carried = carry_over(&position, &server(3)).unwrap();
        assert_eq!(carried.partial, position.partial);
    }

    #[test]
    fn idle_progress_past_the_switch_point_goes_back_to_it() {
        let carried = carry_over(&saved(1, 0x180, 0x100), &server(3)).unwrap();
        assert_eq!(carried, saved(3, 0x100, 0x100));
    }

    #[test]
    fn events_past_the_switch_point_halt_with_the_facts() {
        let error = carry_over(&saved(1, 0x180, 0x101), &server(3)).expect_err("events were relayed");
        let text = error.to_string();
        for fact in ["0/101", "timeline 1", "timeline 3", "0/100", "--accept-gap"] {
            assert!(text.contains(fact), "`{fact}`: {text}");
        }
        // Part of a transaction was relayed that the new primary does not have; what is before it was not.
        let error = carry_over(&inside(saved(1, 0x80, 0x80), 0x100), &server(3)).expect_err("an event was relayed");
        assert!(
            matches!(
                error,
                PostgresError::PastSwitchPoint {
                    resume: Lsn(0x80),
                    relayed: Lsn(0x100),
                    ..
                }
            ),
            "{error}"
        );
    }

    #[test]
    fn a_timeline_that_the_servers_log_did_not_come_from_halts() {
        let strange = ServerFacts {
            history: History::parse("2\t0/200\t", 3),
            ..server(3)
        };
        let error = carry_over(&saved(1, 0x10, 0), &strange).expect_err("no ancestor");
        assert!(error.to_string().contains("none of those"), "{error}");
        let unreadable = ServerFacts {
            history: Err("gone".to_owned()),
            ..server(3)
        };
        let error = carry_over(&saved(1, 0x10, 0), &unreadable).expect_err("no history");
        assert!(error.to_string().contains("could not be read: gone"), "{error}");
        // It is not needed on the same timeline.
        assert!(carry_over(&saved(3, 0x10, 0), &unreadable).is_ok());
    }

    #[test]
    fn an_older_timeline_is_that_of_a_primary_that_was_replaced() {
        let error = carry_over(&saved(3, 0x10, 0), &server(2)).expect_err("an old primary");
        assert!(matches!(error, PostgresError::OlderTimeline { .. }), "{error}");
    }

    proptest! {
        #[test]
        fn any_text_is_a_history_or_an_error(text in "\\PC*", timeline: u32) {
            let _ = History::parse(&text, timeline);
        }

        /// Whatever is carried over lies in the log that both timelines share.
        #[test]
        fn nothing_is_carried_over_a_switch_point(base in 0_u64..0x200, events in 0_u64..0x200, commit in prop::option::of(0_u64..0x200)) {
            let mut position = saved(1, base, events);
            if let Some(commit) = commit {
                position = inside(position, commit);
            }
            if let Ok(carried) = carry_over(&position, &server(3)) {
                prop_assert!(carried.base <= Lsn(0x100) && carried.base <= position.base);
                prop_assert!(carried.last_event_end <= Lsn(0x100));
                prop_assert!(carried.partial.is_none_or(|partial| partial.commit < Lsn(0x100)));
            }
        }
    }
}
