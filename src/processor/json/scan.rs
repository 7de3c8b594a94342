//! Walks JSON text by its grammar (RFC 8259) to where each value ends, and refuses what is none.
//!
//! Nothing is decoded: of an escape only its form counts, so half a surrogate pair passes. What is open is kept in a list
//! and not on the stack.

/// A place in a text; each call moves it on. None: the text is no JSON there, and the place is of no use any more.
#[derive(Debug, Clone)]
pub(super) struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

/// A string as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Written<'a> {
    /// With its quotes.
    pub(super) quoted: &'a str,
    pub(super) unquoted: &'a str,
    pub(super) has_escapes: bool,
}

/// What holds the value at hand.
#[derive(Debug, Clone, Copy)]
enum Container {
    Array,
    Object,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    /// How many bytes are behind it.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    pub(super) fn next(&mut self) -> Option<u8> {
        let byte = *self.rest().first()?;
        self.at += 1;
        Some(byte)
    }

    /// The byte that comes next.
    pub(super) fn peek(&self) -> Option<u8> {
        self.rest().first().copied()
    }

    pub(super) fn is_before_null(&self) -> bool {
        self.rest().starts_with(b"null")
    }

    pub(super) fn is_before_empty_array(&self) -> bool {
        let inside = self.rest().strip_prefix(b"[");
        inside.is_some_and(|inside| inside.trim_ascii_start().starts_with(b"]"))
    }

    /// Whether this byte came next, which is passed over then.
    pub(super) fn takes(&mut self, byte: u8) -> bool {
        let takes = self.rest().first() == Some(&byte);
        self.at += usize::from(takes);
        takes
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest().is_empty()
    }

    pub(super) fn skip_space(&mut self) {
        let is_space = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        self.at += self.rest().iter().take_while(is_space).count();
    }

    /// Passes over a member's name and its colon, up to its value.
    pub(super) fn name(&mut self) -> Option<Written<'a>> {
        let begin = self.at;
        if !self.takes(b'"') {
            return None;
        }
        let has_escapes = self.string()?;
        let (quoted, unquoted) = (self.text.get(begin..self.at)?, self.text.get(begin + 1..self.at - 1)?);
        self.skip_space();
        if !self.takes(b':') {
            return None;
        }
        self.skip_space();
        Some(Written {
            quoted,
            unquoted,
            has_escapes,
        })
    }

    /// Passes over the value that begins here.
    pub(super) fn value(&mut self) -> Option<&'a str> {
        let begin = self.at;
        let mut inside = None;
        let mut around = Vec::new();
        loop {
            match self.next()? {
                b'"' => drop(self.string()?),
                b'{' => {
                    self.skip_space();
                    if !self.takes(b'}') {
                        around.extend(inside.replace(Container::Object));
                        self.name()?;
                        continue;
                    }
                }
                b'[' => {
                    self.skip_space();
                    if !self.takes(b']') {
                        around.extend(inside.replace(Container::Array));
                        continue;
                    }
                }
                b't' => self.word(b"rue")?,
                b'f' => self.word(b"alse")?,
                b'n' => self.word(b"ull")?,
                b'-' | b'0'..=b'9' => self.number()?,
                _ => return None,
            }
            // A value has ended, and what it is in may end with it.
            loop {
                let Some(container) = inside else {
                    return self.text.get(begin..self.at);
                };
                self.skip_space();
                match (self.next()?, container) {
                    (b',', Container::Array) => {
                        self.skip_space();
                        break;
                    }
                    (b',', Container::Object) => {
                        self.skip_space();
                        self.name()?;
                        break;
                    }
                    (b']', Container::Array) | (b'}', Container::Object) => inside = around.pop(),
                    _ => return None,
                }
            }
        }
    }

    fn word(&mut self, rest: &[u8]) -> Option<()> {
        self.at += rest.len();
        self.text
            .as_bytes()
            .get(self.at - rest.len()..self.at)?
            .eq(rest)
            .then_some(())
    }

    /// Passes over a number whose first byte was taken.
    fn number(&mut self) -> Option<()> {
        let begin = self.at - 1;
        let may_be_in = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        self.at += self.rest().iter().take_while(may_be_in).count();
        super::is_number(self.text.as_bytes().get(begin..self.at)?).then_some(())
    }

    /// Passes over a string whose first quote was taken. Whether it has escapes.
    fn string(&mut self) -> Option<bool> {
        let mut has_escapes = false;
        loop {
            self.at += plain_len(self.rest());
            match self.next()? {
                b'"' => return Some(has_escapes),
                b'\\' => {
                    has_escapes = true;
                    match self.next()? {
                        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {}
                        b'u' => {
                            let digits = self.rest().first_chunk::<4>()?;
                            if !digits.iter().all(u8::is_ascii_hexdigit) {
                                return None;
                            }
                            self.at += digits.len();
                        }
                        _ => return None,
                    }
                }
                _ => return None,
            }
        }
    }
}

/// How many of the first bytes stand for themselves in a string: no quote, no backslash, no control character.
fn plain_len(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGH_BITS: u64 = ONES << 7;
    // Eight bytes at once: a byte's high bit is set where it is below `limit`, up to 0x80, and the lowest such bit is exact.
    let below = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit)) & !word & HIGH_BITS;
    let equal = |word: u64, byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let found = below(word, b' ') | equal(word, b'"') | equal(word, b'\\');
        if found != 0 {
            return index * 8 + found.trailing_zeros() as usize / 8;
        }
    }
    let is_plain = |byte: &&u8| **byte >= b' ' && !matches!(byte, b'"' | b'\\');
    bytes.len() - rest.len() + rest.iter().take_while(is_plain).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    use super::*;

    /// The value that the whole text is, without the white space around it.
    fn scanned(text: &str) -> Option<&str> {
        let mut scanner = Scanner::new(text);
        scanner.skip_space();
        let value = scanner.value()?;
        scanner.skip_space();
        scanner.is_at_end().then_some(value)
    }

    fn by_serde(text: &str) -> Option<&str> {
        serde_json::from_str::<&RawValue>(text).ok().map(RawValue::get)
    }

    #[test]
    fn values_end_where_another_parser_says() {
        for text in [
            "{}",
            "[]",
            "[1]",
            "[1,]",
            "[,1]",
            "{\"a\":}",
            "{\"a\":1,}",
            "{,}",
            "{\"a\" : [ { } , [ ] ] }",
            "[{]}",
            "{\"a\":1]",
            "[[[]]",
            "[[]]]",
            "tru",
            "true",
            "truer",
            "nul",
            "null",
            "falsy",
            "false",
            "-",
            "-0",
            "01",
            "1.",
            "1.5e",
            "1e+5",
            "+1",
            "--1",
            "1-1",
            "1 2",
            "\"",
            "\"\\\"",
            "\"\\u12\"",
            "\"\\u12é\"",
            "\"\\ud800\"",
            "\"\\x\"",
            "\"a\tb\"",
            "\"\u{7f}\u{80}é\"",
            "\"12345678\\",
            "\"1234567\u{1f}\"",
            "\"1234567\"",
            " \n\t\r1 \n",
            "\u{b}1",
            "\u{feff}1",
            "",
            " ",
            "{\"a\":1 \"b\":2}",
            "{\"a\"1}",
            "{1:1}",
        ] {
            assert_eq!(scanned(text), by_serde(text), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_json_or_not_as_another_parser_says(text in "\\PC{0,40}|[\\[\\]{}:, \"\\\\ubn0-9eE.+tralsn-]{0,24}") {
            prop_assert_eq!(scanned(&text), by_serde(&text));
        }

        /// What is JSON but for one character.
        #[test]
        fn a_spoilt_document_is_json_or_not_as_another_parser_says(
            numbers in prop::collection::vec(any::<f64>(), 0..4),
            texts in prop::collection::vec(any::<String>(), 0..4),
            at in any::<prop::sample::Index>(),
            spoilt in prop::option::of(prop::sample::select(b"\"\\{}[],: 0e\x01u".to_vec())),
        ) {
            let document = serde_json::json!({ "a": numbers, "b": { "c": texts, "d": [{}, [[]], null, true] }, "e": texts }).to_string();
            prop_assert_eq!(scanned(&document), by_serde(&document));
            let mut bytes = document.into_bytes();
            if let Some(byte) = spoilt {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Ok(text) = str::from_utf8(&bytes) {
                prop_assert_eq!(scanned(text), by_serde(text));
            }
        }

        #[test]
        fn the_plain_start_of_a_string_is_found_wherever_it_ends(text in any::<Vec<u8>>()) {
            let plain = text.iter().take_while(|byte| **byte >= 0x20 && **byte != b'"' && **byte != b'\\');
            prop_assert_eq!(plain_len(&text), plain.count());
        }
    }
}
