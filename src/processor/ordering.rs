//! Among which events a sink keeps order.

use super::template::Compiled;
use crate::config::pipeline;

/// A sink's wish, whose placeholders are `F`, a place where a field is found.
#[derive(Debug)]
pub(super) enum Ordering<F> {
    Key,
    Template(Compiled<F>),
    Source,
    Unordered,
}

impl<F> Ordering<F> {
    pub(super) fn new(ordering: &pipeline::Ordering, place: impl FnMut(&[String]) -> F) -> Self {
        match ordering {
            pipeline::Ordering::Key => Self::Key,
            pipeline::Ordering::Template(template) => Self::Template(Compiled::new(template, place)),
            pipeline::Ordering::Source => Self::Source,
            pipeline::Ordering::Unordered => Self::Unordered,
        }
    }
}
