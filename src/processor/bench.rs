//! What `benches/micro` measures of single steps. Only with the feature `bench`, which no release has.

use super::field::Text;
use super::json;
use super::template::{Compiled, Rendering};
use crate::config::template::Template;

/// Splits a JSON object into its members; how many there are.
pub fn split(text: &str) -> Option<usize> {
    let mut count = 0;
    json::for_each_member(text, |_, _| count += 1).ok()?;
    Some(count)
}

/// A template as it is when the pipeline runs.
pub struct Rendered(Compiled<()>);

impl Rendered {
    pub fn new(template: &Template) -> Self {
        Self(Compiled::new(template, |_| ()))
    }

    /// Renders it with the same text for each field. False: a field has none.
    pub fn render(&self, text: &str, out: &mut String) -> bool {
        out.clear();
        let rendering = self.0.render(out, |(), _| Ok(Some(Text::Plain(text))));
        rendering == Ok(Rendering::Whole)
    }
}
