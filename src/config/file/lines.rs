//! `sinks[].config` of the types `stdout` and `file`.

use std::path::PathBuf;

use super::envelope;
use super::template::{read_change_template, read_change_topic};
use crate::config::pipeline::{Envelope, File, Stdout};
use crate::config::reader::{Mapping, Read, Reader, optional};
use crate::config::template::Template;

/// The topic of events that bring none, where the file names no other.
pub(in crate::config) const DEFAULT_TOPIC: &str = "events";

pub(super) fn read_stdout(reader: &mut Reader<'_>, mut mapping: Mapping<'_>) -> Read<Stdout> {
    let lines = read_lines(reader, &mut mapping);
    reader.finish(mapping);
    lines
}

pub(super) fn read_file(reader: &mut Reader<'_>, mut mapping: Mapping<'_>) -> Read<File> {
    let path = reader
        .require(&mut mapping, "path", "the file that lines are added to")
        .and_then(|field| reader.filled(&field));
    let lines = read_lines(reader, &mut mapping);
    reader.finish(mapping);
    Ok(File {
        lines: lines?,
        path: PathBuf::from(path?),
    })
}

fn read_lines(reader: &mut Reader<'_>, mapping: &mut Mapping<'_>) -> Read<Stdout> {
    let id = reader
        .require(mapping, "id", "a name for the sink")
        .and_then(|field| reader.filled(&field));
    let topic = optional(mapping.take("topic"), |field| read_change_topic(reader, field));
    let key = optional(mapping.take("key"), |field| read_change_template(reader, field));
    let envelope = optional(mapping.take("envelope"), |field| envelope::read(reader, field));
    Ok(Stdout {
        id: id?,
        topic: topic?.unwrap_or_else(default_topic),
        key: key?,
        envelope: envelope?.unwrap_or(Envelope::Native),
    })
}

fn default_topic() -> Template {
    let mut template = Template::empty();
    template.push_literal(DEFAULT_TOPIC);
    template
}
