//! A process that the demo started, and ends.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::error::DemoError;
use super::wait;

/// Of a log that is shown when its process failed.
const SHOWN_LINES: usize = 12;
/// For a process to end by itself.
const PATIENCE: Duration = Duration::from_secs(10);

/// Ended when it is dropped, if it still runs.
#[derive(Debug)]
pub(super) struct Process {
    /// What it is, for a person.
    what: &'static str,
    child: Child,
    log: PathBuf,
    farewell: Farewell,
}

/// How a process is ended that still runs when nobody wants it any more. What does not end in time is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Farewell {
    Kill,
    /// It is done soon, and would leave children behind.
    Wait,
    /// By a signal of this name, first.
    Signal(&'static str),
}

impl Process {
    /// Starts it with its output in `log`, in a process group of its own: a Ctrl-C is the demo's, which then ends
    /// everything in order.
    pub(super) fn start(
        what: &'static str,
        command: &mut Command,
        log: PathBuf,
        farewell: Farewell,
    ) -> Result<Self, DemoError> {
        let program = PathBuf::from(command.get_program());
        let failed = |source| DemoError::Spawn {
            program: program.clone(),
            source,
        };
        let out = File::options().create(true).append(true).open(&log).map_err(failed)?;
        let err = out.try_clone().map_err(failed)?;
        command.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
        let child = command.spawn().map_err(failed)?;
        Ok(Self {
            what,
            child,
            log,
            farewell,
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// An error when it has ended, which it should not yet.
    pub(super) fn expect_alive(&mut self) -> Result<(), DemoError> {
        match self.exited()? {
            None => Ok(()),
            Some(status) => Err(self.ended(status)),
        }
    }

    /// Waits until it ends by itself, well.
    pub(super) async fn finish(&mut self, what: &'static str, limit: Duration) -> Result<(), DemoError> {
        let status = wait::until(what, limit, async || self.exited()).await;
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(self.ended(status)),
            Err(error) => Err(self.explained(error)),
        }
    }

    /// Sends a signal by its name, such as `TERM`.
    pub(super) fn signal(&self, name: &str) -> Result<(), DemoError> {
        // By the shell's own `kill`: the standard library sends SIGKILL only.
        let sent = Command::new("sh")
            .args(["-c", "kill -s \"$0\" \"$1\"", name, &self.pid().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        sent.map(drop).map_err(|source| DemoError::Io {
            action: "send a signal to a process of the demo",
            source,
        })
    }

    /// SIGKILL, as a crash is; it is gone when this returns.
    pub(super) fn kill(&mut self) -> Result<(), DemoError> {
        let killed = self.child.kill().and_then(|()| self.child.wait());
        killed.map(drop).map_err(|source| DemoError::Io {
            action: "kill a process of the demo",
            source,
        })
    }

    /// Adds the log's end to an error that a look into it may explain.
    pub(super) fn explained(&self, error: DemoError) -> DemoError {
        match error {
            DemoError::Deadline { what, limit, .. } => DemoError::Deadline {
                what,
                limit,
                log: last_lines(self.what, &self.log),
            },
            other => other,
        }
    }

    fn exited(&mut self) -> Result<Option<ExitStatus>, DemoError> {
        self.child.try_wait().map_err(|source| DemoError::Io {
            action: "ask after a process of the demo",
            source,
        })
    }

    fn ended(&self, status: ExitStatus) -> DemoError {
        DemoError::Ended {
            what: self.what,
            status: status.to_string(),
            log: last_lines(self.what, &self.log),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return; // its number may be another's by now
        }
        let started = Instant::now();
        let patience = match self.farewell {
            Farewell::Kill => Duration::ZERO,
            Farewell::Wait => PATIENCE,
            Farewell::Signal(name) => self.signal(name).map_or(Duration::ZERO, |()| PATIENCE),
        };
        while let Ok(None) = self.child.try_wait() {
            if started.elapsed() >= patience {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            thread::sleep(wait::POLL);
        }
    }
}

/// The log goes with the folder, so what matters of it is shown.
fn last_lines(what: &str, log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    if lines.is_empty() {
        return String::new();
    }
    let shown = lines.get(lines.len().saturating_sub(SHOWN_LINES)..).unwrap_or_default();
    format!(". The last lines of {what}:\n  {}", shown.join("\n  "))
}
