//! What a command says on standard output.

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
        eprintln!("error: write to stdout: {error}");
    }
}
