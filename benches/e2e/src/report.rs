//! The results as a page.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::error::BenchError;
use crate::plot;
use crate::results::{Comparison, Growth, Latency, Results, Side, median};

const METHOD: &str = "\
## Method

`make bench` builds the release binary, starts servers of its own with empty folders, and runs what is below in one go. Nothing is compared
with a figure of another machine or another run.

* **Pairs.** Each side of a comparison runs in turn with the other, every other pair in reverse order; one more drain before
  them does not count: what all of them read is in memory then. Tables show medians; a ratio is the median of the pairs' ratios, with
  the lowest and the highest.
* **Drains.** The backlog waits in the log before anything starts. A drain is timed from the start of a process, with all that it does before
  the first event, until the broker has taken its last record, by the broker's own time (`LogAppendTime`); what writes no records, until its
  exit. `tailpost run --once` goes on to the log's end, saves its position and closes its clients: that is the column `exit`. Each
  PostgreSQL drain has a copy of one slot; each MySQL drain starts at one GTID position; each has a topic of its own with 6 partitions.
* **Yardsticks.** `pg_recvlogical -f /dev/null` decodes and writes nothing, on the same way in, without TLS as tailpost. The bare producer is
  librdkafka by the same wrapper, in a process of its own, idempotent with `acks=all`: it makes the same records (key, four headers, value) on
  the spot and reads no database. `mysqlbinlog --raw` copies the binlog file and is shown for the scale.
* **A warm broker.** Before the first row the bare producer runs until the broker's CPU per record no longer falls, and before latencies
  count, rounds go by until their median no longer falls: for as long as the broker's compiler is at work, it takes more than all that
  is measured.
* **Correct or nothing.** After each drain, off the clock, a `read_committed` consumer reads the topic to its end: every event once, the
  payload byte for byte, those of each key in the order of their commits. Anything else ends the run without results.
* **CPU, memory, threads** are the kernel's own account of the process (`/proc`): user and system time of all threads in ticks of 10 ms,
  `VmHWM`, the most threads seen. CPU is a median, the peak is the highest of all runs. `the machine's` is the CPU of all processes from
  the start to the exit (`/proc/stat`, all but idle and waiting for disks): the database's server and the broker with it.
* **Latency.** Events are written when they are due, whether earlier ones have arrived or not: a transaction each millisecond, which has ten
  events at 10,000/s. The clock runs from the answer to COMMIT until a consumer on the same machine has the record. The ping is a bare
  producer's record without linger, from before it is given to the client. Rounds of 3 s, in turn.
* **The servers** have small caches and no `fsync` (they are those of the tests); the broker has the full JIT and 1 GB of heap. Server, broker,
  consumer and tailpost share the machine's cores.
";

/// Writes the page, the results as JSON and the plots into a folder.
pub fn write(results: &Results, folder: &Path) -> Result<(), BenchError> {
    fs::create_dir_all(folder).map_err(|source| at(folder, source))?;
    let throughput = plot::throughput(&results.comparisons);
    let json = serde_json::to_string_pretty(results)?;
    for (name, text) in [
        ("performance.md", page(results)),
        ("performance.json", json),
        ("performance-throughput.svg", throughput),
    ] {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|source| at(&path, source))?;
        eprintln!("wrote {}", path.display());
    }
    Ok(())
}

fn at(path: &Path, source: std::io::Error) -> BenchError {
    BenchError::Results {
        path: path.to_owned(),
        source,
    }
}

/// A table in Markdown.
struct Table(String);

impl Table {
    fn new(columns: &[&str]) -> Self {
        let rule: Vec<&str> = columns
            .iter()
            .enumerate()
            .map(|(at, _)| if at == 0 { "---" } else { "---:" })
            .collect();
        let mut table = Self(String::new());
        table.row(columns);
        table.row(&rule);
        table
    }

    fn row<S: AsRef<str>>(&mut self, cells: &[S]) {
        let cells: Vec<&str> = cells.iter().map(AsRef::as_ref).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "| {} |", cells.join(" | "));
    }
}

fn page(results: &Results) -> String {
    let mut page = String::from(
        "# Performance\n\nMade by `make bench`; the same in figures: [performance.json](performance.json). Each figure is of this one machine and run.\n\n",
    );
    if !results.complete {
        page.push_str("**The run was broken off: rows are missing.**\n\n");
    }
    let mut section = |title: &str, body: &str| {
        if !body.is_empty() {
            let _ = write!(page, "## {title}\n\n{body}\n");
        }
    };
    section("Machine and versions", &machine(results));
    section("Targets", &verdicts(results));
    section("Backlogs", &comparisons(&results.comparisons));
    section("Latency", &latencies(&results.latencies));
    section("Start and size", &start(results));
    section("Growth", &growths(&results.growth));
    page.push_str(METHOD);
    page
}

fn machine(results: &Results) -> String {
    let mut table = Table::new(&["", ""]);
    for (what, value) in &results.machine {
        table.row(&[what, value]);
    }
    table.0
}

fn verdicts(results: &Results) -> String {
    if results.verdicts.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["what", "target", "measured", "met"]);
    for verdict in &results.verdicts {
        let met = if verdict.met { "yes" } else { "**no**" };
        table.row(&[&verdict.what, &verdict.target, &verdict.measured, met]);
    }
    let missed = results.verdicts.iter().filter(|verdict| !verdict.met);
    let missed: Vec<_> = missed
        .filter_map(|verdict| Some((&verdict.what, verdict.beside.as_ref()?)))
        .collect();
    if !missed.is_empty() {
        table
            .0
            .push_str("\nWhat was measured beside a target that was missed:\n\n");
        for (what, beside) in missed {
            // Writing to a String cannot fail.
            let _ = writeln!(table.0, "* {what}: {beside}.");
        }
    }
    table.0
}

fn comparisons(comparisons: &[Comparison]) -> String {
    if comparisons.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[
        "backlog",
        "who",
        "seconds",
        "exit",
        "events/s",
        "MB/s",
        "CPU us/event",
        "the machine's",
        "peak RSS MB",
        "threads",
    ]);
    for comparison in comparisons {
        for (at, side) in comparison.sides.iter().enumerate() {
            let title = if at == 0 {
                format!("{} ({})", comparison.title, thousands(comparison.events))
            } else {
                String::new()
            };
            table.row(&cells(comparison, side, title));
        }
    }
    format!(
        "![Throughput against the yardsticks](performance-throughput.svg)\n\nMB/s are of payloads.\n\n{}",
        table.0
    )
}

fn cells(comparison: &Comparison, side: &Side, title: String) -> [String; 10] {
    let (events, seconds) = (comparison.events as f64, side.seconds());
    [
        title,
        side.name.clone(),
        format!("{seconds:.2}"),
        format!("{:.2}", side.exit_seconds()),
        thousands((events / seconds) as u64),
        format!("{:.0}", events * comparison.payload_bytes as f64 / seconds / 1e6),
        format!("{:.2}", side.cpu_seconds() * 1e6 / events),
        format!("{:.2}", side.machine_cpu_seconds() * 1e6 / events),
        format!("{:.1}", side.peak_rss() as f64 / 1e6),
        side.threads().to_string(),
    ]
}

fn latencies(latencies: &[Latency]) -> String {
    if latencies.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["commit to visible, ms", "who", "p50", "p99", "p99.9"]);
    for latency in latencies {
        for (at, side) in latency.sides.iter().enumerate() {
            let title = if at == 0 { latency.title.as_str() } else { "" };
            let [p50, p99, p999] = [
                side.median(|of| of.p50),
                side.median(|of| of.p99),
                side.median(|of| of.p999),
            ]
            .map(|milliseconds| format!("{milliseconds:.2}"));
            table.row(&[title, &side.name, &p50, &p99, &p999]);
        }
    }
    table.0
}

fn start(results: &Results) -> String {
    let mut table = Table::new(&["what", ""]);
    for start in &results.start {
        let seconds = median(start.seconds.iter().copied());
        table.row(&[
            format!("start of the process to its first event visible, {}", start.title),
            format!("{:.0} ms", seconds * 1e3),
        ]);
    }
    table.row(&["the binary", &format!("{:.1} MB", results.binary_bytes as f64 / 1e6)]);
    table.0
}

fn growths(growths: &[Growth]) -> String {
    let mut all = String::new();
    for growth in growths {
        let mut table = Table::new(&[
            &growth.of,
            "seconds",
            "us/event",
            "CPU us/event",
            "CPU seconds",
            "peak RSS MB",
            "threads",
        ]);
        for size in &growth.sizes {
            let per_event = |seconds: f64| match size.events {
                0 => "-".to_owned(),
                events => format!("{:.2}", seconds * 1e6 / events as f64),
            };
            table.row(&[
                thousands(size.size),
                format!("{:.2}", size.seconds()),
                per_event(size.seconds()),
                per_event(size.cpu_seconds()),
                format!("{:.2}", size.cpu_seconds()),
                format!("{:.1}", size.peak_rss() as f64 / 1e6),
                size.threads().to_string(),
            ]);
        }
        let _ = write!(
            all,
            "{} in growing numbers: {}.\n\n{}\n",
            growth.of, growth.title, table.0
        );
    }
    all
}

fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
