//! deploy/prometheus and deploy/grafana: they name only what `/metrics` renders, and the rules have the command's limits.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use promql_parser::parser::{self, Expr, VectorSelector};
use serde_json::Value;

use super::*;
use crate::telemetry::metrics::tests::rendered;
use crate::telemetry::status::State;

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Each rule's name with its expression and the time for which it must hold.
fn rules() -> BTreeMap<String, (String, Option<String>)> {
    let file: Value = serde_yaml::from_str(&read("deploy/prometheus/tailpost.rules.yaml")).unwrap();
    let rules = file["groups"].as_array().unwrap().iter();
    let rules = rules.flat_map(|group| group["rules"].as_array().unwrap());
    rules
        .map(|rule| {
            let text = |key: &str| rule[key].as_str().map(str::to_owned);
            (text("alert").unwrap(), (text("expr").unwrap(), text("for")))
        })
        .collect()
}

/// Each panel's expressions, with Grafana's own variables filled in.
fn panels() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read("deploy/grafana/tailpost.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let expressions = targets.map(|target| target["expr"].as_str().unwrap());
    expressions
        .map(|text| text.replace("$__range", "1h").replace("$__rate_interval", "5m"))
        .collect()
}

fn parsed(text: &str) -> Expr {
    parser::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The series that an expression reads, and the labels that it groups by.
#[derive(Debug, Default)]
struct Reads<'e> {
    selectors: Vec<&'e VectorSelector>,
    grouped_by: Vec<&'e str>,
}

impl<'e> Reads<'e> {
    fn of(expr: &'e Expr) -> Self {
        let mut reads = Self::default();
        reads.add(expr);
        reads
    }

    fn add(&mut self, expr: &'e Expr) {
        match expr {
            Expr::Aggregate(aggregate) => {
                if let Some(parser::LabelModifier::Include(labels) | parser::LabelModifier::Exclude(labels)) =
                    &aggregate.modifier
                {
                    self.grouped_by.extend(labels.labels.iter().map(String::as_str));
                }
                self.add(&aggregate.expr);
            }
            Expr::Binary(binary) => {
                self.add(&binary.lhs);
                self.add(&binary.rhs);
            }
            Expr::Call(call) => call.args.args.iter().for_each(|argument| self.add(argument)),
            Expr::Paren(inner) => self.add(&inner.expr),
            Expr::Unary(inner) => self.add(&inner.expr),
            Expr::Subquery(inner) => self.add(&inner.expr),
            Expr::MatrixSelector(matrix) => self.selectors.push(&matrix.vs),
            Expr::VectorSelector(vector) => self.selectors.push(vector),
            Expr::NumberLiteral(_) | Expr::StringLiteral(_) | Expr::Extension(_) => {}
        }
    }
}

#[test]
fn every_expression_reads_metrics_and_labels_that_there_are() {
    let rendered = rendered();
    let rules = rules();
    let expressions = rules.values().map(|(expr, _)| expr.clone()).chain(panels());
    let mut count = 0;
    for text in expressions {
        let expr = parsed(&text);
        let reads = Reads::of(&expr);
        let mut labels: BTreeSet<&str> = BTreeSet::new();
        for selector in &reads.selectors {
            let name = selector.name.as_deref().unwrap_or_else(|| panic!("no name in {text}"));
            let known = rendered
                .get(name)
                .unwrap_or_else(|| panic!("there is no {name}: {text}"));
            labels.extend(known.iter().map(String::as_str));
            for matcher in &selector.matchers.matchers {
                assert!(
                    known.contains(&matcher.name),
                    "{name} has no label {}: {text}",
                    matcher.name
                );
                if matcher.name == "state" {
                    let mut states = matcher.value.split('|');
                    assert!(states.all(|state| State::NAMES.contains(&state)), "{text}");
                }
            }
            count += 1;
        }
        for label in reads.grouped_by {
            assert!(labels.contains(label), "nothing of {text} has the label {label}");
        }
    }
    assert!(count > 25, "{count}");
}

#[test]
fn the_legends_and_annotations_use_labels_that_there_are() {
    let dashboard: Value = serde_json::from_str(&read("deploy/grafana/tailpost.json")).unwrap();
    let targets = dashboard["panels"].as_array().unwrap().iter();
    for target in targets.flat_map(|panel| panel["targets"].as_array().unwrap()) {
        let (legend, text) = (
            target["legendFormat"].as_str().unwrap(),
            target["expr"].as_str().unwrap(),
        );
        for label in legend.split("{{").skip(1).filter_map(|rest| rest.split_once("}}")) {
            let is_kept = label.0 == "pipeline" || text.contains(&format!("{}) (", label.0)) || label.0 == "state";
            assert!(is_kept, "{legend} of {text}");
        }
    }
    for line in read("deploy/prometheus/tailpost.rules.yaml").lines() {
        for label in line.split("$labels.").skip(1) {
            assert!(label.starts_with("pipeline "), "{line}");
        }
    }
}

#[test]
fn there_is_a_rule_for_each_alert_of_the_command_with_its_limit() {
    let rules = rules();
    let name = |kind: Kind| {
        let words = kind.name().split('_').map(|word| word[..1].to_uppercase() + &word[1..]);
        format!("Tailpost{}", words.collect::<String>())
    };
    let names: BTreeSet<String> = Kind::ALL.into_iter().map(name).collect();
    assert_eq!(names, rules.keys().cloned().collect());

    let limit_of = |kind: Kind| {
        let (text, _) = &rules[&name(kind)];
        let expr = parsed(text);
        let Expr::Binary(comparison) = &expr else {
            panic!("{text} is no comparison")
        };
        assert_eq!(comparison.op.to_string(), ">=", "{text}");
        match &*comparison.rhs {
            Expr::NumberLiteral(number) => number.val,
            other => panic!("{text} compares with {other}"),
        }
    };
    let default = Thresholds::default();
    let count = |limit: Limit<u64>| match limit {
        Limit::At(count) => count as f64,
        Limit::Off => f64::INFINITY,
    };
    let seconds = |limit: Limit<Duration>| match limit {
        Limit::At(age) => age.as_secs_f64(),
        Limit::Off => f64::INFINITY,
    };
    assert_eq!(limit_of(Kind::DeadLetters), count(default.dead_letters));
    assert_eq!(limit_of(Kind::Restarts), count(default.restarts));
    assert_eq!(limit_of(Kind::PendingEvents), count(default.pending_events));
    assert_eq!(limit_of(Kind::OldestUnpublished), seconds(default.oldest_unpublished));
    assert_eq!(limit_of(Kind::Stalled), seconds(default.stalled));
    assert_eq!(limit_of(Kind::Lag), count(default.lag));
    let Limit::At(stalled) = default.stalled else {
        panic!("off")
    };
    let down_for = rules[&name(Kind::Down)].1.clone();
    assert_eq!(down_for, Some(show_duration(stalled)));
}
