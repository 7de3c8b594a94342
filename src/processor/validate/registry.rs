//! The schemas of a registry, as far as they are known, and the one that an event waits for.
//!
//! An answer that cannot change is kept until there is no room for it. One that can, of `latest` or of what is missing, is asked
//! for again when it has grown old, and before an event is refused by it.

use std::fmt;
use std::sync::Arc;

use hashlink::LruCache;

use super::field_text;
use crate::config::SchemaRegistry;
use crate::processor::field::{FieldPath, Fields, Names, Text};
use crate::processor::template::{Compiled, Rendering};
use crate::schema_registry::{Answer, Known, Question, SchemaId, Version};

/// The most answers that are kept.
const MOST_KNOWN: usize = 1000;
/// The most bytes of a subject. A longer one is none that a registry has.
const LONGEST_SUBJECT: usize = 1024;

/// See the module's text.
pub(super) struct RegistrySchemas {
    registry: Arc<SchemaRegistry>,
    /// None: the event's type.
    subject: Option<Subject>,
    known: LruCache<SchemaId, Kept>,
    /// What was found last.
    last: Option<SchemaId>,
    question: Option<Question>,
    /// The event at hand has its answer, which stands.
    is_answered: bool,
}

struct Subject {
    template: Compiled<FieldPath>,
    fields: Vec<FieldPath>,
}

struct Kept {
    answer: Answer,
    is_old: bool,
}

impl Kept {
    fn can_change(&self, id: &SchemaId) -> bool {
        id.version == Version::Latest || !matches!(self.answer, Answer::Schema(_))
    }
}

impl RegistrySchemas {
    pub(super) fn new(registry: &Arc<SchemaRegistry>, names: &mut Names) -> Self {
        let subject = registry.subject.as_ref().map(|template| {
            let mut fields = Vec::new();
            let template = Compiled::new(template, |path| {
                fields.push(names.path(path));
                names.path(path)
            });
            Subject { template, fields }
        });
        Self {
            registry: Arc::clone(registry),
            subject,
            known: LruCache::new(MOST_KNOWN),
            last: None,
            question: None,
            is_answered: false,
        }
    }

    pub(super) fn registry(&self) -> &Arc<SchemaRegistry> {
        &self.registry
    }

    /// The fields of an event that its subject is made of, beside its type.
    pub(super) fn fields(&self) -> &[FieldPath] {
        self.subject.as_ref().map_or(&[], |subject| &subject.fields)
    }

    /// An event's subject.
    ///
    /// # Errors
    /// What it lacks, in words.
    pub(super) fn subject(&self, fields: &Fields<'_>, event_type: Option<&str>) -> Result<String, String> {
        let Some(subject) = &self.subject else {
            return event_type
                .map(str::to_owned)
                .ok_or_else(|| "an event without a type".to_owned());
        };
        let mut text = String::new();
        let rendering = subject.template.render(&mut text, |path, _| {
            let text = field_text(fields, path);
            Ok(text.map(|text| Text::Made(text.into_owned())))
        });
        match rendering {
            Ok(Rendering::Whole) => Ok(text),
            Ok(Rendering::Lacks(field)) => Err(format!("an event without `{field}`")),
            // Nothing above says so.
            Err(problem) => Err(problem.to_string()),
        }
    }

    /// What the registry has. None: an event has to wait for it.
    pub(super) fn find(&mut self, id: SchemaId) -> Option<Answer> {
        // They would be another path.
        let is_legal = !matches!(id.subject.as_str(), "" | "." | "..") && id.subject.len() <= LONGEST_SUBJECT;
        if !is_legal {
            self.last = None;
            return Some(Answer::Missing);
        }
        let known = match self.known.get(&id) {
            Some(kept) if !kept.is_old || self.is_answered => {
                let answer = kept.answer.clone();
                self.last = Some(id);
                return Some(answer);
            }
            Some(_) => Known::Old,
            None => Known::Nothing,
        };
        self.ask(id, known);
        None
    }

    /// Whether the answer that was found last can be another by now, before an event is refused by it. If so, the event has to wait.
    pub(super) fn doubt(&mut self) -> bool {
        let Some(id) = self.last.take().filter(|_| !self.is_answered) else {
            return false;
        };
        let can_change = self.known.get(&id).is_some_and(|kept| kept.can_change(&id));
        if can_change {
            self.ask(id, Known::Doubted);
        }
        can_change
    }

    fn ask(&mut self, id: SchemaId, known: Known) {
        let registry = Arc::clone(&self.registry);
        self.question = Some(Question { registry, id, known });
    }

    /// The event at hand has gone its way.
    pub(super) fn is_done(&mut self) {
        self.is_answered = false;
    }

    pub(super) fn question(&self) -> Option<&Question> {
        self.question.as_ref()
    }

    pub(super) fn answer(&mut self, answer: Answer) {
        let Some(Question { id, .. }) = self.question.take() else {
            return;
        };
        self.is_answered = true;
        match (answer, self.known.get_mut(&id)) {
            (Answer::Unchanged, Some(kept)) => kept.is_old = false,
            // There is nothing that it could be.
            (Answer::Unchanged, None) => {}
            (answer, _) => {
                let kept = Kept { answer, is_old: false };
                self.known.insert(id, kept);
            }
        }
    }

    /// What can change is to be asked for again.
    pub(super) fn age(&mut self) {
        for (id, kept) in self.known.iter_mut() {
            kept.is_old = kept.can_change(id);
        }
    }
}

impl fmt::Debug for RegistrySchemas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistrySchemas")
            .field("url", &self.registry.url.as_str())
            .field("known", &self.known.len())
            .field("question", &self.question)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
