//! `spec.audit` and `spec.dispatches`.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use reqwest::Url;

use super::kind::{Kinds, require_kind};
use super::template::read_change_template;
use crate::audit::LINK_NAMES;
use crate::config::pipeline::{Audit, AuditNames, Dispatches};
use crate::config::reader::{Field, Read, Reader, optional};
use crate::config::shown::quoted;
use crate::config::template::Template;
use crate::http_client::parse_url;

pub(in crate::config) const MAX_SIZES: RangeInclusive<u64> = 64 * 1024..=1 << 40;
pub(in crate::config) const DEFAULT_MAX_SIZE: u64 = 64 * 1024 * 1024;
pub(in crate::config) const KEPT: RangeInclusive<i64> = 1..=100_000;
/// What the first line of a file has beside what ends each line.
const CONTINUES: &str = "continues";

pub(super) fn read(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Audit> {
    let mut mapping = reader.mapping(field)?;
    let path = reader
        .require(&mut mapping, "path", "the file that lines are added to")
        .and_then(|field| reader.filled(&field));
    let names = optional(mapping.take("names"), |field| read_names(reader, field));
    let taken = names
        .as_ref()
        .ok()
        .and_then(Option::as_ref)
        .cloned()
        .unwrap_or_default();
    let fields = optional(mapping.take("fields"), |field| read_fields(reader, field, &taken));
    let max_size = optional(mapping.take("max_size"), |field| reader.size(field, MAX_SIZES));
    let keep = optional(mapping.take("keep"), |field| reader.integer(field, KEPT));
    reader.finish(mapping);
    Ok(Audit {
        path: PathBuf::from(path?),
        fields: fields?.unwrap_or_default(),
        names: names?.unwrap_or_default(),
        max_size: max_size?.unwrap_or(DEFAULT_MAX_SIZE),
        keep: keep?.and_then(|keep| usize::try_from(keep).ok()),
    })
}

/// Names that lines have already, for the chain.
fn is_reserved(name: &str) -> bool {
    LINK_NAMES.contains(&name) || name == CONTINUES
}

fn read_names(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<AuditNames> {
    let mut mapping = reader.mapping(field)?;
    let default = AuditNames::default();
    let mut name = |key: &'static str, default: String| {
        let name = optional(mapping.take(key), |field| {
            let name = reader.filled(field)?;
            match is_reserved(&name) {
                true => {
                    let message = format!("`{name}` is of each line's end, the chain: expected another name");
                    Err(reader.refuse(field, message))
                }
                false => Ok(name),
            }
        });
        name.map(|name| name.unwrap_or(default))
    };
    let names = (
        name("outbox_id", default.outbox_id),
        name("event_name", default.event_name),
        name("sink", default.sink),
        name("status", default.status),
        name("reason", default.reason),
        name("attempt", default.attempt),
        name("last_error", default.last_error),
        name("position", default.position),
        name("duplicate", default.duplicate),
        name("time", default.time),
    );
    reader.finish(mapping);
    let names = AuditNames {
        outbox_id: names.0?,
        event_name: names.1?,
        sink: names.2?,
        status: names.3?,
        reason: names.4?,
        attempt: names.5?,
        last_error: names.6?,
        position: names.7?,
        duplicate: names.8?,
        time: names.9?,
    };
    let mut seen = BTreeSet::new();
    let twice = names.all().into_iter().find(|name| !seen.insert(*name));
    if let Some(twice) = twice {
        let message = format!("two members are called `{twice}`: expected a name for each");
        return Err(reader.refuse(field, message));
    }
    Ok(names)
}

fn read_fields(reader: &mut Reader<'_>, field: &Field<'_>, names: &AuditNames) -> Read<Vec<(String, Template)>> {
    let mut mapping = reader.mapping(field)?;
    let fields: Vec<_> = mapping
        .take_all()
        .map(|(name, field)| {
            let template = read_change_template(reader, &field);
            if is_reserved(name) || names.all().contains(&name) {
                let message = format!(
                    "each line has a member `{name}` already: expected another name, or another one in `names`"
                );
                return Err(reader.refuse(&field, message));
            }
            Ok((name.to_owned(), template?))
        })
        .collect();
    fields.into_iter().collect()
}

pub(super) fn read_dispatches(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Dispatches> {
    #[derive(Clone, Copy)]
    enum Type {
        File,
        Stdout,
        Otlp,
    }
    let mut mapping = reader.mapping(field)?;
    let kinds = Kinds {
        here: &[("file", Type::File), ("stdout", Type::Stdout), ("otlp", Type::Otlp)],
        later: &[],
        elsewhere: &[],
    };
    let kind_field = mapping.peek("type");
    let kind = require_kind(reader, &mut mapping, "type of dispatch records", &kinds);
    kind.read(|kind| match kind {
        Some(Type::Stdout) => {
            reader.finish(mapping);
            Ok(Dispatches::Stdout)
        }
        Some(Type::Otlp) => {
            let config = mapping.take("config");
            reader.finish(mapping);
            let endpoint = optional(config, |config| read_endpoint(reader, config));
            require_otlp(reader, kind_field.as_ref().unwrap_or(field))?;
            Ok(Dispatches::Otlp {
                endpoint: endpoint?.flatten(),
            })
        }
        Some(Type::File) | None => {
            let config = reader.require(&mut mapping, "config", "a mapping with a path");
            reader.finish(mapping);
            let config = config?;
            let mut mapping = reader.mapping(&config)?;
            let path = reader
                .require(&mut mapping, "path", "the file that records are added to")
                .and_then(|field| reader.filled(&field));
            reader.finish(mapping);
            Ok(Dispatches::File(PathBuf::from(path?)))
        }
    })
}

fn read_endpoint(reader: &mut Reader<'_>, config: &Field<'_>) -> Read<Option<Url>> {
    const URL: &str = "an http or https URL, without query";
    let mut mapping = reader.mapping(config)?;
    let endpoint = optional(mapping.take("endpoint"), |field| {
        let text = reader.filled(field)?;
        match parse_url(&text) {
            Some(url) if !url.username().is_empty() || url.password().is_some() => {
                let message = "it has a user in it: write `authorization` in OTEL_EXPORTER_OTLP_HEADERS instead, which is never \
                               logged";
                Err(reader.refuse(field, message))
            }
            Some(url) if url.query().is_none() && url.fragment().is_none() => Ok(url),
            _ => Err(reader.unexpected(field, URL, quoted(&text))),
        }
    });
    reader.finish(mapping);
    endpoint
}

#[cfg(feature = "otlp")]
fn require_otlp(_reader: &mut Reader<'_>, _field: &Field<'_>) -> Read<()> {
    Ok(())
}

#[cfg(not(feature = "otlp"))]
fn require_otlp(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<()> {
    let problem = crate::config::error::Problem::Unexpected {
        expected: "`file` or `stdout`".to_owned(),
        found: quoted("otlp"),
        remedy: Some(crate::telemetry::otlp::OtlpError::NotBuilt.to_string()),
    };
    Err(reader.report(field, problem))
}
