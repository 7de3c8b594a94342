//! What the demo prints: plain lines on stdout, coloured on a terminal only.

use std::env;
use std::io::{self, IsTerminal, Write};

/// Where the story is written. Every line is out when its call returns.
#[derive(Debug)]
pub(super) struct Page {
    colours: bool,
}

impl Page {
    /// Colours only for a terminal that has them, and not where `NO_COLOR` is set (<https://no-color.org>).
    pub(super) fn new() -> Self {
        let set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
        let plain = set("NO_COLOR") || env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self {
            colours: !plain && io::stdout().is_terminal(),
        }
    }

    pub(super) fn title(&self, text: &str) -> io::Result<()> {
        self.line(&self.painted("1", text))
    }

    pub(super) fn heading(&self, text: &str) -> io::Result<()> {
        self.line("")?;
        self.line(&self.painted("1;36", text))?;
        self.line("")
    }

    pub(super) fn say(&self, text: &str) -> io::Result<()> {
        self.line(&format!("   {text}"))
    }

    /// SQL or a file's text, as it is.
    pub(super) fn code(&self, text: &str) -> io::Result<()> {
        for line in text.lines() {
            self.line(&format!("     {}", self.painted("2", line)))?;
        }
        self.line("")
    }

    /// A name, and what belongs to it.
    pub(super) fn entry(&self, name: &str, text: &str) -> io::Result<()> {
        self.line(&format!("     {name:<14}{text}"))
    }

    /// A number of the count. `good`: None where it is neither good nor bad.
    pub(super) fn number(&self, name: &str, number: u64, good: Option<bool>, note: &str) -> io::Result<()> {
        let text = format!("{:>8}", grouped(number));
        let text = match good {
            Some(true) => self.painted("1;32", &text),
            Some(false) => self.painted("1;31", &text),
            None => text,
        };
        let line = format!("     {name:<14}{text}   {note}");
        self.line(line.trim_end())
    }

    pub(super) fn blank(&self) -> io::Result<()> {
        self.line("")
    }

    fn painted(&self, style: &str, text: &str) -> String {
        if self.colours && !text.is_empty() {
            format!("\x1b[{style}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    fn line(&self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{text}")?;
        out.flush()
    }
}

/// `20000` as `20,000`.
pub(super) fn grouped(number: u64) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (20_000, "20,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }
}
