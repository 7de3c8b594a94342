//! Load by several connections, and the account of it: what was committed against what came out.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};

use rand::Rng;

use super::app::{App, AppError, Door};
use super::kafka::Record;
use super::plot::Plot;
use super::{DEADLINE, Event, found};

/// How much is written. A key belongs to one connection, so that its order of commits is known.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub connections: u64,
    pub keys: u64,
    pub messages: u64,
    /// The most messages in one transaction; each has between one and this many.
    pub batch: u64,
}

/// A running load. Every tenth transaction or so rolls back.
pub struct Load {
    gate: Arc<Gate>,
    door: Door,
    writers: Vec<JoinHandle<Written>>,
}

/// How far the writers may go.
struct Gate {
    allowed: Mutex<u64>,
    raised: Condvar,
    taken: AtomicU64,
    committed: AtomicU64,
    messages: u64,
}

/// What one connection wrote: the numbers `0..committed`, those of transactions whose COMMIT got no answer included.
#[derive(Debug, Clone, Default)]
pub struct Written {
    pub committed: u64,
    /// Each of a whole transaction, which may have been committed or not.
    pub unknown: Vec<Range<u64>>,
}

impl Load {
    /// Starts writers that wait for [`Load::allow`].
    pub fn start_held(plot: &Plot, plan: Plan) -> Self {
        Self::start_held_by(std::slice::from_ref(&plot.door), plan)
    }

    /// The same by connections that take turns at these doors.
    pub fn start_held_by(doors: &[Door], plan: Plan) -> Self {
        let gate = Arc::new(Gate {
            allowed: Mutex::new(0),
            raised: Condvar::new(),
            taken: AtomicU64::new(0),
            committed: AtomicU64::new(0),
            messages: plan.messages,
        });
        let writers = (0..plan.connections).zip(doors.iter().cycle());
        let writers = writers.map(|(connection, door)| {
            let (gate, door) = (Arc::clone(&gate), door.clone());
            thread::spawn(move || write(connection, plan, &door, &gate))
        });
        Self {
            writers: writers.collect(),
            door: doors.first().expect("a door").clone(),
            gate,
        }
    }

    /// Writes this many messages more, of 1000 keys, all in one transaction of one more connection.
    pub fn add_transaction(&mut self, messages: u64) {
        let connection = self.writers.len() as u64;
        let door = self.door.clone();
        self.writers.push(thread::spawn(move || {
            let mut app = door.open().expect("the server lets the application in");
            app.begin();
            for first in (0..messages).step_by(5000) {
                let numbers = first..messages.min(first + 5000);
                let events: Vec<Event> = numbers
                    .map(|number| event(connection, number % 1000, Some(number)))
                    .collect();
                app.emit_all(&events).expect("write a part");
            }
            app.commit();
            Written {
                committed: messages,
                unknown: Vec::new(),
            }
        }));
    }

    /// Lets this many more messages be written.
    pub fn allow(&self, more: u64) {
        *self.gate.allowed.lock().unwrap() += more;
        self.gate.raised.notify_all();
    }

    pub fn committed(&self) -> u64 {
        self.gate.committed.load(Ordering::Relaxed)
    }

    /// Waits for the writers' end.
    pub fn finish(self) -> Committed {
        let writers = self.writers.into_iter();
        Committed(writers.map(|writer| writer.join().expect("a writer")).collect())
    }
}

impl Gate {
    /// Takes up to `wanted` messages; 0 when all are written.
    fn take(&self, wanted: u64) -> u64 {
        let mut allowed = self.allowed.lock().unwrap();
        loop {
            let taken = self.taken.load(Ordering::Relaxed);
            let now = wanted.min(allowed.min(self.messages) - taken);
            if now > 0 || taken == self.messages {
                self.taken.store(taken + now, Ordering::Relaxed);
                return now;
            }
            allowed = self.raised.wait(allowed).unwrap();
        }
    }
}

/// A key belongs to one connection. What is rolled back has no number.
pub fn event(connection: u64, key: u64, number: Option<u64>) -> Event {
    let number = number.map_or("null".to_owned(), |number| number.to_string());
    Event::of(format!(r#"{{"c": {connection}, "n": {number}}}"#))
        .aggregate_type("Load")
        .key(format!("{connection}-{key}"))
        .event_type("Written")
}

fn write(connection: u64, plan: Plan, door: &Door, gate: &Gate) -> Written {
    let mut random = rand::rng();
    let mut written = Written::default();
    let mut app = door.open().expect("the server lets the application in");
    let own_keys = (plan.keys / plan.connections).max(1);
    let content = |random: &mut rand::rngs::ThreadRng, number: Option<u64>| {
        event(connection, random.random_range(0..own_keys), number)
    };
    loop {
        let count = gate.take(random.random_range(1..=plan.batch));
        if count == 0 {
            return written;
        }
        if random.random_ratio(1, 10) {
            let rolled_back = [content(&mut random, None)];
            // Where this fails, so does the next, which minds.
            let _ = app.try_run("BEGIN");
            let _ = app.emit_all(&rolled_back);
            let _ = app.try_run("ROLLBACK");
        }
        let numbers = written.committed..written.committed + count;
        let contents: Vec<Event> = numbers
            .clone()
            .map(|number| content(&mut random, Some(number)))
            .collect();
        match commit(&mut app, &contents) {
            Ok(()) => {
                gate.committed.fetch_add(count, Ordering::Relaxed);
            }
            Err(_) => {
                // Without an answer nobody knows what became of it.
                written.unknown.push(numbers);
                app = found(DEADLINE, "the server back", || door.open().ok());
            }
        }
        written.committed += count;
    }
}

fn commit(app: &mut App, contents: &[Event]) -> Result<(), AppError> {
    app.try_run("BEGIN")?;
    app.emit_all(contents)?;
    app.try_run("COMMIT")
}

/// What a load committed.
pub struct Committed(Vec<Written>);

/// What became of a load's messages. The numbers are (connection, number).
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Committed and in no topic.
    pub lost: Vec<(u64, u64)>,
    /// In a topic more than once, with how often.
    pub doubled: BTreeMap<(u64, u64), u64>,
    /// First deliveries that came after a later one of their key.
    pub out_of_order: Vec<(u64, u64)>,
    /// Transactions that were delivered in part, of those of which nobody knows whether they were committed.
    pub torn: Vec<(u64, Range<u64>)>,
    /// Delivered and never committed.
    pub unexpected: Vec<String>,
}

impl Committed {
    /// By each connection.
    pub fn by(connections: Vec<Written>) -> Self {
        Self(connections)
    }

    pub fn count(&self) -> u64 {
        self.0.iter().map(|written| written.committed).sum()
    }

    /// Compares with what is in the topics, which must be in order per partition.
    pub fn account(&self, records: &[Record]) -> Account {
        let mut account = Account::default();
        let mut seen: HashSet<(u64, u64)> = HashSet::new();
        let mut latest: HashMap<&[u8], u64> = HashMap::new();
        for record in records {
            let Some(id) = identity(record).filter(|id| self.wrote(*id)) else {
                account.unexpected.push(format!("{record:?}"));
                continue;
            };
            if !seen.insert(id) {
                *account.doubled.entry(id).or_insert(1) += 1;
                continue;
            }
            let latest = latest.entry(record.key.as_deref().unwrap_or_default()).or_default();
            if id.1 < *latest {
                account.out_of_order.push(id);
            }
            *latest = id.1.max(*latest);
        }
        for (connection, written) in (0..).zip(&self.0) {
            let missing = |number: &u64| !seen.contains(&(connection, *number));
            let mut certain = 0;
            for unknown in &written.unknown {
                account.lost.extend(
                    (certain..unknown.start)
                        .filter(missing)
                        .map(|number| (connection, number)),
                );
                certain = unknown.end;
                let count = unknown.clone().filter(missing).count() as u64;
                if count > 0 && count < unknown.end - unknown.start {
                    account.torn.push((connection, unknown.clone()));
                }
            }
            let rest = (certain..written.committed).filter(missing);
            account.lost.extend(rest.map(|number| (connection, number)));
        }
        account
    }

    fn wrote(&self, (connection, number): (u64, u64)) -> bool {
        let written = usize::try_from(connection).ok().and_then(|at| self.0.get(at));
        written.is_some_and(|written| number < written.committed)
    }
}

impl Account {
    /// Nothing lost, out of order, torn or made up. What was doubled is the test's to judge.
    pub fn is_sound(&self) -> bool {
        self.lost.is_empty() && self.out_of_order.is_empty() && self.torn.is_empty() && self.unexpected.is_empty()
    }

    /// The same.
    ///
    /// # Panics
    /// Where it is not.
    pub fn assert_sound(&self) {
        assert!(self.is_sound(), "{self}");
    }

    /// Sound, and each exactly once.
    pub fn assert_exact(&self) {
        self.assert_sound();
        assert!(self.doubled.is_empty(), "{self}");
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = |ids: &[(u64, u64)]| format!("{} {:?}", ids.len(), ids.iter().take(10).collect::<Vec<_>>());
        writeln!(f, "lost {}", first(&self.lost))?;
        writeln!(f, "out of order {}", first(&self.out_of_order))?;
        writeln!(f, "doubled {}", self.doubled.len())?;
        writeln!(f, "torn {:?}", self.torn)?;
        write!(
            f,
            "unexpected {} {:?}",
            self.unexpected.len(),
            self.unexpected.iter().take(3).collect::<Vec<_>>()
        )
    }
}

/// Which of a load's messages a record is.
pub fn identity(record: &Record) -> Option<(u64, u64)> {
    let value: serde_json::Value = serde_json::from_slice(record.value.as_deref()?).ok()?;
    Some((value.get("c")?.as_u64()?, value.get("n")?.as_u64()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One connection's messages 0 to 3, of two keys, as they should arrive.
    fn arrived() -> (Committed, Vec<Record>) {
        let record = |number: u64| Record {
            topic: "t".to_owned(),
            partition: 0,
            offset: 0,
            key: Some(format!("0-{}", number % 2).into_bytes()),
            value: Some(format!(r#"{{"c": 0, "n": {number}}}"#).into_bytes()),
            headers: Vec::new(),
            timestamp_ms: 0,
        };
        let written = Written {
            committed: 4,
            unknown: Vec::new(),
        };
        (Committed(vec![written]), (0..4).map(record).collect())
    }

    #[test]
    fn an_account_names_what_is_lost_doubled_out_of_order_and_made_up() {
        let (committed, records) = arrived();
        assert_eq!(committed.account(&records), Account::default());
        let account = committed.account(&[&records[..1], &records[2..]].concat());
        assert_eq!(account.lost, [(0, 1)]);
        let account = committed.account(&[&records[..], &records[..1]].concat());
        assert_eq!(account.doubled, BTreeMap::from([((0, 0), 2)]));
        assert!(account.lost.is_empty() && account.out_of_order.is_empty());
        let account = committed.account(&[2, 1, 0, 3].map(|at| records[at].clone()));
        assert_eq!(
            account.out_of_order,
            [(0, 0)],
            "of one key; 1 and 2 have different ones"
        );
        let mut half_known = Committed(vec![committed.0[0].clone()]);
        half_known.0[0].unknown.push(1..3);
        let account = half_known.account(&[&records[..1], &records[3..]].concat());
        assert_eq!(account, Account::default(), "not committed after all");
        let account = half_known.account(&[&records[..2], &records[3..]].concat());
        assert_eq!(account.torn, [(0, 1..3)]);
        assert!(account.lost.is_empty());
        let mut rolled_back = records[0].clone();
        rolled_back.value = Some(br#"{"c": 0, "n": null}"#.to_vec());
        let account = committed.account(&[&records[..], &[rolled_back]].concat());
        assert_eq!(account.unexpected.len(), 1);
    }
}
