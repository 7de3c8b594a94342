//! The chain of transforms, and to which topics each applies by its predicate.

use super::captured::EVERY_TABLE;
use super::names;
use super::settings::{Given, Settings, list};
use super::work::Work;
use crate::convert::report::Fate;

/// One transform of the chain.
#[derive(Clone)]
pub(super) struct Transform {
    pub(super) alias: String,
    pub(super) class: String,
    /// Its `type`, as the file has it.
    pub(super) option: String,
    pub(super) settings: Settings,
    pub(super) predicate: Option<Predicate>,
}

impl Transform {
    /// Whether a router has columns beside key and payload in its records.
    pub(super) fn places_columns(&self) -> bool {
        self.settings.get("table.fields.additional.placement").is_some()
    }
}

/// On which records a transform works.
#[derive(Clone)]
pub(super) struct Predicate {
    /// The option that names it.
    pub(super) option: String,
    is_negated: bool,
    condition: Condition,
}

#[derive(Clone)]
enum Condition {
    /// An expression for the whole of the topic's name.
    Topic(String),
    /// No value, as no row of an outbox is.
    Tombstone,
    Other(String),
}

const TOPIC_NAME_MATCHES: &str = ".TopicNameMatches";
const RECORD_IS_TOMBSTONE: &str = ".RecordIsTombstone";

impl Predicate {
    /// Whether it lets the records of a topic in. None: nothing here can tell.
    pub(super) fn takes(&self, topic: &str) -> Option<bool> {
        match &self.condition {
            Condition::Topic(expression) => Some(names::matches(expression, topic)? != self.is_negated),
            Condition::Tombstone => Some(self.is_negated),
            Condition::Other(_) => None,
        }
    }

    /// The patterns of tables whose topics it lets in, below this prefix.
    pub(super) fn tables(&self, prefix: &str) -> Option<Vec<String>> {
        match &self.condition {
            Condition::Topic(expression) if !self.is_negated => names::tables_of_topics(expression, prefix),
            Condition::Tombstone if self.is_negated => Some(vec![EVERY_TABLE.to_owned()]),
            Condition::Tombstone => Some(Vec::new()),
            Condition::Topic(_) | Condition::Other(_) => None,
        }
    }

    /// For messages.
    pub(super) fn described(&self) -> String {
        let not = if self.is_negated { "not " } else { "" };
        match &self.condition {
            Condition::Topic(expression) => format!("{not}topics that match `{expression}`"),
            Condition::Tombstone => format!("{not}tombstones"),
            Condition::Other(class) => format!("{not}by {class}"),
        }
    }
}

/// Takes the chain with everything that belongs to it.
pub(super) fn take(work: &mut Work) -> Vec<Transform> {
    let mut transforms = Vec::new();
    if let Some(chain) = work.take("transforms") {
        for alias in list(&chain.value) {
            let prefix = format!("transforms.{alias}.");
            let mut settings = Settings::default();
            for (name, given) in work.settings.take_under(&prefix) {
                settings.insert(name, given.option, &given.value);
            }
            let Some(class) = settings.take("type") else {
                work.not_possible(
                    &chain.option,
                    format!("`{alias}` has no `{prefix}type`: it does nothing"),
                );
                continue;
            };
            transforms.push(Transform {
                alias: alias.to_owned(),
                class: class.value,
                option: class.option,
                predicate: take_predicate(work, &mut settings),
                settings,
            });
        }
        work.not_needed(
            &chain.option,
            "one processor a router: the chain's parts are told below",
        );
    }
    forget_unused(work);
    transforms
}

fn take_predicate(work: &mut Work, settings: &mut Settings) -> Option<Predicate> {
    let negate = settings.take("negate");
    let Some(name) = settings.take("predicate") else {
        if let Some(negate) = negate {
            work.not_needed(&negate.option, "there is no predicate that it could turn around");
        }
        return None;
    };
    let is_negated = negate.as_ref().is_some_and(|negate| negate.is("true"));
    if let Some(negate) = negate {
        work.not_needed(&negate.option, "told of with its predicate");
    }
    // Others may name it too, so it stays.
    let option = |end: &str| format!("predicates.{}.{end}", name.value);
    let class = work.settings.get(&option("type")).map(|given| given.value.clone());
    let pattern = work.settings.get(&option("pattern")).map(|given| given.value.clone());
    let condition = match (class, pattern) {
        (Some(class), Some(pattern)) if class.ends_with(TOPIC_NAME_MATCHES) => Condition::Topic(pattern),
        (Some(class), _) if class.ends_with(RECORD_IS_TOMBSTONE) => Condition::Tombstone,
        (class, _) => Condition::Other(class.unwrap_or_else(|| name.value.clone())),
    };
    Some(Predicate {
        option: name.option,
        is_negated,
        condition,
    })
}

/// Transforms and predicates that no chain names do nothing there either; predicates that one names were read above.
fn forget_unused(work: &mut Work) {
    let unused: Vec<(String, Given)> = work.settings.take_under("transforms.");
    for (_, given) in unused {
        work.not_needed(&given.option, "`transforms` does not name it: without effect there too");
    }
    if let Some(given) = work.take("predicates") {
        work.not_needed(&given.option, "predicates are told of below");
    }
    for (_, given) in work.settings.take_under("predicates.") {
        work.report
            .add(Fate::Taken, given.option, "decides which outboxes a processor takes");
    }
}
