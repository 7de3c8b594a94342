//! One order: that of the commits, and a key's partition is the one that Java's clients would choose.

use tailpost::position::LogPlace;

use crate::support::{ANY_OUTBOX, Bed, DEADLINE, Db, Emit, Event, OUTBOX, TestBed, eventually, over_each};

over_each!(interleaved_transactions_come_in_the_order_of_their_commits_and_come_once);
fn interleaved_transactions_come_in_the_order_of_their_commits_and_come_once(db: Db) {
    let bed = Bed::new(db);
    let mut relay = bed.relay(ANY_OUTBOX);
    relay.start();
    relay.wait_ready();
    let (mut a, mut b) = (bed.app(), bed.app());
    let mut done: Vec<LogPlace> = bed.done(&relay).into_iter().collect();
    let mut reader = bed.reader(&["events"]);
    let mut count = 0;
    for round in 0..5 {
        let event = |number: u32| Event::of(format!(r#""{round}.{number}""#));
        a.begin();
        a.emit(&event(1));
        b.emit(&event(2));
        // Relayed and done with while the other is open.
        count += 1;
        relay.wait_published(count);
        done.extend(bed.done(&relay));
        a.emit(&event(3));
        a.commit();
        count += 2;
        relay.wait_published(count);
        done.extend(bed.done(&relay));
    }
    let end = bed.log_end();
    eventually(DEADLINE, "everything done with", || {
        done.extend(bed.done(&relay));
        bed.is_done(&relay, &end)
    });
    assert!(done.is_sorted(), "{done:?}");
    for _ in 0..3 {
        relay.sigkill();
        relay.start();
        relay.wait_ready();
    }
    relay.sigterm();
    assert_eq!(relay.wait_exit(DEADLINE), 0);
    let records = reader.exactly(15).iter();
    let values: Vec<&str> = records.map(|record| record.value_text().unwrap()).collect();
    let expected: Vec<String> = (0..5)
        .flat_map(|round| [2, 1, 3].map(|number| format!(r#""{round}.{number}""#)))
        .collect();
    assert_eq!(values, expected);
}

/// Java's: `org.apache.kafka.common.utils.Utils.murmur2`.
fn murmur2(data: &[u8]) -> i32 {
    const M: u32 = 0x5bd1_e995;
    let mut h = 0x9747_b28c ^ data.len() as u32;
    let mut chunks = data.chunks_exact(4);
    for chunk in &mut chunks {
        let mut k = u32::from_le_bytes(chunk.try_into().unwrap()).wrapping_mul(M);
        k = (k ^ k >> 24).wrapping_mul(M);
        h = h.wrapping_mul(M) ^ k;
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        for (at, byte) in rest.iter().enumerate() {
            h ^= u32::from(*byte) << (8 * at);
        }
        h = h.wrapping_mul(M);
    }
    h = (h ^ h >> 13).wrapping_mul(M);
    (h ^ h >> 15) as i32
}

#[test]
fn a_keys_partition_is_the_one_of_java_clients() {
    // Vectors of Kafka's own UtilsTest.
    for (text, hash) in [
        ("21", -973_932_308),
        ("foobar", -790_332_482),
        ("a-little-bit-long-string", -985_981_536),
        ("a-little-bit-longer-string", -1_486_304_829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
        ("abc", 479_470_107),
    ] {
        assert_eq!(murmur2(text.as_bytes()), hash, "{text}");
    }
    let bed = TestBed::new();
    bed.kafka.create_topic(&bed.events(), 6, &[]);
    let mut relay = bed.relay(OUTBOX);
    relay.start();
    relay.wait_ready();
    let named = ["21", "foobar", "a-little-bit-long-string", "ä€", " "].map(str::to_owned);
    let keys: Vec<String> = named.into_iter().chain((0..300).map(|n| format!("key-{n}"))).collect();
    let messages: Vec<String> = keys
        .iter()
        .map(|key| format!(r#"{{"aggregate_id": "{key}", "payload": 1}}"#))
        .collect();
    bed.app().emit_all("outbox", &messages).unwrap();
    relay.wait_settled(keys.len() as u64);
    let mut reader = bed.reader(&["events"]);
    for record in reader.exactly(keys.len()) {
        let key = record.key.as_deref().unwrap();
        assert_eq!(
            record.partition,
            (murmur2(key) & 0x7fff_ffff) % 6,
            "{:?}",
            record.key_text()
        );
    }
}
