//! `spec.delivery` and `spec.restart`.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::config::pipeline::{Delivery, Restart};
use crate::config::quantity::show_duration;
use crate::config::reader::{Field, Mapping, Read, Reader, optional};

pub(in crate::config) const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

impl Default for Delivery {
    fn default() -> Self {
        Self {
            max_in_flight_events: 20_000,
            max_in_flight_bytes: 8 * 1024 * 1024,
            drain_timeout: Duration::from_secs(30),
            stall_timeout: Duration::from_secs(60),
            progress_timeout: Duration::from_secs(60),
            transaction_interval: Duration::from_millis(100),
        }
    }
}

/// The bounds, and the one that is held against the sink's transactions.
pub(super) struct DeliveryReading<'n> {
    pub(super) delivery: Delivery,
    /// `transaction_interval`, where the file has it.
    pub(super) interval: Option<Field<'n>>,
}

pub(super) fn read<'n>(reader: &mut Reader<'_>, field: &Field<'n>) -> Read<DeliveryReading<'n>> {
    let mut mapping = reader.mapping(field)?;
    let events = optional(mapping.take("max_in_flight_events"), |field| {
        reader.integer(field, 1..=10_000_000)
    });
    let bytes = optional(mapping.take("max_in_flight_bytes"), |field| {
        reader.size(field, 64 << 10..=1 << 40)
    });
    let mut duration = |name, range: RangeInclusive<Duration>| {
        let field = mapping.take(name);
        let duration = optional(field.clone(), |field| reader.duration(field, range));
        (field, duration)
    };
    let (_, drain) = duration("drain_timeout", Duration::ZERO..=DAY);
    let (_, stall) = duration("stall_timeout", Duration::from_secs(1)..=DAY);
    let (_, progress) = duration("progress_timeout", Duration::from_secs(5)..=DAY);
    let (interval_field, interval) = duration(
        "transaction_interval",
        Duration::from_millis(1)..=Duration::from_secs(60),
    );
    reader.finish(mapping);
    let default = Delivery::default();
    let delivery = Delivery {
        max_in_flight_events: events?
            .and_then(|events| usize::try_from(events).ok())
            .unwrap_or(default.max_in_flight_events),
        max_in_flight_bytes: bytes?.unwrap_or(default.max_in_flight_bytes),
        drain_timeout: drain?.unwrap_or(default.drain_timeout),
        stall_timeout: stall?.unwrap_or(default.stall_timeout),
        progress_timeout: progress?.unwrap_or(default.progress_timeout),
        transaction_interval: interval?.unwrap_or(default.transaction_interval),
    };
    Ok(DeliveryReading {
        delivery,
        interval: interval_field,
    })
}

impl Default for Restart {
    fn default() -> Self {
        Self {
            base_delay: Duration::from_millis(200),
            max_delay: Duration::from_secs(30),
            multiplier: 2.0,
            jitter: (0.5, 1.0),
        }
    }
}

pub(super) fn read_restart(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<Restart> {
    let mut mapping = reader.mapping(field)?;
    let restart = read_delays(reader, &mut mapping, Restart::default());
    reader.finish(mapping);
    restart
}

/// The keys that say how long waits are. The mapping may have others.
pub(super) fn read_delays(reader: &mut Reader<'_>, mapping: &mut Mapping<'_>, default: Restart) -> Read<Restart> {
    let millisecond = Duration::from_millis(1);
    let (base_field, max_field) = (mapping.take("base_delay"), mapping.take("max_delay"));
    let base = optional(base_field.clone(), |field| reader.duration(field, millisecond..=HOUR));
    let max = optional(max_field.clone(), |field| reader.duration(field, millisecond..=DAY));
    let multiplier = optional(mapping.take("multiplier"), |field| {
        reader.number(field, 1.0..=100.0, "a number from 1 to 100")
    });
    let jitter = optional(mapping.take("jitter"), |field| read_jitter(reader, field));
    let restart = Restart {
        base_delay: base?.unwrap_or(default.base_delay),
        max_delay: max?.unwrap_or(default.max_delay),
        multiplier: multiplier?.unwrap_or(default.multiplier),
        jitter: jitter?.unwrap_or(default.jitter),
    };
    if restart.base_delay > restart.max_delay
        && let Some(field) = base_field.or(max_field)
    {
        let (base, max) = (show_duration(restart.base_delay), show_duration(restart.max_delay));
        let message = format!("expected a `base_delay` of at most `max_delay`, found {base} and {max}");
        return Err(reader.refuse(&field, message));
    }
    Ok(restart)
}

fn read_jitter(reader: &mut Reader<'_>, field: &Field<'_>) -> Read<(f64, f64)> {
    const FACTOR: &str = "a number above 0, 10 at most";
    let items = reader.list(field)?;
    let factors: Vec<_> = items
        .iter()
        .map(|item| reader.number(item, f64::MIN_POSITIVE..=10.0, FACTOR))
        .collect();
    let factors = factors.into_iter().collect::<Read<Vec<f64>>>()?;
    match factors[..] {
        [least, largest] if least <= largest => Ok((least, largest)),
        _ => {
            let found = factors.iter().map(f64::to_string).collect::<Vec<_>>().join(", ");
            let expected = "two factors, the least and the largest, such as [0.5, 1.0]";
            Err(reader.unexpected(field, expected, format!("[{found}]")))
        }
    }
}
