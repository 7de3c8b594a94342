//! A child process and what it took: time, CPU, memory, threads. All of it the kernel's own account, from `/proc`.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use serde::Serialize;

use crate::error::{BenchError, Tried};

/// The peak is a high-water mark, so that only growth within the last interval before the end can be missed.
const SAMPLE: Duration = Duration::from_millis(20);
/// Longer than anything that is measured takes: what hangs is killed.
const LONGEST: Duration = Duration::from_secs(600);

/// What a process took.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Usage {
    /// From its start until its last record was in the topic; of one that publishes nothing, until its exit.
    pub seconds: f64,
    /// From its start to its exit.
    pub exit_seconds: f64,
    /// Of its start, since 1970: a broker's times can be set against it.
    #[serde(skip)]
    pub started_ms: i64,
    /// User and system time of all its threads, in the kernel's ticks of 10 ms.
    pub cpu_seconds: f64,
    /// The same of all processes of the machine, from its start to its exit.
    pub machine_cpu_seconds: f64,
    pub peak_rss_bytes: u64,
    /// The most at a time.
    pub threads: u64,
}

impl Usage {
    /// With the broker's time of the last record.
    pub fn until(self, last_record_ms: i64) -> Self {
        Self {
            seconds: (last_record_ms - self.started_ms) as f64 / 1e3,
            ..self
        }
    }
}

/// Runs it to its end, which must be a success. Its output goes to a file, which an error quotes.
pub fn run(command: &mut Command, log: &Path) -> Result<Usage, BenchError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let started_ms = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |now| now.as_millis());
    let started = Instant::now();
    let machine_before = machine_cpu_seconds();
    let mut child = start(command, log)?;
    let pid = pid(&child);
    let ended = AtomicBool::new(false);
    let (usage, peak) = thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut peak = Usage::default();
            while !ended.load(Ordering::Acquire) {
                if let Some(now) = memory(pid) {
                    peak = Usage {
                        threads: now.threads.max(peak.threads),
                        ..now
                    };
                }
                if started.elapsed() > LONGEST {
                    // It may have ended meanwhile.
                    let _ = kill_process(pid, Signal::KILL);
                }
                thread::park_timeout(SAMPLE);
            }
            peak
        });
        // Not reaped yet: until then the kernel keeps its account.
        let waited = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        let seconds = started.elapsed().as_secs_f64();
        let cpu_seconds = cpu_seconds(pid);
        let machine_seconds = machine_cpu_seconds() - machine_before;
        ended.store(true, Ordering::Release);
        sampler.thread().unpark();
        let peak = sampler.join().unwrap_or_default();
        let usage = waited
            .map_err(std::io::Error::from)
            .map(|_| (seconds, cpu_seconds, machine_seconds));
        (usage, peak)
    });
    let status = child.wait().tried(format!("wait for {program}"))?;
    let (seconds, cpu_seconds, machine_cpu_seconds) = usage.tried(format!("wait for {program}"))?;
    if !status.success() {
        return Err(failed(program, status, log));
    }
    Ok(Usage {
        seconds,
        exit_seconds: seconds,
        started_ms: i64::try_from(started_ms).unwrap_or(i64::MAX),
        cpu_seconds: cpu_seconds.unwrap_or_default(),
        machine_cpu_seconds,
        ..peak
    })
}

fn start(command: &mut Command, log: &Path) -> Result<Child, BenchError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = fs::File::create(log).tried(format!("make {}", log.display()))?;
    let errors = output.try_clone().tried("a second handle of the log")?;
    command.stdin(Stdio::null()).stdout(output).stderr(errors);
    command.spawn().tried(format!("start {program}"))
}

fn failed(program: String, status: std::process::ExitStatus, log: &Path) -> BenchError {
    let output = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = output.lines().collect();
    let status = match status.signal() {
        Some(signal) => format!("signal {signal}"),
        None => status.to_string(),
    };
    BenchError::Program {
        program,
        status,
        output: lines[lines.len().saturating_sub(20)..].join("\n"),
    }
}

/// A process that runs until it is stopped; killed when this is dropped before.
pub struct Running {
    child: Child,
    pid: Pid,
    program: String,
    log: std::path::PathBuf,
}

impl Running {
    pub fn start(command: &mut Command, log: &Path) -> Result<Self, BenchError> {
        let child = start(command, log)?;
        Ok(Self {
            pid: pid(&child),
            child,
            program: command.get_program().to_string_lossy().into_owned(),
            log: log.to_owned(),
        })
    }

    /// CPU, peak memory and threads up to now; no time.
    ///
    /// # Errors
    /// It has ended.
    pub fn usage(&mut self) -> Result<Usage, BenchError> {
        if let Some(status) = self.child.try_wait().tried("look at a child")? {
            return Err(failed(self.program.clone(), status, &self.log));
        }
        let memory = memory(self.pid).unwrap_or_default();
        Ok(Usage {
            cpu_seconds: cpu_seconds(self.pid).unwrap_or_default(),
            ..memory
        })
    }

    /// What it has resident now, in bytes.
    pub fn resident(&self) -> u64 {
        let status = status_file(self.pid).unwrap_or_default();
        field(&status, "VmRSS:").unwrap_or_default() * 1024
    }

    /// Asks it to end and waits for that.
    pub fn stop(mut self) -> Result<(), BenchError> {
        // It may have ended by itself, which the status tells.
        let _ = kill_process(self.pid, Signal::TERM);
        let status = self.child.wait().tried("wait for a child")?;
        if status.success() {
            return Ok(());
        }
        Err(failed(self.program.clone(), status, &self.log))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After `stop` there is nothing left to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

fn status_file(pid: Pid) -> Option<String> {
    fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()
}

fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Peak memory, and the threads of now; nothing of a process that is ending.
fn memory(pid: Pid) -> Option<Usage> {
    let status = status_file(pid)?;
    Some(Usage {
        peak_rss_bytes: field(&status, "VmHWM:")? * 1024,
        threads: field(&status, "Threads:")?,
        ..Usage::default()
    })
}

fn cpu_seconds(pid: Pid) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The second field, a name in parentheses, may have blanks. User and system time are the 14th and 15th.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let ticks: u64 = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(seconds(ticks))
}

/// What the machine's cores did since its start, all together. What a hypervisor took from them counts: nobody here had it.
fn machine_cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    // user, nice, system, idle, iowait, irq, softirq, steal; time of guests is within the first two.
    let fields = stat
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .take(8);
    let busy = fields.enumerate().filter(|(at, _)| !matches!(at, 3 | 4));
    seconds(busy.filter_map(|(_, ticks)| ticks.parse::<u64>().ok()).sum())
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}
