use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::*;
use crate::skip::SkipReason;
use crate::telemetry::report::tests::eventful;

/// Each sample's name with the names of its labels, of a pipeline with something of everything.
pub(in crate::telemetry) fn rendered() -> BTreeMap<String, BTreeSet<String>> {
    let text = render(&[eventful()], &Prefix::default());
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let mut rendered: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for sample in samples {
        let (series, _) = sample.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let labels = labels.trim_end_matches('}').split("\",");
        let labels = labels.filter_map(|label| Some(label.split_once('=')?.0.to_owned()));
        rendered.entry(name.to_owned()).or_default().extend(labels);
    }
    rendered
}

#[test]
fn the_sum_holds_in_every_rendering() {
    let status = PipelineStatus::named(
        "p",
        "k",
        Some("acme".to_owned()),
        Default::default(),
        Default::default(),
    );
    status.count(|totals| {
        totals.received = 10;
        totals.published = 7;
        totals.skipped.add(SkipReason::ForeignPrefix, 2);
    });
    let text = render(&[status], &Prefix::default());
    for line in [
        "tailpost_events_received_total{pipeline=\"p\"} 10",
        "tailpost_events_published_total{pipeline=\"p\",sink=\"k\"} 7",
        "tailpost_events_skipped_total{pipeline=\"p\",reason=\"foreign_prefix\"} 2",
        "tailpost_events_dead_lettered_total{pipeline=\"p\",reason=\"poison_message\"} 0",
        "tailpost_in_flight_events{pipeline=\"p\"} 1.0",
        "tailpost_up{pipeline=\"p\"} 0.0",
        "tailpost_state{pipeline=\"p\",state=\"starting\"} 1.0",
        "tailpost_state{pipeline=\"p\",state=\"paused\"} 0.0",
        "tailpost_pipeline_info{pipeline=\"p\",tenant=\"acme\"} 1",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[test]
fn what_is_rendered_is_what_the_table_says() {
    let rendered = rendered();
    let mut named = BTreeSet::new();
    for metric in METRICS {
        let name = metric.full_name(&Prefix::default());
        let suffixes: &[&str] = match metric.kind() {
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        for suffix in suffixes {
            let sample = format!("{name}{suffix}");
            let Some(labels) = rendered.get(&sample) else {
                panic!("{sample} is not rendered");
            };
            if metric.name != "pipeline_info" {
                let own = ["pipeline"]
                    .iter()
                    .chain(metric.labels)
                    .map(|label| (*label).to_owned());
                let le = (*suffix == "_bucket").then(|| "le".to_owned());
                assert_eq!(*labels, own.chain(le).collect(), "{sample}");
            }
            named.insert(sample);
        }
    }
    assert_eq!(rendered.into_keys().collect::<BTreeSet<_>>(), named);
}

#[test]
fn a_prefix_is_a_name_and_all_metrics_have_it() {
    for text in ["tailpost", "a", "_a", "Shop_relay2"] {
        let prefix: Prefix = text.parse().unwrap();
        let rendered = render(&[eventful()], &prefix);
        let begin = format!("{text}_");
        let mut samples = rendered.lines().filter(|line| !line.starts_with('#'));
        assert!(samples.all(|line| line.starts_with(&begin)), "{rendered}");
    }
    for text in ["", "2a", "a-b", "a.b", "a:b", "a_", "ä", "a b", &"a".repeat(65)] {
        assert!(text.parse::<Prefix>().is_err(), "{text}");
    }
}

const DOCUMENT: &str = "docs/operate.md";
const BEGIN: &str = "<!-- metrics: written by a test of src/telemetry/metrics -->";
const END: &str = "<!-- end of metrics -->";

#[test]
fn the_table_of_the_documentation_is_this_one() {
    let mut table = "| name | kind | unit | meaning |\n|---|---|---|---|\n".to_owned();
    for metric in METRICS {
        let labels = match metric.labels {
            [] => String::new(),
            labels => format!("{{{}}}", labels.join(", ")),
        };
        let name = metric.full_name(&Prefix::default());
        let (kind, unit, help) = (metric.kind(), metric.unit, metric.help);
        writeln!(table, "| `{name}{labels}` | {kind} | {unit} | {help} |").unwrap();
    }
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(DOCUMENT);
    let document = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = document.split_once(BEGIN).expect(BEGIN);
    let (_, after) = rest.split_once(END).expect(END);
    let wanted = format!("{before}{BEGIN}\n\n{table}\n{END}{after}");
    if std::env::var_os("TAILPOST_TEST_ACCEPT").is_some_and(|value| value == "1") {
        std::fs::write(&path, wanted).unwrap();
        return;
    }
    assert!(
        document == wanted,
        "{DOCUMENT} has other metrics; with TAILPOST_TEST_ACCEPT=1 this test writes its table"
    );
}
