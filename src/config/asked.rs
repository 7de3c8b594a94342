//! What the readers asked a file for, so that tests can hold it against the description in `schema`. Elsewhere it is nothing.

#[cfg(test)]
use std::cell::RefCell;
#[cfg(test)]
use std::rc::Rc;

use super::schema::Takes;

/// A record of questions. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Asked {
    #[cfg(test)]
    pub(super) questions: Rc<RefCell<Vec<Question>>>,
}

/// One question, with the dotted path of what it was about.
#[cfg(test)]
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Question {
    /// Is there this key in the mapping?
    Key {
        mapping: String,
        name: &'static str,
        is_required: bool,
    },
    /// What is the value, which must be of this kind?
    Value { path: String, takes: Takes },
}

#[cfg(test)]
impl Asked {
    pub(super) fn key(&self, mapping: &str, name: &'static str, is_required: bool) {
        self.questions.borrow_mut().push(Question::Key {
            mapping: mapping.to_owned(),
            name,
            is_required,
        });
    }

    pub(super) fn value(&self, path: &str, takes: impl FnOnce() -> Takes) {
        self.questions.borrow_mut().push(Question::Value {
            path: path.to_owned(),
            takes: takes(),
        });
    }
}

#[cfg(not(test))]
impl Asked {
    pub(super) fn key(&self, _mapping: &str, _name: &'static str, _is_required: bool) {}

    pub(super) fn value(&self, _path: &str, _takes: impl FnOnce() -> Takes) {}
}
