//! A processor of type `validate`.

use std::sync::Arc;

use super::http::{NO_TLS_FILES, read_auth, read_tls};
use super::mask::read_event_path;
use super::outbox::{Seen, read_id};
use super::read_patterns;
use super::template::read_template;
use crate::config::error::Problem;
use crate::config::pattern::{OutboxPattern, PrefixPattern};
use crate::config::payload_schemas::PayloadSchemas;
use crate::config::pipeline::{
    OnFault, OnMissingSchema, Requirement, SchemaPlace, SchemaRegistry, Schemas, Sequence, Validate,
};
use crate::config::reader::{Field, Mapping, Read, Reader, optional};
use crate::config::shown::quoted;
use crate::http_client::parse_url;
use crate::schema_registry::Version;

const DEFAULT_ID: &str = "validate";
const DEFAULT_VERSION: &str = "1.0.0";

pub(super) fn read<'n>(reader: &mut Reader<'_>, mut mapping: Mapping<'n>, seen: &mut Seen<'n>) -> Read<Validate> {
    let (number, path) = mapping.whole();
    let id = optional(mapping.take("id"), |field| read_id(reader, field, seen));
    let tables = optional(mapping.take("tables"), |field| {
        read_patterns(reader, field, OutboxPattern::parse)
    });
    let schemas = optional(mapping.take("schemas"), |field| read_schemas(reader, field));
    let require = optional(mapping.take("require"), |field| {
        read_filled_list(reader, field, read_requirement)
    });
    let require_fields = optional(mapping.take("require_fields"), |field| {
        read_filled_list(reader, field, read_field)
    });
    let sequence = optional(mapping.take("sequence"), |field| read_sequence(reader, field, seen));
    let (has_schemas, has_require) = (!matches!(schemas, Ok(None)), !matches!(require, Ok(None)));
    let asks_nothing =
        !has_schemas && !has_require && matches!(require_fields, Ok(None)) && matches!(sequence, Ok(None));
    let of_payload = (has_schemas || has_require, "`schemas` or `require`");
    let of_schemas = (has_schemas, "`schemas`");
    let event_type = optional(mapping.take("event_type"), |field| {
        let event_type = read_field(reader, field)?;
        beside(reader, field, of_payload, event_type)
    });
    let payload = optional(mapping.take("payload"), |field| {
        let payload = read_field(reader, field)?;
        beside(reader, field, of_payload, payload)
    });
    let version = optional(mapping.take("version"), |field| {
        let version = read_field(reader, field)?;
        beside(reader, field, of_schemas, version)
    });
    let of_registry = matches!(schemas, Ok(Some(SchemaPlace::Registry(_))));
    let default_version = optional(mapping.take("default_version"), |field| {
        let version = reader.filled(field)?;
        if of_registry && Version::parse(&version).is_none() {
            return Err(reader.unexpected(field, Version::EXPECTED, quoted(&version)));
        }
        beside(reader, field, of_schemas, version)
    });
    let on_missing = optional(mapping.take("on_missing_schema"), |field| {
        let words = [("reject", OnMissingSchema::Reject), ("allow", OnMissingSchema::Allow)];
        let on_missing = reader.word(field, &words)?;
        beside(reader, field, of_schemas, on_missing)
    });
    reader.finish(mapping);
    if asks_nothing {
        let message = "it takes everything: expected `schemas`, `require`, `require_fields` or `sequence`".to_owned();
        return Err(reader.report_at(number, &path, Problem::Refused { message }));
    }
    let (version, default_version, on_missing) = (version?, default_version?, on_missing?);
    let name = |name: Option<Vec<String>>, default: &str| name.unwrap_or_else(|| vec![default.to_owned()]);
    Ok(Validate {
        id: id?.unwrap_or_else(|| DEFAULT_ID.to_owned()),
        tables: tables?.unwrap_or_default(),
        schemas: schemas?.map(|place| Schemas {
            place,
            version,
            default_version: default_version.unwrap_or_else(|| match of_registry {
                true => Version::Latest.to_string(),
                false => DEFAULT_VERSION.to_owned(),
            }),
            on_missing: on_missing.unwrap_or_default(),
        }),
        event_type: name(event_type?, "event_type"),
        payload: name(payload?, "payload"),
        require: require?.unwrap_or_default(),
        sequence: sequence?,
        require_fields: require_fields?.unwrap_or_default(),
    })
}

pub(in crate::config) const DEFAULT_AGGREGATES: usize = 100_000;
pub(in crate::config) const MOST_AGGREGATES: i64 = 10_000_000;

fn read_sequence<'n>(reader: &mut Reader<'_>, field: &Field<'n>, seen: &mut Seen<'n>) -> Read<Sequence> {
    let mut mapping = reader.mapping(field)?;
    let number = reader
        .require(&mut mapping, "field", "the field with an event's number")
        .and_then(|field| read_field(reader, &field));
    let per = optional(mapping.take("per"), |field| read_filled_list(reader, field, read_field));
    let mut action = |name| {
        let words = [
            ("ignore", OnFault::Ignore),
            ("warn", OnFault::Warn),
            ("dead_letter", OnFault::DeadLetter),
            ("halt", OnFault::Halt),
        ];
        optional(mapping.take(name), |field| {
            let action = reader.word(field, &words)?;
            if action == OnFault::DeadLetter {
                seen.dead_letter_words.push(field.clone());
            }
            Ok(action)
        })
    };
    let (on_repeat, on_gap, on_backwards) = (action("on_repeat"), action("on_gap"), action("on_backwards"));
    let max_aggregates = optional(mapping.take("max_aggregates"), |field| {
        reader.integer(field, 1..=MOST_AGGREGATES)
    });
    reader.finish(mapping);
    Ok(Sequence {
        field: number?,
        per: per?.unwrap_or_else(|| vec![vec!["aggregate_id".to_owned()]]),
        on_repeat: on_repeat?.unwrap_or_default(),
        on_gap: on_gap?.unwrap_or_default(),
        on_backwards: on_backwards?.unwrap_or_default(),
        max_aggregates: max_aggregates?
            .and_then(|count| usize::try_from(count).ok())
            .unwrap_or(DEFAULT_AGGREGATES),
    })
}

/// A key that counts only beside another.
fn beside<T>(reader: &mut Reader<'_>, field: &Field<'_>, (is_there, other): (bool, &str), value: T) -> Read<T> {
    match is_there {
        true => Ok(value),
        false => Err(reader.refuse(field, format!("without effect: expected {other} beside it"))),
    }
}

/// The place of schemas: there is one.
fn read_schemas(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<SchemaPlace> {
    let mut mapping = reader.mapping(field)?;
    let (folder_field, registry_field) = (mapping.take("folder"), mapping.take("registry"));
    let clash = folder_field.is_some().then(|| registry_field.clone()).flatten();
    let folder = optional(folder_field, |field| read_folder(reader, field));
    let registry = optional(registry_field, |field| read_registry(reader, field));
    reader.finish(mapping);
    if let Some(field) = clash {
        return Err(reader.refuse(
            &field,
            "clashes with `folder`: schemas have one place; remove one of them",
        ));
    }
    match (folder?, registry?) {
        (Some(folder), _) => Ok(SchemaPlace::Folder(folder)),
        (None, Some(registry)) => Ok(SchemaPlace::Registry(Arc::new(registry))),
        (None, None) => Err(reader.refuse(field, "schemas of no place: expected `folder` or `registry`")),
    }
}

/// A folder's schemas, compiled; each of its files that is wrong is a violation.
fn read_folder(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<PayloadSchemas> {
    let folder = reader.filled(field)?;
    let mut reported = None;
    match PayloadSchemas::read(&reader.folder.join(folder)) {
        Ok(schemas) => return Ok(schemas),
        Err(faults) => {
            for fault in faults {
                reported = Some(reader.refuse(field, fault.to_string()));
            }
        }
    }
    Err(reported.unwrap_or_else(|| reader.refuse(field, "no schemas")))
}

/// What is asked when an event needs it; only what the file says of it is looked at here.
fn read_registry(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<SchemaRegistry> {
    const URL: &str = "an http or https URL";
    let mut mapping = reader.mapping(field)?;
    let url = reader.require(&mut mapping, "url", URL).and_then(|field| {
        let text = reader.filled(&field)?;
        match parse_url(&text) {
            Some(url) if !url.username().is_empty() || url.password().is_some() => {
                let message = "it has a user in it: write `auth` instead, which is never logged";
                Err(reader.refuse(&field, message))
            }
            Some(url) if url.query().is_none() && url.fragment().is_none() => Ok(url),
            _ => Err(reader.unexpected(&field, URL, quoted(&text))),
        }
    });
    let subject = optional(mapping.take("subject"), |field| read_template(reader, field));
    let auth = optional(mapping.take("auth"), |field| read_auth(reader, field));
    let tls = optional(mapping.take("tls"), |field| read_tls(reader, field));
    reader.finish(mapping);
    Ok(SchemaRegistry {
        url: url?,
        subject: subject?,
        auth: auth?,
        tls: tls?.unwrap_or(NO_TLS_FILES),
    })
}

fn read_filled_list<T>(
    reader: &mut Reader<'_>,
    field: &Field<'_>,
    read: impl Fn(&mut Reader<'_>, &Field<'_>) -> Read<T>,
) -> Read<Vec<T>> {
    let items = reader.list(field)?;
    if items.is_empty() {
        return Err(reader.unexpected(field, "one item or more", "an empty list".to_owned()));
    }
    let read: Vec<_> = items.iter().map(|item| read(reader, item)).collect();
    read.into_iter().collect()
}

fn read_requirement(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Requirement> {
    let mut mapping = reader.mapping(field)?;
    let event_types = optional(mapping.take("event_types"), |field| {
        let patterns = read_patterns(reader, field, PrefixPattern::parse)?;
        match patterns.is_empty() {
            true => Err(reader.unexpected(field, "one pattern or more", "an empty list".to_owned())),
            false => Ok(patterns),
        }
    });
    let paths = reader
        .require(&mut mapping, "paths", "a list of paths in the payload")
        .and_then(|field| read_filled_list(reader, &field, read_event_path));
    reader.finish(mapping);
    Ok(Requirement {
        event_types: event_types?,
        paths: paths?,
    })
}

/// A member or column of the event, or a member inside of it.
fn read_field(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Vec<String>> {
    let text = reader.filled(field)?;
    let path: Vec<String> = text.split('.').map(str::to_owned).collect();
    match path.iter().any(|name| name.is_empty() || name.trim() != name) {
        false => Ok(path),
        true => Err(reader.refuse(
            field,
            "no field's name: expected one such as `event_type` or `meta.version`",
        )),
    }
}
