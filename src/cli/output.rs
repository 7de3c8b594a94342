//! What a command says on standard output and standard error.

use std::fmt;
use std::io::{self, Write as _};

/// Writes a text. A reader that has gone away, such as `head`, has enough: the command goes on to its exit code.
///
/// # Errors
/// The text is not there as a whole, for another cause.
pub(super) fn print(text: impl AsRef<[u8]>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_ref()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// The same of a command whose exit code says what matters.
pub(super) fn say(text: impl AsRef<[u8]>) {
    if let Err(error) = print(text) {
        complain!("error: write to stdout: {error}");
    }
}

/// Writes a text to standard error. Where that is closed or full, the exit code says what matters: the command must not end by it.
pub(super) fn tell(text: fmt::Arguments<'_>) {
    let _ = io::stderr().write_fmt(text);
}
