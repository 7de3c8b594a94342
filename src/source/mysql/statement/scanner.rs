//! Words, names and literals of SQL text, as far as it takes to find a statement's verb and target.
//!
//! Text is in the client's character set, of which only ASCII is understood. Every step consumes or says that it found
//! nothing; at the end of the text there is nothing.

/// Reads one statement from its start.
#[derive(Debug, Clone)]
pub(super) struct Scanner<'a> {
    rest: &'a [u8],
    /// Inside `/*! ... */`, whose content the server ran as if it stood outside.
    in_executable_comment: bool,
}

/// A piece of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A keyword, a name without quotes or a number.
    Word(&'a [u8]),
    /// A literal or a name in quotes.
    Quoted,
    Symbol(u8),
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self {
            rest: text,
            in_executable_comment: false,
        }
    }

    /// What was not read yet.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Goes on at `rest`, a later part of the same text.
    pub(super) fn go_on_at(&mut self, rest: &'a [u8]) {
        self.rest = rest;
    }

    /// Nothing follows but white space, comments and a semicolon.
    pub(super) fn at_end(&mut self) -> bool {
        self.skip_blanks();
        matches!(self.rest, [] | [b';', ..])
    }

    /// Reads a word, if one follows.
    pub(super) fn word(&mut self) -> Option<&'a [u8]> {
        self.skip_blanks();
        let length = self.rest.iter().take_while(|byte| is_word_byte(**byte)).count();
        let (word, behind) = self.rest.split_at(length);
        self.rest = behind;
        (!word.is_empty()).then_some(word)
    }

    /// Reads `keyword`, which is in upper case, if it follows.
    pub(super) fn accept(&mut self, keyword: &str) -> bool {
        self.accept_any(&[keyword])
    }

    /// Reads one of `keywords`, if one follows.
    pub(super) fn accept_any(&mut self, keywords: &[&str]) -> bool {
        let mut ahead = self.clone();
        let found = ahead.word().is_some_and(|word| {
            keywords
                .iter()
                .any(|keyword| word.eq_ignore_ascii_case(keyword.as_bytes()))
        });
        if found {
            *self = ahead;
        }
        found
    }

    /// Reads `symbol`, if it follows.
    pub(super) fn accept_symbol(&mut self, symbol: u8) -> bool {
        self.skip_blanks();
        let behind = self.rest.strip_prefix(&[symbol]);
        self.rest = behind.unwrap_or(self.rest);
        behind.is_some()
    }

    /// Reads a name: bare, in backquotes, or in double quotes, which are a name's under sql_mode ANSI_QUOTES. None as
    /// well if it is not UTF-8: what it names can't be told.
    pub(super) fn name(&mut self) -> Option<String> {
        self.skip_blanks();
        let name = match self.rest {
            [quote @ (b'`' | b'"'), content @ ..] => self.quoted_name(content, *quote)?,
            _ => self.word()?.to_owned(),
        };
        String::from_utf8(name).ok()
    }

    /// A quote in the name is doubled.
    fn quoted_name(&mut self, content: &'a [u8], quote: u8) -> Option<Vec<u8>> {
        let mut name = Vec::new();
        let mut rest = content;
        loop {
            let mut parts = rest.splitn(2, |byte| *byte == quote);
            let (part, behind) = (parts.next()?, parts.next()?);
            name.extend_from_slice(part);
            let Some(doubled) = behind.strip_prefix(&[quote]) else {
                self.rest = behind;
                return Some(name);
            };
            name.push(quote);
            rest = doubled;
        }
    }

    /// Reads one token whatever it is. None at the end, and where it can't be told where a literal ends.
    pub(super) fn token(&mut self) -> Option<Token<'a>> {
        if let Some(word) = self.word() {
            return Some(Token::Word(word));
        }
        let (&first, behind) = self.rest.split_first()?;
        match first {
            b'`' => self.quoted_name(behind, first).map(|_| Token::Quoted),
            b'\'' | b'"' => {
                self.rest = behind_literal(behind, first)?;
                Some(Token::Quoted)
            }
            _ => {
                self.rest = behind;
                Some(Token::Symbol(first))
            }
        }
    }

    /// Reads a list in parentheses, if one follows, to its end. None if it has no end.
    pub(super) fn skip_parentheses(&mut self) -> Option<()> {
        if !self.accept_symbol(b'(') {
            return Some(());
        }
        let mut depth = 1_usize;
        while depth > 0 {
            match self.token()? {
                Token::Symbol(b'(') => depth += 1,
                Token::Symbol(b')') => depth -= 1,
                _ => {}
            }
        }
        Some(())
    }

    /// White space, comments, and the marks around an executable comment's content.
    fn skip_blanks(&mut self) {
        loop {
            self.rest = match self.rest {
                [b' ' | b'\t'..=b'\r', behind @ ..] => behind,
                [b'#', behind @ ..] => behind_line(behind),
                [b'-', b'-', behind @ ..] if behind.first().is_none_or(|byte| *byte <= b' ') => behind_line(behind),
                [b'/', b'*', b'!', behind @ ..] | [b'/', b'*', b'M', b'!', behind @ ..] => {
                    self.in_executable_comment = true;
                    behind_version(behind)
                }
                [b'/', b'*', behind @ ..] => behind_comment(behind),
                [b'*', b'/', behind @ ..] if self.in_executable_comment => {
                    self.in_executable_comment = false;
                    behind
                }
                _ => return,
            };
        }
    }
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 0x80..)
}

/// None if the literal has no end, or one that depends on sql_mode: a backslash escapes a quote unless there is
/// NO_BACKSLASH_ESCAPES. A doubled quote reads as the end of one literal and the start of the next.
fn behind_literal(mut text: &[u8], quote: u8) -> Option<&[u8]> {
    loop {
        text = match text {
            [byte, behind @ ..] if *byte == quote => return Some(behind),
            [b'\\', byte, ..] if *byte == quote => return None,
            [b'\\', _, behind @ ..] | [_, behind @ ..] => behind,
            [] => return None,
        };
    }
}

fn behind_line(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len());
    &text[end..]
}

/// The server's version from which on the content counts: five or six digits.
fn behind_version(text: &[u8]) -> &[u8] {
    let length = text.iter().take(6).take_while(|byte| byte.is_ascii_digit()).count();
    &text[length..]
}

fn behind_comment(text: &[u8]) -> &[u8] {
    let end = text.windows(2).position(|mark| mark == b"*/");
    end.map_or(&[], |end| &text[end + 2..])
}
