//! Commands of the binary that end by themselves.

use std::ffi::OsStr;

use super::DEADLINE;

/// What a command left.
#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs a command to its end.
///
/// # Panics
/// When it does not end within a minute, or is ended by a signal.
pub fn tailpost<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ended {
    tailpost_reading("", arguments)
}

/// The same, with this text on its stdin.
pub fn tailpost_reading<S: AsRef<OsStr>>(stdin: &str, arguments: impl IntoIterator<Item = S>) -> Ended {
    let output = assert_cmd::Command::new(env!("CARGO_BIN_EXE_tailpost"))
        .args(arguments)
        .write_stdin(stdin)
        .env_remove("TAILPOST_LOG")
        .timeout(DEADLINE)
        .output()
        .expect("run tailpost");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("output is UTF-8");
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    let code = output.status.code();
    let code = code.unwrap_or_else(|| panic!("it ended by {}\n{stdout}{stderr}", output.status));
    Ended { code, stdout, stderr }
}
