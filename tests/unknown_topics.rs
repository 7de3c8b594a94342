//! Events for topics that do not exist, and that nobody makes.

use crate::support::server::OwnServer;
use crate::support::{Bed, DEADLINE, Db, Event, eventually};

const PIPELINE: &str = "
apiVersion: tailpost/v1
kind: Pipeline
metadata: {name: <name>}
spec:
  source: {type: <type>, config: {<source>, outbox: {<outbox>}}}
  processors:
    - {type: outbox, topic: '<name>.${event_type}', raw_payload: true}
  sinks:
    - {type: kafka, config: {id: k1, brokers: '<brokers>'<more>}}
  dead_letter: {type: kafka, config: {topic: '<name>.letters'}}
<errors>";

fn pipeline(more: &str, errors: &str) -> String {
    PIPELINE.replace("<more>", more).replace("<errors>", errors)
}

/// A broker that makes no topic by itself, with the topic `events` on it.
fn bed(broker: &OwnServer) -> Bed {
    let bed = Bed::with(Db::Postgres, None, Some(broker));
    bed.kafka.create_topic(&bed.events(), 1, &[]);
    bed
}

fn strict_broker() -> OwnServer {
    OwnServer::kafka("auto.create.topics.enable=false")
}

/// Three events of one transaction, the second of them for a topic that does not exist.
fn emit(bed: &Bed) {
    let mut app = bed.app();
    app.begin();
    for (number, topic) in ["events", "missing", "events"].into_iter().enumerate() {
        app.emit(&Event::of(number.to_string()).key("1").event_type(topic));
    }
    app.commit();
}

fn values(bed: &Bed, topic: &str) -> Vec<String> {
    let mut reader = bed.reader(&[topic]);
    let values = reader
        .all()
        .iter()
        .map(|record| record.value_text().unwrap().to_owned());
    values.collect()
}

#[test]
fn with_dead_letters_such_an_event_is_parked_and_the_others_go_on() {
    let broker = strict_broker();
    for more in ["", ", exactly_once: true"] {
        let bed = bed(&broker);
        bed.kafka.create_topic(&bed.topic("letters"), 1, &[]);
        let mut relay = bed.relay(&pipeline(more, ""));
        relay.start();
        relay.wait_ready();
        emit(&bed);
        relay.wait_settled(3);
        assert_eq!(values(&bed, "events"), ["0", "2"]);
        let mut letters = bed.reader(&["letters"]);
        let [letter] = letters.all() else {
            panic!("{:?}", letters.records)
        };
        assert_eq!(letter.value_text(), Some("1"));
        assert_eq!(letter.header("tailpost-dlq-detail"), Some("unknown_topic"));
        assert_eq!(letter.header("tailpost-dlq-topic"), Some(&*bed.topic("missing")));
    }
}

#[test]
fn a_dead_letter_whose_own_topic_does_not_exist_waits_for_it() {
    let broker = strict_broker();
    let bed = bed(&broker);
    let mut relay = bed.relay(&pipeline("", ""));
    relay.start();
    relay.wait_ready();
    emit(&bed);
    let letters = bed.topic("letters");
    relay.wait_not_ready(&format!("topic `{letters}` does not exist"));
    assert_eq!(values(&bed, "events"), ["0"], "nothing overtakes it");
    bed.kafka.create_topic(&letters, 1, &[]);
    relay.wait_settled(3);
    relay.wait_ready();
    assert_eq!(values(&bed, "letters"), ["1"]);
    assert_eq!(values(&bed, "events"), ["0", "2"]);
}

#[test]
fn with_any_other_policy_such_an_event_waits_for_its_topic() {
    let broker = strict_broker();
    for errors in [
        "unroutable: dead_letter, rejected: skip",
        "unroutable: halt, rejected: dead_letter",
    ] {
        let bed = bed(&broker);
        bed.kafka.create_topic(&bed.topic("letters"), 1, &[]);
        let mut relay = bed.relay(&pipeline("", &format!("  errors: {{{errors}}}")));
        relay.start();
        relay.wait_ready();
        emit(&bed);
        let missing = bed.topic("missing");
        relay.wait_not_ready(&format!("topic `{missing}` does not exist"));
        eventually(DEADLINE, "the one before it", || values(&bed, "events") == ["0"]);
        bed.kafka.create_topic(&missing, 1, &[]);
        relay.wait_published(3);
        assert_eq!(values(&bed, "missing"), ["1"]);
        assert_eq!(values(&bed, "events"), ["0", "2"]);
    }
}
