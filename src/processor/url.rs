//! Where an event goes by a sink whose `url` is a template: what fields bring is encoded, so that it stays one piece of the URL.

use std::fmt::Write as _;
use std::sync::Arc;

use super::error::Problem;
use super::field::Text;
use super::template::{Compiled, Rendering};
use super::topic::TopicNames;
use crate::config::template::Template;

/// The URL of each event.
#[derive(Debug)]
pub(super) struct UrlTemplate<F> {
    template: Compiled<F>,
    /// A run of events to the same URL shares one.
    texts: TopicNames,
}

impl<F> UrlTemplate<F> {
    pub(super) fn new(template: &Template, place: impl FnMut(&[String]) -> F) -> Self {
        Self {
            template: Compiled::new(template, place),
            texts: TopicNames::default(),
        }
    }

    /// The URL, with the fields that `text` finds.
    pub(super) fn url<'a>(
        &mut self,
        mut text: impl FnMut(&F, &str) -> Result<Option<Text<'a>>, Problem>,
    ) -> Result<Arc<str>, Problem> {
        let draft = self.texts.draft();
        let rendering = self.template.render(draft, |place, name| match text(place, name)? {
            // Be they encoded or not, they are steps up and down the path.
            Some(text) if matches!(text.as_str(), "." | "..") => Err(Problem::IllegalUrl { field: name.to_owned() }),
            Some(text) => Ok(Some(Text::Made(encoded(text.as_str())))),
            None => Ok(None),
        })?;
        match rendering {
            Rendering::Whole => Ok(self.texts.text()),
            Rendering::Lacks(name) => Err(Problem::NoUrl { field: name.to_owned() }),
        }
    }
}

/// Percent-encoded but for the characters that RFC 3986 (2.3) leaves to everybody.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            // Writing to a string cannot fail.
            _ => _ = write!(out, "%{byte:02X}"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processor::sample;

    fn url(template: &str, field: Option<&str>) -> Result<Arc<str>, Problem> {
        let mut template = UrlTemplate::new(&sample::template(template), |_| ());
        template.url(|(), _| Ok(field.map(|text| Text::Made(text.to_owned()))))
    }

    #[test]
    fn a_field_stays_one_piece_of_the_url() {
        let to = |field| url("http://h/in/${type}?a=1", Some(field)).unwrap().to_string();
        assert_eq!(to("Order-1.a_b~"), "http://h/in/Order-1.a_b~?a=1");
        assert_eq!(to("a/b?c=d&e#f%20 g"), "http://h/in/a%2Fb%3Fc%3Dd%26e%23f%2520%20g?a=1");
        assert_eq!(to("é\n"), "http://h/in/%C3%A9%0A?a=1");
        assert_eq!(to("..."), "http://h/in/...?a=1");
    }

    #[test]
    fn what_would_be_another_path_is_refused() {
        let field = || "type".to_owned();
        for dots in [".", ".."] {
            assert_eq!(
                url("http://h/${type}", Some(dots)),
                Err(Problem::IllegalUrl { field: field() })
            );
        }
        for none in [None, Some("")] {
            assert_eq!(url("http://h/${type}", none), Err(Problem::NoUrl { field: field() }));
        }
    }
}
