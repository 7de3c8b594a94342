//! What every store of checkpoints keeps to, and what the one in Kafka has in addition.

use rdkafka::producer::{BaseRecord, Producer};
use tailpost::checkpoint::file::FileStore;
use tailpost::checkpoint::kafka::Writer;
use tailpost::checkpoint::{CheckpointError, CheckpointStore, KafkaStoreError, Store};
use tailpost::position::{Lsn, Position, PostgresPosition};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::support::broker_proxy::BrokerProxy;
use crate::support::kafka::{ANSWER, Kafka};
use crate::support::positions::{Positions, runtime};
use crate::support::server::OwnServer;
use crate::support::{DEADLINE, eventually, found, unique_name, variable};

/// Where stores of one kind keep what they keep.
enum Shelf {
    File(TempDir),
    Kafka { kafka: Kafka, topic: String },
}

impl Shelf {
    fn files() -> Self {
        Self::File(tempfile::tempdir().unwrap())
    }

    fn kafka() -> Self {
        Self::Kafka {
            kafka: Kafka::new(&variable("TAILPOST_TEST_KAFKA")),
            topic: format!("{}.positions", unique_name()),
        }
    }

    fn open(&self, pipeline: &str) -> Result<Store, CheckpointError> {
        Ok(match self {
            Self::File(folder) => Store::File(FileStore::open(folder.path(), pipeline, "src1")?),
            Self::Kafka { .. } => Store::Kafka(self.positions().store(pipeline, Writer::Own)),
        })
    }

    /// Puts something in the place of a pipeline's checkpoint.
    fn put(&self, pipeline: &str, value: &[u8]) {
        match self {
            Self::File(folder) => std::fs::write(folder.path().join(format!("{pipeline}.json")), value).unwrap(),
            Self::Kafka { .. } => self.positions().put(&format!("{pipeline}/src1"), value),
        }
    }

    fn positions(&self) -> Positions<'_> {
        let Self::Kafka { kafka, topic } = self else {
            panic!("not in Kafka")
        };
        Positions {
            kafka,
            topic: topic.clone(),
        }
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        if let Self::Kafka { kafka, topic } = self {
            kafka.delete_topics(topic);
        }
    }
}

/// Makes tests of a function of a [`Shelf`]: `sentence::file` and `sentence::kafka`.
macro_rules! over_each_store {
    ($sentence:ident) => {
        mod $sentence {
            #[test]
            fn file() {
                super::$sentence(&super::Shelf::files());
            }

            #[test]
            fn kafka() {
                super::$sentence(&super::Shelf::kafka());
            }
        }
    };
}

fn at(base: u64) -> Position {
    Position::Postgres(PostgresPosition {
        system_identifier: 7,
        timeline: 1,
        base: Lsn(base),
        partial: None,
        last_event_end: Lsn(base),
    })
}

fn load(runtime: &Runtime, store: &mut Store) -> Option<Position> {
    runtime.block_on(store.load()).expect("load")
}

fn save(runtime: &Runtime, store: &mut Store, base: u64) {
    runtime.block_on(store.save(&at(base))).expect("save");
}

over_each_store!(what_was_never_saved_is_no_position);
fn what_was_never_saved_is_no_position(shelf: &Shelf) {
    let runtime = runtime();
    let mut store = shelf.open("p").unwrap();
    assert_eq!(load(&runtime, &mut store), None);
    assert_eq!(load(&runtime, &mut store), None, "nor after it was looked for");
}

over_each_store!(the_last_save_is_what_a_later_instance_finds);
fn the_last_save_is_what_a_later_instance_finds(shelf: &Shelf) {
    let runtime = runtime();
    let mut store = shelf.open("p").unwrap();
    load(&runtime, &mut store);
    for base in 1..=20 {
        save(&runtime, &mut store, base);
    }
    drop(store);
    let mut store = shelf.open("p").unwrap();
    assert_eq!(load(&runtime, &mut store), Some(at(20)));
    // Also one that is behind: the relay decides what comes after what.
    save(&runtime, &mut store, 5);
    assert_eq!(load(&runtime, &mut store), Some(at(5)));
}

over_each_store!(pipelines_do_not_see_each_others_positions);
fn pipelines_do_not_see_each_others_positions(shelf: &Shelf) {
    let runtime = runtime();
    let mut stores = ["p", "p2", "q"].map(|pipeline| shelf.open(pipeline).unwrap());
    let [one, two, three] = &mut stores;
    load(&runtime, one);
    save(&runtime, one, 1);
    assert_eq!(load(&runtime, two), None);
    save(&runtime, two, 2);
    assert_eq!(load(&runtime, three), None);
    assert_eq!(load(&runtime, one), Some(at(1)));
    assert_eq!(load(&runtime, two), Some(at(2)));
}

over_each_store!(a_later_versions_checkpoint_is_refused_by_name);
fn a_later_versions_checkpoint_is_refused_by_name(shelf: &Shelf) {
    refuses(
        shelf,
        br#"{"version": 2, "place": "elsewhere"}"#,
        &["version 2, expected 1"],
    );
}

over_each_store!(a_damaged_checkpoint_is_refused_by_name);
fn a_damaged_checkpoint_is_refused_by_name(shelf: &Shelf) {
    refuses(shelf, br#"{"version": 1, "pipeline": "p", "#, &["is damaged"]);
}

fn refuses(shelf: &Shelf, value: &[u8], texts: &[&str]) {
    let runtime = runtime();
    let mut store = shelf.open("p").unwrap();
    load(&runtime, &mut store);
    save(&runtime, &mut store, 1);
    shelf.put("p", value);
    let error = runtime.block_on(store.load()).unwrap_err();
    assert!(!error.can_heal(), "{error}");
    let text = error.to_string();
    let place = match shelf {
        Shelf::File(_) => "p.json`",
        Shelf::Kafka { .. } => "`p/src1` in topic",
    };
    for part in texts.iter().chain([&place]) {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

over_each_store!(of_two_instances_only_one_can_save);
fn of_two_instances_only_one_can_save(shelf: &Shelf) {
    let runtime = runtime();
    let mut first = shelf.open("p").unwrap();
    load(&runtime, &mut first);
    save(&runtime, &mut first, 1);
    let second = shelf.open("p").and_then(|mut second| {
        let loaded = runtime.block_on(second.load())?;
        assert_eq!(loaded, Some(at(1)));
        Ok(second)
    });
    match second {
        // It was kept out.
        Err(error) => {
            assert!(matches!(shelf, Shelf::File(_)), "{error}");
            save(&runtime, &mut first, 2);
        }
        // It has shut the first one out.
        Ok(mut second) => {
            save(&runtime, &mut second, 2);
            let error = runtime.block_on(first.save(&at(9))).unwrap_err();
            assert!(error.is_fenced(), "{error}");
            assert_eq!(load(&runtime, &mut second), Some(at(2)), "not what the first one tried");
        }
    }
}

#[test]
fn a_look_at_a_checkpoint_in_kafka_shuts_nobody_out_and_makes_no_topic() {
    let shelf = Shelf::kafka();
    let runtime = runtime();
    assert_eq!(shelf.positions().saved("p").unwrap(), None);
    assert!(shelf.positions().kafka.ends(&shelf.positions().topic).is_empty());
    let mut store = shelf.open("p").unwrap();
    load(&runtime, &mut store);
    save(&runtime, &mut store, 1);
    assert_eq!(shelf.positions().saved("p").unwrap(), Some(at(1)));
    save(&runtime, &mut store, 2);
    assert_eq!(shelf.positions().saved("p").unwrap(), Some(at(2)));
}

#[test]
fn a_position_far_from_the_end_of_a_busy_topic_is_found() {
    let shelf = Shelf::kafka();
    let runtime = runtime();
    let mut store = shelf.open("p").unwrap();
    load(&runtime, &mut store);
    save(&runtime, &mut store, 1);
    let positions = shelf.positions();
    let neighbour = positions.kafka.transactional_producer(&unique_name());
    neighbour.init_transactions(ANSWER).unwrap();
    // More than the first two windows, by commits and by an abort, which leaves records that nobody sees.
    for (count, commits) in [(9_000, true), (3_000, false)] {
        neighbour.begin_transaction().unwrap();
        for number in 0..count {
            let value = number.to_string();
            let record = BaseRecord::to(&positions.topic)
                .partition(0)
                .key("q/src1")
                .payload(&value);
            neighbour.send(record).map_err(|(error, _)| error).unwrap();
        }
        neighbour.flush(ANSWER).unwrap();
        match commits {
            true => neighbour.commit_transaction(ANSWER).unwrap(),
            false => neighbour.abort_transaction(ANSWER).unwrap(),
        }
    }
    assert_eq!(positions.saved("p").unwrap(), Some(at(1)));
    assert_eq!(positions.saved("never").unwrap(), None);
}

#[test]
fn behind_another_pipelines_open_transaction_the_position_is_waited_for_and_not_guessed() {
    let shelf = Shelf::kafka();
    let runtime = runtime();
    let mut store = shelf.open("p").unwrap();
    load(&runtime, &mut store);
    save(&runtime, &mut store, 1);
    let positions = shelf.positions();
    let neighbour = positions.kafka.transactional_producer(&unique_name());
    neighbour.init_transactions(ANSWER).unwrap();
    neighbour.begin_transaction().unwrap();
    let record = BaseRecord::to(&positions.topic)
        .partition(0)
        .key("q/src1")
        .payload("{}");
    neighbour.send(record).map_err(|(error, _)| error).unwrap();
    neighbour.flush(ANSWER).unwrap();
    // Committed, and behind the open one: a plain reader of committed records does not see it yet.
    save(&runtime, &mut store, 2);
    let error = positions.saved("p").unwrap_err();
    assert!(
        error.can_heal() && error.to_string().contains("a transaction is open"),
        "{error}"
    );
    neighbour.abort_transaction(ANSWER).unwrap();
    assert_eq!(positions.saved("p").unwrap(), Some(at(2)));
}

#[test]
fn a_checkpoint_that_was_there_and_is_gone_is_no_first_start() {
    let runtime = runtime();
    for writer in [Writer::Own, Writer::Sink] {
        let shelf = Shelf::kafka();
        let positions = shelf.positions();
        let mut first = shelf.open("p").unwrap();
        load(&runtime, &mut first);
        save(&runtime, &mut first, 1);
        let mut store = Store::Kafka(positions.store("p", writer));
        assert_eq!(load(&runtime, &mut store), Some(at(1)));
        positions.kafka.delete_topics(&positions.topic);
        eventually(DEADLINE, "the topic is gone", || {
            positions.kafka.ends(&positions.topic).is_empty()
        });
        // As the start of a pipeline does.
        load(&runtime, &mut Store::Kafka(positions.store("q", Writer::Own)));
        let error = runtime.block_on(store.load()).unwrap_err();
        assert!(
            !error.can_heal()
                && error
                    .to_string()
                    .contains("holds no checkpoint of pipeline `p` any more"),
            "{error}"
        );
    }
}

/// A store that is read through a proxy, and a position that is saved in it.
fn behind_a_proxy(runtime: &Runtime) -> (OwnServer, BrokerProxy, Shelf) {
    let proxy = BrokerProxy::new();
    let broker = OwnServer::kafka(&format!("advertised.listeners=PLAINTEXT://{}", proxy.address()));
    proxy.forward_to(&broker.brokers());
    let shelf = Shelf::Kafka {
        kafka: Kafka::new(proxy.address()),
        topic: format!("{}.positions", unique_name()),
    };
    let mut store = shelf.open("p").unwrap();
    load(runtime, &mut store);
    save(runtime, &mut store, 1);
    (broker, proxy, shelf)
}

#[test]
fn a_partition_without_a_leader_is_waited_for_and_not_taken_for_one_without_a_position() {
    let runtime = runtime();
    let (_broker, proxy, shelf) = behind_a_proxy(&runtime);
    proxy.lead_none(true);
    let mut store = shelf.open("p").unwrap();
    for error in [
        runtime.block_on(store.load()).unwrap_err(),
        shelf.positions().saved("p").unwrap_err(),
    ] {
        assert!(
            error.can_heal() && error.to_string().contains("nobody leads its partition"),
            "{error}"
        );
    }
    assert!(proxy.changed() > 0);
    proxy.lead_none(false);
    assert_eq!(load(&runtime, &mut store), Some(at(1)));
}

#[test]
fn a_partition_that_seems_to_end_early_is_read_to_its_end() {
    let runtime = runtime();
    let (_broker, proxy, shelf) = behind_a_proxy(&runtime);
    proxy.end_early();
    assert_eq!(shelf.positions().saved("p").unwrap(), Some(at(1)));
    assert_eq!(proxy.changed(), 1);
}

#[test]
fn a_checkpoint_topic_is_made_compacted_and_another_one_is_refused() {
    let shelf = Shelf::kafka();
    let runtime = runtime();
    let positions = shelf.positions();
    let error = runtime
        .block_on(positions.store_by("p", Writer::Own, false).load())
        .unwrap_err();
    assert!(
        error.can_heal()
            && error
                .to_string()
                .contains("does not exist: create it with cleanup.policy=compact"),
        "{error}"
    );
    load(&runtime, &mut shelf.open("p").unwrap());
    assert_eq!(
        positions.kafka.topic_config(&positions.topic, "cleanup.policy"),
        "compact"
    );
    assert_eq!(positions.kafka.ends(&positions.topic).len(), 1);

    let other = Shelf::kafka();
    let positions = other.positions();
    positions
        .kafka
        .create_topic(&positions.topic, 1, &[("cleanup.policy", "delete")]);
    let error = runtime.block_on(other.open("p").unwrap().load()).unwrap_err();
    assert!(
        !error.can_heal()
            && error
                .to_string()
                .contains("has cleanup.policy=delete, expected compact"),
        "{error}"
    );
    positions
        .kafka
        .alter_topic(&positions.topic, &[("cleanup.policy", "compact,delete")]);
    load(&runtime, &mut other.open("p").unwrap());
}

#[test]
fn a_save_whose_outcome_was_not_known_is_settled_before_the_next() {
    let broker = OwnServer::kafka("");
    let kafka = Kafka::new(&broker.brokers());
    let positions = Positions {
        kafka: &kafka,
        topic: "positions".to_owned(),
    };
    let runtime = runtime();
    let mut store = positions.store("p", Writer::Own);
    runtime.block_on(store.load()).unwrap();
    runtime.block_on(store.save(&at(1))).unwrap();
    let frozen = broker.freeze();
    let error = runtime.block_on(store.save(&at(2))).unwrap_err();
    assert!(
        error.can_heal() && matches!(error, CheckpointError::Kafka(KafkaStoreError::Unavailable { .. })),
        "{error}"
    );
    frozen.thaw();
    // A broker that was away for long leads its partitions again once its controller has seen it; until then a save is tried
    // again, as the saver does.
    eventually(DEADLINE, "the next is saved", || {
        let saved = runtime.block_on(store.save(&at(3)));
        saved.map_err(|error| assert!(error.can_heal(), "{error}")).is_ok()
    });
    let saved = found(DEADLINE, "a position that can be read", || positions.saved("p").ok());
    assert_eq!(saved, Some(at(3)));
    let mut next = positions.store("p", Writer::Own);
    assert_eq!(runtime.block_on(next.load()).unwrap(), Some(at(3)));
}
