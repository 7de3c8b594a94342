//! What was measured, and on what.

use std::fs;
use std::process::Command;

use crate::bench::Bench;
use crate::error::BenchError;
use crate::mysql::Mysql;
use crate::postgres::Postgres;
use crate::servers::programs;

/// Names and values, for a table.
pub fn describe(bench: &Bench, postgres: &Postgres, mysqls: &[Mysql]) -> Result<Vec<(String, String)>, BenchError> {
    let (_, librdkafka) = rdkafka::util::get_rdkafka_version();
    let jars = programs("kafka")?;
    let kafka = jars.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut all = vec![
        (
            "processor",
            format!("{} cores, {}", cores(), line("/proc/cpuinfo", "model name")),
        ),
        ("memory", line("/proc/meminfo", "MemTotal")),
        (
            "kernel",
            fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default(),
        ),
        ("date", said("date", &["-u", "+%Y-%m-%d"])),
        (
            "load before the run",
            fs::read_to_string("/proc/loadavg").unwrap_or_default(),
        ),
        (
            "tailpost",
            format!(
                "{}, commit {}",
                bench.tailpost.version()?,
                said("git", &["rev-parse", "--short", "HEAD"])
            ),
        ),
        ("compiler", said("rustc", &["--version"])),
        ("librdkafka", librdkafka),
        ("broker", kafka),
        ("PostgreSQL", postgres.version()?),
        ("pairs", bench.settings.pairs.to_string()),
    ];
    for mysql in mysqls {
        all.push((mysql.flavor.title(), mysql.version()?));
    }
    if !bench.settings.is_whole() {
        all.push(("note", "a part, or a quick run: not to be published".to_owned()));
    }
    Ok(all
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect())
}

/// How many there are for all processes together.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The value of a line `name : value`.
fn line(path: &str, name: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.split_once(':'));
    found.map_or_else(String::new, |(_, value)| value.trim().to_owned())
}

/// What a program prints; nothing where it is not there.
fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}
