//! `spec.checkpoint`.

use super::kafka::replication_factor;
use super::outbox::topic_name;
use crate::config::pipeline::CheckpointTopic;
use crate::config::schema::key::{Key, Takes, tagged, variant};

pub(super) fn checkpoint() -> Takes {
    let default = CheckpointTopic::default();
    let config = vec![
        Key::new("topic", topic_name(), "one serves any number of pipelines").default(default.name),
        replication_factor(),
        Key::new(
            "create",
            Takes::Boolean,
            "`false`: the topic must be there, with `cleanup.policy=compact`",
        )
        .default(default.create),
    ];
    tagged(
        "`file`: in the folder of `--state-dir`; `kafka`: in a compacted topic of the sink's cluster, from which any machine can go on. With `exactly_once` it is `kafka`, and `file` is refused. [Moving from one to the other](delivery.md#moving-a-position)",
        vec![
            variant(["file"], Vec::new()),
            variant(["kafka"], vec![Key::new("config", Takes::Mapping(config), "")]),
        ],
    )
}
