//! A DSN as a file has it, where it is not known yet what its placeholders stand for.

use super::syntax::{Setting, pair_settings, url_settings};
use crate::config::placeholder::{Segment, split};

/// What stands around a placeholder's number while the text is split: no character that parts anything.
const MARKS: [char; 2] = ['\u{E000}', '\u{E001}'];

/// Its settings by their names, `scheme` among them where it is a URL, with placeholders as they are written. None: it is
/// nothing that can be split, and any piece of it can be part of the password.
pub(crate) fn written_settings(dsn: &str) -> Option<Vec<(String, String)>> {
    let segments = split(dsn).ok()?;
    let marked: String = segments
        .iter()
        .enumerate()
        .map(|(number, segment)| match segment {
            Segment::Literal(text) => text.clone(),
            Segment::Placeholder(_) => format!("{}{number}{}", MARKS[0], MARKS[1]),
        })
        .collect();
    let written = |text: &str| {
        let mut text = text.to_owned();
        for (number, segment) in segments.iter().enumerate() {
            if let Segment::Placeholder(inside) = segment {
                text = text.replace(&format!("{}{number}{}", MARKS[0], MARKS[1]), &format!("${{{inside}}}"));
            }
        }
        text
    };
    let (scheme, settings) = match marked.split_once("://") {
        Some((scheme, rest)) => (Some(scheme), url_settings(rest, "").ok()?),
        None => (None, pair_settings(&marked, "").ok()?),
    };
    let settings = settings.into_iter().map(|Setting { name, value, .. }| {
        let value = String::from_utf8(value).ok()?;
        Some((written(&name), written(&value)))
    });
    let scheme = scheme.map(|scheme| Some(("scheme".to_owned(), written(scheme))));
    scheme.into_iter().chain(settings).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(dsn: &str) -> Option<String> {
        let settings = written_settings(dsn)?;
        let settings: Vec<_> = settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Some(settings.join(" "))
    }

    #[test]
    fn placeholders_stay_as_they_are_written() {
        let cases = [
            (
                "postgres://u:${file:/run/secrets/p@ss}@${H:-db}:${env:PORT},b/d?sslmode=${M}",
                "scheme=postgres user=u password=${file:/run/secrets/p@ss} host=${H:-db},b port=${env:PORT}, dbname=d sslmode=${M}",
            ),
            ("mysql://u@db", "scheme=mysql user=u host=db"),
            (
                r"host=db password='a\'b ${A B}' dbname=${D}",
                "host=db password=a'b ${A B} dbname=${D}",
            ),
        ];
        for (dsn, expected) in cases {
            assert_eq!(settings(dsn).as_deref(), Some(expected), "{dsn}");
        }
        for dsn in [
            "${DSN}",
            "u:p@ss@db",
            "mysql://u:p@ss@db",
            "mysql://u:p/ss@db",
            "host=db password='x",
            "a${",
        ] {
            assert_eq!(settings(dsn), None, "{dsn}");
        }
    }
}
