//! A report as text for a terminal.

use std::fmt::Write as _;

use super::facts::{facts, headline};
use super::report::Report;

/// Columns of what a line is about.
const WIDTH: usize = 18;

/// Each pipeline with a headline and its facts, aligned.
pub fn render(report: &Report) -> String {
    if report.pipelines.is_empty() {
        return "no pipelines\n".to_owned();
    }
    let pipelines = report.pipelines.iter().map(|pipeline| {
        let mut text = format!("{}: {}\n", pipeline.name, headline(pipeline, report.now));
        for fact in facts(pipeline) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {:WIDTH$}  {}", fact.about, fact.text);
        }
        text
    });
    pipelines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::ready::ReadyBounds;
    use crate::telemetry::report::tests::eventful;

    #[test]
    fn every_line_is_aligned_and_says_what_is_known() {
        let report = Report::of([&*eventful()], &ReadyBounds::default());
        let text = render(&report);
        for line in [
            "  ready               no: waiting: connect to <PostgreSQL> & fail",
            "  next retry          attempt 2 of the source in ",
            "  published           12, ",
            "  pending             32.0 KiB of log; events read and waiting: 0",
            "  claimed             3 in flight; with the sink: 2, 900 B",
            "  dead                2 (poison_message 2)",
            "  lag                 28.0 KiB of log; oldest event in flight: ",
            "  acked               0/2000",
            "  server keeps        16.0 MiB of WAL for slot orders_slot, wal_status reserved",
            "  restarts            2",
        ] {
            assert!(
                text.lines().any(|found| found.starts_with(line)),
                "{line} is not in\n{text}"
            );
        }
        assert!(text.starts_with("orders: waiting since "), "{text}");
        assert_eq!(render(&Report::default()), "no pipelines\n");
    }
}
