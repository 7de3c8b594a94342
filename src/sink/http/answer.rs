//! What a target's answer means for the events that it was sent.

use std::time::{Duration, SystemTime};

use reqwest::header::{HeaderMap, LOCATION};

use crate::config;
use crate::http_client::retry_after;

/// The most of an answer's text that an error shows.
const MAX_SHOWN: usize = 300;

/// See the module's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The target has them.
    Accepted,
    /// Not now. An attempt that is not answered may have been carried out.
    Later {
        why: String,
        /// What the target said, which can be of the event's own.
        said: String,
        /// As the target asked.
        after: Option<Duration>,
        how: Failed,
    },
    /// Never.
    Refused { why: String, said: String },
    /// Whatever the event: a person must act.
    Forbidden { why: String },
}

/// How an attempt failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failed {
    /// There was no connection: nothing was sent, and the event has no part in it.
    Unreached,
    /// No answer came in its time.
    TimedOut,
    Answered,
}

impl Failed {
    /// What was expected, and what can be done about it while the attempt is made again.
    pub(super) fn remedy(self) -> &'static str {
        match self {
            Self::Unreached => "expected a connection: start the target, or correct `url` of the sink",
            Self::TimedOut => {
                "expected an answer in that time: find out what keeps the target, or raise `retry.attempt_timeout`"
            }
            Self::Answered => {
                "expected an answer that is whole, with a status in `success`: see to the target; it is tried again"
            }
        }
    }
}

/// What is to be known of the statuses.
#[derive(Debug)]
pub(super) struct Rules {
    success: config::StatusSet,
    retry_on: config::StatusSet,
    halt_on: config::StatusSet,
}

impl Rules {
    pub(super) fn new(config: &config::Http) -> Self {
        Self {
            success: config.success.clone(),
            retry_on: config.retry_on.clone(),
            halt_on: config.halt_on.clone(),
        }
    }

    /// Of an answer that came as a whole. `host` names the target, `body` is as much of it as was read.
    pub(super) fn verdict(
        &self,
        host: &str,
        status: u16,
        headers: &HeaderMap,
        body: &[u8],
        now: SystemTime,
    ) -> Verdict {
        if self.success.contains(status) {
            return Verdict::Accepted;
        }
        let said = shown_text(body);
        let answer = format!("{host} answers {status}");
        if self.retry_on.contains(status) {
            return Verdict::Later {
                why: answer,
                said,
                after: retry_after(headers, now),
                how: Failed::Answered,
            };
        }
        if self.halt_on.contains(status) {
            let why = format!(
                "{answer}: it does not let us write; correct `auth`, `tls` or `headers` of the sink, or take {status} out of \
                 `halt_on` if it means an event"
            );
            return Verdict::Forbidden { why };
        }
        if let (300..=399, Some(location)) = (status, headers.get(LOCATION)) {
            let said = format!("location: {}", shown_text(location.as_bytes()));
            let why = format!("{answer}: redirects are not followed, write the `url` that it points to");
            return Verdict::Refused { why, said };
        }
        Verdict::Refused {
            why: format!("{answer}: for good, since it is neither in `success` nor in `retry_on`"),
            said,
        }
    }
}

/// On one line, and no more of it than helps.
fn shown_text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_SHOWN)]);
    let text = text.trim().replace(|c: char| c.is_control(), " ");
    match bytes.len() > MAX_SHOWN {
        true => format!("{text}…"),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use reqwest::header::{HeaderValue, RETRY_AFTER};

    use super::*;
    use crate::config::StatusSet;

    fn rules() -> Rules {
        Rules {
            success: StatusSet::new(vec![(200, 299)]),
            retry_on: StatusSet::new(vec![(429, 429), (500, 599)]),
            halt_on: StatusSet::new(vec![(401, 401)]),
        }
    }

    fn verdict(status: u16, headers: &[(reqwest::header::HeaderName, &'static str)], body: &[u8]) -> Verdict {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
        let now = UNIX_EPOCH + Duration::from_secs(784_111_777);
        rules().verdict("http://h", status, &headers.collect(), body, now)
    }

    #[test]
    fn statuses_mean_what_the_file_says() {
        assert_eq!(verdict(204, &[], b""), Verdict::Accepted);
        assert!(matches!(
            verdict(500, &[], b""),
            Verdict::Later {
                after: None,
                how: Failed::Answered,
                ..
            }
        ));
        assert!(matches!(verdict(401, &[], b""), Verdict::Forbidden { .. }));
        let refused = |status, headers: &[_], body: &[u8]| match verdict(status, headers, body) {
            Verdict::Refused { why, said } => (why, said),
            other => panic!("{other:?}"),
        };
        let why = "http://h answers 400: for good, since it is neither in `success` nor in `retry_on`";
        assert_eq!(
            refused(400, &[], b"no\nsuch field"),
            (why.to_owned(), "no such field".to_owned())
        );
        let (why, said) = refused(302, &[(LOCATION, "https://h/x")], b"");
        assert!(why.contains("redirects are not followed"), "{why}");
        assert_eq!(said, "location: https://h/x");
    }

    #[test]
    fn a_target_says_how_long_it_wants_to_be_left_alone() {
        let after = |text| match verdict(429, &[(RETRY_AFTER, text)], b"") {
            Verdict::Later { after, .. } => after.map(|after| after.as_secs()),
            other => panic!("{other:?}"),
        };
        assert_eq!(after("3"), Some(3));
        // A minute after now, and one before.
        assert_eq!(after("Sun, 06 Nov 1994 08:50:37 GMT"), Some(60));
        assert_eq!(after("Sun, 06 Nov 1994 08:48:37 GMT"), Some(0));
        assert_eq!(after("999999"), Some(3600));
        assert_eq!(after("soon"), None);
    }

    #[test]
    fn an_answer_is_shown_on_one_line_and_not_at_length() {
        let said = |body: &[u8]| match verdict(500, &[], body) {
            Verdict::Later { why, said, .. } => {
                assert_eq!(why, "http://h answers 500", "a log has none of it");
                said
            }
            other => panic!("{other:?}"),
        };
        let long = said(&[b'x'; 5000]);
        assert!(long.len() < 400 && long.ends_with('…'), "{long}");
        assert!(!said(b"\x1b[31m\xff").contains('\u{1b}'));
    }
}
