//! `spec.errors` and `spec.dead_letter`.

use super::kind::{Kinds, require_kind};
use super::template::{FixedTopic, read_topic};
use crate::config::pipeline::{DeadLetter, ErrorPolicies, ErrorPolicy, OversizedDeadLetter};
use crate::config::reader::{Field, Read, Reader, optional};

/// What the file says of dead letters, with the places that other keys are held against.
pub(super) struct DeadLetterReading<'n> {
    pub(super) dead_letter: DeadLetter,
    pub(super) whole: Field<'n>,
    pub(super) topic: FixedTopic<'n>,
}

pub(super) fn read_dead_letter<'n>(reader: &mut Reader<'_>, field: &Field<'n>) -> Read<DeadLetterReading<'n>> {
    let mut mapping = reader.mapping(field)?;
    let kinds = Kinds {
        here: &[("kafka", ())],
        later: &["sqlite"],
        elsewhere: &[],
    };
    let kind = require_kind(reader, &mut mapping, "dead letter type", &kinds);
    kind.read(|_| {
        let config = reader.require(&mut mapping, "config", "a mapping with a topic");
        reader.finish(mapping);
        read_dead_letter_config(reader, &config?, field)
    })
}

fn read_dead_letter_config<'n>(
    reader: &mut Reader<'_>,
    field: &Field<'n>,
    whole: &Field<'n>,
) -> Read<DeadLetterReading<'n>> {
    let mut mapping = reader.mapping(field)?;
    let topic = reader
        .require(&mut mapping, "topic", "the topic that dead letters go to")
        .and_then(|field| {
            let name = read_topic(reader, &field)?;
            Ok(FixedTopic { name, field })
        });
    let oversized = optional(mapping.take("oversized"), |field| {
        let policies = [("halt", OversizedDeadLetter::Halt), ("stub", OversizedDeadLetter::Stub)];
        reader.word(field, &policies)
    });
    reader.finish(mapping);
    let topic = topic?;
    Ok(DeadLetterReading {
        dead_letter: DeadLetter {
            topic: topic.name.clone(),
            oversized: oversized?.unwrap_or(OversizedDeadLetter::Halt),
        },
        whole: whole.clone(),
        topic,
    })
}

/// The policies, by default the one that dead letters are for, where there is a place for them.
pub(super) fn read_policies(
    reader: &mut Reader<'_>,
    field: Option<Field<'_>>,
    dead_letter: &Read<Option<DeadLetterReading<'_>>>,
) -> Read<ErrorPolicies> {
    let default = match dead_letter {
        Ok(None) => ErrorPolicy::Halt,
        Ok(Some(_)) | Err(_) => ErrorPolicy::DeadLetter,
    };
    let Some(field) = field else {
        return Ok(ErrorPolicies {
            invalid: default,
            unroutable: default,
            rejected: default,
        });
    };
    let mut mapping = reader.mapping(&field)?;
    let has_place = !matches!(dead_letter, Ok(None));
    let mut policy = |name| {
        let policy = optional(mapping.take(name), |field| read_policy(reader, field, has_place));
        policy.map(|policy| policy.unwrap_or(default))
    };
    let (invalid, unroutable, rejected) = (policy("invalid"), policy("unroutable"), policy("rejected"));
    reader.finish(mapping);
    let policies = ErrorPolicies {
        invalid: invalid?,
        unroutable: unroutable?,
        rejected: rejected?,
    };
    let used = [policies.invalid, policies.unroutable, policies.rejected].contains(&ErrorPolicy::DeadLetter);
    if let Ok(Some(dead_letter)) = dead_letter
        && !used
    {
        let message = "no event goes there: no policy of `errors` is `dead_letter`";
        reader.note(&dead_letter.whole, message);
    }
    Ok(policies)
}

fn read_policy(reader: &mut Reader<'_>, field: &Field<'_>, has_place: bool) -> Read<ErrorPolicy> {
    let policies = [
        ("halt", ErrorPolicy::Halt),
        ("dead_letter", ErrorPolicy::DeadLetter),
        ("skip", ErrorPolicy::Skip),
    ];
    let policy = reader.word(field, &policies)?;
    if policy == ErrorPolicy::DeadLetter && !has_place {
        let message = "`dead_letter` has no topic to go to: add `spec.dead_letter: {type: kafka, config: {topic: ...}}`, or write `halt` or `skip`";
        return Err(reader.refuse(field, message));
    }
    Ok(policy)
}
