//! The page at `/`: made here, whole, without scripts and without anything from elsewhere.

use std::fmt::Write as _;

use super::facts::{Mood, clock, facts, headline, mood};
use super::report::{PipelineReport, Report};

const PAGE: &str = include_str!("page.html");

/// The page of a report.
pub(super) fn render(report: &Report) -> String {
    let ready = report.pipelines.iter().filter(|pipeline| pipeline.ready).count();
    let title = format!("tailpost: {ready} of {} ready", report.pipelines.len());
    let pipelines: String = report.pipelines.iter().map(|one| pipeline(one, report.now)).collect();
    // What was put in is not looked through again: a text of an error could hold a mark.
    let parts = [
        ("<!--title-->", escaped(&title)),
        ("<!--pipelines-->", pipelines),
        ("<!--version-->", escaped(&report.version)),
        ("<!--now-->", clock(report.now)),
    ];
    let mut page = String::new();
    let mut rest = PAGE;
    while let Some((at, mark, text)) = parts
        .iter()
        .filter_map(|(mark, text)| Some((rest.find(mark)?, mark, text)))
        .min_by_key(|(at, ..)| *at)
    {
        page.push_str(&rest[..at]);
        page.push_str(text);
        rest = &rest[at + mark.len()..];
    }
    page + rest
}

fn pipeline(pipeline: &PipelineReport, now: u64) -> String {
    let class = match mood(pipeline) {
        Mood::Good => "good",
        Mood::Waits => "waits",
        Mood::Bad => "bad",
    };
    let (name, headline) = (escaped(&pipeline.name), escaped(&headline(pipeline, now)));
    let mut text = format!("<section>\n<h2>{name} <span class=\"{class}\">{headline}</span></h2>\n<table>\n");
    for fact in facts(pipeline) {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "<tr><th scope=\"row\">{}</th><td>{}</td></tr>",
            escaped(fact.about),
            escaped(&fact.text)
        );
    }
    text + "</table>\n</section>\n"
}

/// As text of an element or of a quoted attribute.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::ready::ReadyBounds;
    use crate::telemetry::report::tests::eventful;

    #[test]
    fn what_it_shows_is_escaped_and_put_in_once() {
        let mut report = Report::of([&*eventful()], &ReadyBounds::default());
        report.pipelines[0].last_error = Some("<script>alert(\"1\")</script> <!--version-->".to_owned());
        let page = render(&report);
        assert!(page.contains("&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt; &lt;!--version--&gt;"));
        assert!(page.contains("connect to &lt;PostgreSQL&gt; &amp; fail"));
        assert!(page.contains("<title>tailpost: 0 of 1 ready</title>"));
        for absent in ["<script", "<!--", "http://", "https://", "src=", "@import", "url("] {
            assert!(!page.contains(absent), "{absent}");
        }
        for fact in facts(&report.pipelines[0]) {
            assert!(
                page.contains(&format!("<th scope=\"row\">{}</th>", fact.about)),
                "{fact:?}"
            );
        }
    }
}
