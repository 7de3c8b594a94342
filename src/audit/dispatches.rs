//! Where dispatch records go: one for each delivery, as a line of JSON or to a collector. They are telemetry: what cannot be written
//! is told in the log, and holds nothing up.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config;
use crate::telemetry::otlp::{DispatchExporter, DispatchQueue, OtlpError};

use super::entry::Entry;
use super::files::{folder_of, is_at};

/// Takes the entries of one write, in their order.
pub(super) trait DispatchTarget: Send {
    /// Writes them all.
    ///
    /// # Errors
    /// They may be lost, in part or as a whole.
    fn write(&mut self, pipeline: &str, sink: &str, entries: &[Entry]) -> io::Result<()>;
}

/// The places there are.
pub(super) enum Dispatches {
    Lines(Lines),
    Otlp(Otlp),
}

impl Dispatches {
    /// A relative path is seen from the state directory. None: they would go to a collector, and there is no way to one.
    pub(super) fn new(place: &config::Dispatches, state_dir: &Path, queue: Option<DispatchQueue>) -> Option<Self> {
        let target = match place {
            config::Dispatches::File(path) => Target::File {
                path: state_dir.join(path),
                file: None,
            },
            config::Dispatches::Stdout => Target::Stdout,
            config::Dispatches::Otlp { .. } => return Some(Self::Otlp(Otlp { queue: queue? })),
        };
        Some(Self::Lines(Lines {
            target,
            lines: Vec::new(),
        }))
    }

    /// Whether records say in which span the application wrote the event.
    pub(super) fn have_context(&self) -> bool {
        matches!(self, Self::Otlp(_))
    }
}

impl DispatchTarget for Dispatches {
    fn write(&mut self, pipeline: &str, sink: &str, entries: &[Entry]) -> io::Result<()> {
        match self {
            Self::Lines(lines) => lines.write(pipeline, sink, entries),
            Self::Otlp(otlp) => otlp.write(pipeline, sink, entries),
        }
    }
}

/// The queue for a collector, which counts by itself what it has no room for.
pub(super) struct Otlp {
    queue: DispatchQueue,
}

impl DispatchTarget for Otlp {
    fn write(&mut self, _pipeline: &str, sink: &str, entries: &[Entry]) -> io::Result<()> {
        let sink = Arc::from(sink);
        let dispatches = entries.iter().filter(|entry| entry.outcome.is_dispatch());
        self.queue
            .give(dispatches.map(|entry| entry.dispatch(self.queue.origin(), &sink)));
        Ok(())
    }
}

/// A file, or standard output.
pub(super) struct Lines {
    target: Target,
    lines: Vec<u8>,
}

enum Target {
    File { path: PathBuf, file: Option<File> },
    Stdout,
}

impl DispatchTarget for Lines {
    fn write(&mut self, pipeline: &str, sink: &str, entries: &[Entry]) -> io::Result<()> {
        self.lines.clear();
        for entry in entries.iter().filter(|entry| entry.outcome.is_dispatch()) {
            entry.write_dispatch(&mut self.lines, pipeline, sink);
        }
        if self.lines.is_empty() {
            return Ok(());
        }
        match &mut self.target {
            Target::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(&self.lines)?;
                stdout.flush()
            }
            Target::File { path, file } => {
                // One that was moved away, to make room for another, is not written to any more.
                let here = file.take().filter(|file| is_at(file, path));
                let here = match here {
                    Some(file) => file,
                    None => {
                        fs::create_dir_all(folder_of(path))?;
                        open_for_lines(OpenOptions::new().read(true).append(true).create(true).open(&*path)?)?
                    }
                };
                // In one write: a command that sends dead letters again may write beside.
                let written = (&here).write_all(&self.lines);
                // After an error it is opened anew, and its last line ended.
                *file = written.is_ok().then_some(here);
                written
            }
        }
    }
}

/// Ends a line that was cut off.
fn open_for_lines(mut file: File) -> io::Result<File> {
    let length = file.metadata()?.len();
    let mut last = [b'\n'];
    if length > 0 {
        file.seek(SeekFrom::Start(length - 1))?;
        file.read_exact(&mut last)?;
    }
    if last != *b"\n" {
        file.write_all(b"\n")?;
    }
    Ok(file)
}

/// Dispatch records of what another process than the pipeline's sends.
pub(crate) struct DispatchLog {
    pipeline: String,
    /// Of what does not say for which sink it was.
    leading: String,
    dispatches: Dispatches,
    exporter: Option<DispatchExporter>,
}

impl DispatchLog {
    /// None: the file asks for none. `otlp` is the collector that the command line names. Must be called within a runtime.
    ///
    /// # Errors
    /// Those that go to a collector have none, or it cannot be asked.
    pub(crate) fn open(
        pipeline: &config::Pipeline,
        state_dir: &Path,
        otlp: Option<&str>,
    ) -> Result<Option<Self>, OtlpError> {
        let (exporter, queue) = DispatchExporter::of(pipeline, otlp)?.unzip();
        let place = pipeline.dispatches.as_ref();
        let dispatches = place.and_then(|place| Dispatches::new(place, state_dir, queue));
        Ok(dispatches.map(|dispatches| Self {
            pipeline: pipeline.name.clone(),
            leading: pipeline.sink.id().to_owned(),
            dispatches,
            exporter,
        }))
    }

    /// Writes one; `sink` is the id of what it was sent by, or empty.
    ///
    /// # Errors
    /// It may be lost.
    pub(crate) fn write(&mut self, sink: &str, entry: Entry) -> io::Result<()> {
        let sink = if sink.is_empty() { &self.leading } else { sink };
        self.dispatches.write(&self.pipeline, sink, &[entry])
    }

    /// Has a collector get what waits, as far as that takes no longer than five seconds. Gives how many it did not get.
    pub(crate) async fn close(self) -> u64 {
        if let Some(exporter) = self.exporter {
            exporter.close().await;
        }
        match &self.dispatches {
            Dispatches::Lines(_) => 0,
            Dispatches::Otlp(otlp) => otlp.queue.dropped(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::Outcome;
    use super::super::entry::tests::entry;
    use super::*;
    use crate::processor::DeadLetterReason;
    use crate::skip::SkipReason;
    use crate::telemetry::otlp::{Severity, tests::queue};

    #[test]
    fn a_line_that_was_cut_off_is_ended_and_skips_are_no_dispatches() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/dispatches.jsonl");
        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::write(&path, "{\"a\":").unwrap();
        let place = config::Dispatches::File("new/dispatches.jsonl".into());
        let mut dispatches = Dispatches::new(&place, folder.path(), None).unwrap();
        let mut skipped = entry(2);
        skipped.outcome = Outcome::Skipped(SkipReason::Invalid);
        dispatches
            .write("orders", "k1", &[entry(1), skipped, entry(3)])
            .unwrap();
        fs::rename(&path, folder.path().join("old")).unwrap();
        dispatches.write("orders", "k1", &[entry(4)]).unwrap();
        let old = fs::read_to_string(folder.path().join("old")).unwrap();
        let lines: Vec<&str> = old.lines().collect();
        assert_eq!((lines.len(), lines[0]), (3, "{\"a\":"));
        assert!(lines[1].contains("\"e1\"") && lines[2].contains("\"e3\""), "{old}");
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 1);
    }

    #[test]
    fn what_is_sent_again_says_by_which_sink() {
        let folder = tempfile::tempdir().unwrap();
        let place = config::Dispatches::File("d.jsonl".into());
        let mut log = DispatchLog {
            pipeline: "orders".to_owned(),
            leading: "k1".to_owned(),
            dispatches: Dispatches::new(&place, folder.path(), None).unwrap(),
            exporter: None,
        };
        log.write("h2", entry(1)).unwrap();
        log.write("", entry(2)).unwrap();
        let text = fs::read_to_string(folder.path().join("d.jsonl")).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains(r#""sink":"h2""#), "{text}");
        assert!(lines[1].contains(r#""sink":"k1""#), "{text}");
    }

    #[test]
    fn a_collector_s_records_say_how_bad_they_are() {
        let (queue, mut records) = queue(8);
        let place = config::Dispatches::Otlp { endpoint: None };
        let mut dispatches = Dispatches::new(&place, Path::new(""), Some(queue)).unwrap();
        let outcomes = [
            Outcome::Failed,
            Outcome::Skipped(SkipReason::Invalid),
            Outcome::DeadLettered(DeadLetterReason::PermanentFailure),
            Outcome::Published,
        ];
        let entries: Vec<Entry> = (1..)
            .zip(outcomes)
            .map(|(number, outcome)| Entry {
                outcome,
                repeated: number == 4,
                ..entry(number)
            })
            .collect();
        dispatches.write("orders", "k1", &entries).unwrap();
        let found: Vec<_> = std::iter::from_fn(|| records.try_recv().ok())
            .map(|record| {
                assert_eq!((&*record.sink, record.origin.pipeline.as_str()), ("k1", "orders"));
                (record.outbox_id, record.severity, record.reason, record.is_duplicate)
            })
            .collect();
        assert_eq!(
            found,
            [
                ("e1".to_owned(), Severity::Warn, None, false),
                ("e3".to_owned(), Severity::Error, Some("permanent_failure"), false),
                ("e4".to_owned(), Severity::Info, None, true),
            ]
        );
        assert!(
            Dispatches::new(&place, Path::new(""), None).is_none(),
            "there is no way to it"
        );
    }
}
