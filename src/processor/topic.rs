//! Where an event goes: the steps by which an outbox event finds its topic, and Kafka's rule for a topic's name.
//!
//! What a route does not match has no topic but one that the processor itself names: neither the event's own field, which is there
//! for something else perhaps, nor the sink's template, which is for all that comes, may hide it.

use std::fmt;
use std::sync::Arc;

use super::error::{Problem, TopicFault};
use super::field::{FieldPath, Fields, Names, Slot, named_text};
use super::place::{Facts, OutboxPlace, is_fact};
use super::template::{Compiled, Rendering};
use crate::config::route::Rewrite;
use crate::config::template::Template;

/// Kafka's bound on a topic's name.
const MAX_BYTES: usize = 249;

/// The steps of an outbox event to its topic, the first that has a text being taken.
#[derive(Debug)]
pub(super) struct TopicCascade {
    pub(super) own: Option<OwnTopic>,
    /// None: the event's own field does not count.
    pub(super) column: Option<Slot>,
    pub(super) default_topic: Option<String>,
    pub(super) sink: SinkTopic,
    /// Only the first two steps count.
    pub(super) strict: bool,
    pub(super) names: TopicNames,
}

/// The last step.
#[derive(Debug)]
pub(super) enum SinkTopic {
    None,
    /// For ordinary changes alone.
    OfTables,
    Template(Compiled<OutboxPlace>),
}

impl SinkTopic {
    /// Beside ordinary tables, a template that takes from an event no more than what is said of each change is made for their
    /// topics: an outbox event would be among the changes of rows there. A plain text is meant for all.
    pub(super) fn new(topic: Option<&Template>, has_tables: bool, names: &mut Names) -> Self {
        match topic {
            None => Self::None,
            Some(topic) if has_tables && !topic.is_constant() && topic.fields().all(is_fact) => Self::OfTables,
            Some(topic) => Self::Template(Compiled::new(topic, |path| OutboxPlace::new(path, names))),
        }
    }
}

/// The first step.
#[derive(Debug)]
pub(super) enum OwnTopic {
    Template(Compiled<FieldPath>),
    Route { by: Slot, rewrite: Rewrite },
}

impl OwnTopic {
    /// Appends the topic to `draft`, of which nothing is to be used if it is not whole; or says why there is none.
    fn append<'a>(
        &'a self,
        fields: &Fields<'_>,
        columns: &'a Names,
        draft: &mut String,
    ) -> Result<Option<Lack<'a>>, Problem> {
        match self {
            Self::Template(template) => {
                let rendering = template.render(draft, |place, name| named_text(fields.at(place), name))?;
                Ok(match rendering {
                    Rendering::Whole => None,
                    Rendering::Lacks(name) => Some(Lack::Template(name)),
                })
            }
            Self::Route { by, rewrite } => {
                let name = columns.name(*by);
                // An empty text is for the expression to take or not.
                Ok(match named_text(fields.field(*by), name)? {
                    None => Some(Lack::Route(name)),
                    Some(text) if rewrite.append(text.as_str(), draft) => None,
                    Some(_) => Some(Lack::Match(name)),
                })
            }
        }
    }
}

/// Why the first step gives no topic. A text only where it is told: most events that lack it have their topic by a later step.
#[derive(Debug, Clone, Copy, thiserror::Error)]
enum Lack<'a> {
    #[error("the processor has no `topic`")]
    Nothing,
    #[error("the processor's `topic` finds no text in `{0}`")]
    Template(&'a str),
    #[error("the processor's `route` finds no text in `{0}`")]
    Route(&'a str),
    #[error("the processor's `route.regex` does not match what is in `{0}`")]
    Match(&'a str),
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Own,
    Column(Slot),
    Default,
    Sink,
}

impl TopicCascade {
    /// The event's topic. A name that Kafka does not allow ends the search: a later step would hide the mistake.
    pub(super) fn topic<'a>(
        &mut self,
        fields: &Fields<'a>,
        facts: Facts<'a>,
        columns: &Names,
    ) -> Result<Arc<str>, Problem> {
        let step = self.draft(fields, facts, columns)?;
        self.names.name().map_err(|fault| Problem::IllegalTopic {
            origin: self.origin(step, columns),
            fault,
        })
    }

    fn draft<'a>(&mut self, fields: &Fields<'a>, facts: Facts<'a>, columns: &Names) -> Result<Step, Problem> {
        let lack = match &self.own {
            None => Lack::Nothing,
            Some(own) => match own.append(fields, columns, self.names.draft())? {
                None => return Ok(Step::Own),
                Some(lack) => lack,
            },
        };
        let draft = self.names.draft();
        if let Some(column) = self.column
            && let Some(topic) = named_text(fields.field(column), columns.name(column))?
        {
            draft.push_str(topic.as_str());
        }
        if let (Some(column), false) = (self.column, draft.is_empty()) {
            return Ok(Step::Column(column));
        }
        let tried = |last: Option<String>| {
            let second = self
                .column
                .map(|column| format!("there is none in `{}`", columns.name(column)));
            listed([Some(lack.to_string()), second, last].into_iter().flatten().collect())
        };
        if self.strict {
            let later = match self.own {
                Some(OwnTopic::Route { .. }) => "`default_topic`",
                Some(OwnTopic::Template(_)) | None => "`default_topic` and the sink's `topic`",
            };
            return Err(Problem::StrictTopic {
                tried: tried(None),
                later,
            });
        }
        if let Some(topic) = &self.default_topic {
            draft.push_str(topic);
            return Ok(Step::Default);
        }
        if let Some(OwnTopic::Route { .. }) = self.own {
            return Err(Problem::NotRouted { tried: tried(None) });
        }
        let last = match &self.sink {
            SinkTopic::None => "the sink has no `topic`".to_owned(),
            SinkTopic::OfTables => {
                "the sink's `topic` takes no field of the event, so that it is for the source's `tables`".to_owned()
            }
            SinkTopic::Template(template) => {
                match template.render(draft, |place, name| place.text(fields, facts, name))? {
                    Rendering::Whole => return Ok(Step::Sink),
                    Rendering::Lacks(name) => format!("the sink's `topic` finds none in `{name}`"),
                }
            }
        };
        Err(Problem::NoTopic {
            tried: tried(Some(last)),
        })
    }

    fn origin(&self, step: Step, columns: &Names) -> String {
        match step {
            Step::Own => match &self.own {
                Some(OwnTopic::Template(template)) => format!("the processor's `topic: {}`", template.source()),
                Some(OwnTopic::Route { .. }) | None => "the processor's `route`".to_owned(),
            },
            Step::Column(column) => format!("the field `{}`", columns.name(column)),
            Step::Default => "`default_topic`".to_owned(),
            Step::Sink => match &self.sink {
                SinkTopic::Template(template) => format!("the sink's `topic: {}`", template.source()),
                SinkTopic::None | SinkTopic::OfTables => "the sink's `topic`".to_owned(),
            },
        }
    }
}

/// What was tried, as one text.
fn listed(mut tried: Vec<String>) -> String {
    let last = tried.pop().unwrap_or_default();
    match tried.as_slice() {
        [] => last,
        [first] => format!("{first} and {last}"),
        before => format!("{}, and {last}", before.join(", ")),
    }
}

/// Hands out topic names that Kafka allows; a run of events to the same topic shares one.
#[derive(Default)]
pub(super) struct TopicNames {
    draft: String,
    last: Option<Arc<str>>,
}

/// Without the draft, which may be a refused one: cells that are no topic's name.
impl fmt::Debug for TopicNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopicNames")
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}

impl TopicNames {
    /// An empty text, to write a name into for [`Self::name`].
    pub(super) fn draft(&mut self) -> &mut String {
        self.draft.clear();
        &mut self.draft
    }

    /// The name that was written.
    pub(super) fn name(&mut self) -> Result<Arc<str>, TopicFault> {
        if self.last.as_ref().is_none_or(|last| **last != *self.draft) {
            check(&self.draft)?;
        }
        Ok(self.text())
    }

    /// What was written, be it a topic's name or not.
    pub(super) fn text(&mut self) -> Arc<str> {
        if let Some(last) = self.last.as_ref().filter(|last| ***last == *self.draft) {
            return Arc::clone(last);
        }
        let text = Arc::from(self.draft.as_str());
        self.last = Some(Arc::clone(&text));
        text
    }
}

fn check(name: &str) -> Result<(), TopicFault> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    match name {
        "" => Err(TopicFault::Empty),
        "." | ".." => Err(TopicFault::Dots),
        _ if name.len() > MAX_BYTES => Err(TopicFault::TooLong { bytes: name.len() }),
        _ if !name.bytes().all(allowed) => Err(TopicFault::Character),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> Result<Arc<str>, TopicFault> {
        let mut names = TopicNames::default();
        names.draft().push_str(text);
        names.name()
    }

    #[test]
    fn names_that_kafka_refuses_are_refused_here() {
        assert_eq!(name(""), Err(TopicFault::Empty));
        assert_eq!(name("."), Err(TopicFault::Dots));
        assert_eq!(name(".."), Err(TopicFault::Dots));
        assert_eq!(name(&"a".repeat(250)), Err(TopicFault::TooLong { bytes: 250 }));
        for text in [" ", "a b", "a/b", "é", "a\0", "a\n", "${a}"] {
            assert_eq!(name(text), Err(TopicFault::Character), "{text:?}");
        }
        for text in ["...", "a", "A.b_c-9", &"a".repeat(249)] {
            assert_eq!(name(text).as_deref(), Ok(text));
        }
    }

    #[test]
    fn a_run_of_one_topic_shares_its_name() {
        let mut names = TopicNames::default();
        let mut next = |text: &str| {
            names.draft().push_str(text);
            names.name()
        };
        let (first, again) = (next("a").unwrap(), next("a").unwrap());
        assert!(Arc::ptr_eq(&first, &again));
        assert_eq!(next("b c"), Err(TopicFault::Character));
        assert_eq!(next("b").as_deref(), Ok("b"));
    }

    proptest! {
        #[test]
        fn a_name_is_legal_or_refused(text in any::<String>()) {
            if let Ok(name) = name(&text) {
                prop_assert!((1..=249).contains(&name.len()));
                prop_assert!(name.bytes().all(|byte| b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-".contains(&byte)));
                prop_assert!(&*name != "." && &*name != "..");
            }
        }
    }
}
