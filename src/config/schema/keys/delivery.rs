//! `spec.delivery` and `spec.restart`.

use std::time::Duration;

use crate::config::file::delivery::HOUR;
use crate::config::pipeline::{Delivery, Restart};
use crate::config::quantity::{show_duration, show_size};
use crate::config::schema::key::{Key, Takes, list_of};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) fn delivery() -> Vec<Key> {
    let default = Delivery::default();
    vec![
        Key::new(
            "max_in_flight_events",
            Takes::Integer(1..=10_000_000),
            "sent and not acknowledged; with `exactly_once` ten times as many may be acknowledged and not committed, of which only the places are kept",
        )
        .default(default.max_in_flight_events),
        Key::new(
            "max_in_flight_bytes",
            Takes::Size(64 << 10..=1 << 40),
            "the same in bytes, with what the queue needs beside; a larger event goes alone",
        )
        .default(show_size(default.max_in_flight_bytes)),
        Key::new(
            "drain_timeout",
            Takes::Duration(Duration::ZERO..=DAY),
            "how long a stop waits for acknowledgements",
        )
        .default(show_duration(default.drain_timeout)),
        Key::new(
            "stall_timeout",
            Takes::Duration(Duration::from_secs(1)..=DAY),
            "how long a stuck sink may hold the connection to the database",
        )
        .default(show_duration(default.stall_timeout)),
        Key::new(
            "progress_timeout",
            Takes::Duration(Duration::from_secs(5)..=DAY),
            "how long nothing may come from the database, though its log moves and nothing explains it, before the connection is made anew",
        )
        .default(show_duration(default.progress_timeout)),
        Key::new(
            "transaction_interval",
            Takes::Duration(Duration::from_millis(1)..=Duration::from_secs(60)),
            "with `exactly_once`, and only then: how long a transaction gathers records under load, and in a [backlog](delivery.md#exactly-once) up to 1 s; with nothing more to wait for, it is committed at once, or after 10 ms where events are older than this. Half of `transaction.timeout.ms` at most",
        )
        .default(show_duration(default.transaction_interval)),
    ]
}

pub(super) fn restart() -> Vec<Key> {
    delays(Restart::default())
}

/// How waits grow.
pub(super) fn delays(default: Restart) -> Vec<Key> {
    let (least, largest) = default.jitter;
    let factor = Takes::Number(f64::MIN_POSITIVE..=10.0);
    vec![
        Key::new(
            "base_delay",
            Takes::Duration(Duration::from_millis(1)..=HOUR),
            "the first wait; no more than `max_delay`",
        )
        .default(show_duration(default.base_delay)),
        Key::new(
            "max_delay",
            Takes::Duration(Duration::from_millis(1)..=DAY),
            "the longest, but for `jitter`",
        )
        .default(show_duration(default.max_delay)),
        Key::new(
            "multiplier",
            Takes::Number(1.0..=100.0),
            "how much longer each wait is than the one before",
        )
        .default(default.multiplier),
        Key::new(
            "jitter",
            list_of("two numbers", factor, 2..=2),
            "the least and the largest factor, above 0 and at most 10",
        )
        .default(vec![least, largest]),
    ]
}
