//! JSON changed at the places that paths lead to, and nowhere else: what no path leads to is copied byte for byte.
//!
//! One pass for all paths. It goes into a value only as deep as a path does, so it takes stack by the longest path's steps, whatever
//! the document's depth.

use super::Name;
use super::scan::Scanner;
use crate::config::path::Step;

/// A text that is not one JSON value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::processor) struct NotJson;

/// What a path led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::processor) enum Place<'a> {
    /// The value at its end.
    Value(&'a str),
    /// A value, other than null, that has nothing inside it for the next step. It is left.
    DeadEnd(&'a str),
}

/// What becomes of the value at a path's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::processor) enum Verdict {
    /// This path has no say in it; others have their turn.
    Left,
    /// It stays as it is.
    Kept,
    /// It is replaced by what was written.
    Replaced,
    /// It is taken out of what it is in, with its comma.
    Removed,
}

/// Changes a text that is one JSON value. `paths` are walked from the step of their number on; where several lead to one value, the
/// first counts that does not leave it, and outer values come before inner ones. `visit` is given the path's place in `paths` and
/// writes what is to replace the value, as JSON.
/// None: nothing was changed.
///
/// # Errors
/// The text is no JSON.
pub(in crate::processor) fn edited<'a>(
    text: &'a str,
    paths: &[(&[Step], usize)],
    visit: impl FnMut(usize, Place<'a>, &mut Vec<u8>) -> Verdict,
) -> Result<Option<Vec<u8>>, NotJson> {
    let mut editor = Editor {
        text,
        scanner: Scanner::new(text),
        paths,
        under_way: Vec::with_capacity(2 * paths.len()),
        visit,
        replacement: Vec::new(),
        out: Vec::new(),
        copied: 0,
    };
    let all = paths
        .iter()
        .enumerate()
        .filter(|(_, (steps, done))| *done < steps.len());
    editor.under_way.extend(all.map(|(path, (_, done))| (path, *done)));
    editor.scanner.skip_space();
    editor.value(0).ok_or(NotJson)?;
    editor.scanner.skip_space();
    if !editor.scanner.is_at_end() {
        return Err(NotJson);
    }
    Ok((editor.copied > 0).then(|| {
        editor.copy_up_to(text.len());
        editor.out
    }))
}

struct Editor<'a, 'p, F> {
    text: &'a str,
    scanner: Scanner<'a>,
    paths: &'p [(&'p [Step], usize)],
    /// The paths that lead to the value at hand, and those to the values around it, each with the number of steps that are done.
    under_way: Vec<(usize, usize)>,
    visit: F,
    replacement: Vec<u8>,
    out: Vec<u8>,
    /// Up to where the text is in `out`, or left out for good. 0: nothing was changed, since a change ends behind a value.
    copied: usize,
}

impl<'a, F: FnMut(usize, Place<'a>, &mut Vec<u8>) -> Verdict> Editor<'a, '_, F> {
    /// Passes over the value that begins here, and changes it. `from`: where the paths to it begin in `under_way`.
    /// Whether it is to be removed.
    fn value(&mut self, from: usize) -> Option<bool> {
        if self.under_way.len() == from {
            self.scanner.value()?;
            return Some(false);
        }
        let begin = self.scanner.position();
        let opens = self.scanner.peek();
        let mut goes_on = false;
        for index in from..self.under_way.len() {
            let (path, done) = self.under_way[index];
            let is_end = match (self.paths[path].0.get(done), opens) {
                (None, _) => true,
                (Some(Step::Member(_)), Some(b'{')) | (Some(Step::Item(_) | Step::EveryItem), Some(b'[')) => {
                    goes_on = true;
                    continue;
                }
                (Some(_), Some(b'n')) => continue,
                (Some(_), _) => false,
            };
            let mut behind = self.scanner.clone();
            let value = behind.value()?;
            self.replacement.clear();
            if !is_end {
                (self.visit)(path, Place::DeadEnd(value), &mut self.replacement);
                continue;
            }
            match (self.visit)(path, Place::Value(value), &mut self.replacement) {
                Verdict::Left => {}
                Verdict::Kept => {
                    self.scanner = behind;
                    return Some(false);
                }
                Verdict::Replaced => {
                    self.copy_up_to(begin);
                    self.out.extend_from_slice(&self.replacement);
                    self.copied = behind.position();
                    self.scanner = behind;
                    return Some(false);
                }
                Verdict::Removed => {
                    self.scanner = behind;
                    return Some(true);
                }
            }
        }
        match opens {
            Some(b'{') if goes_on => {
                self.container(from, b'}', |scanner, _| Some(Inside::Named(Name(scanner.name()?))))
            }
            Some(b'[') if goes_on => self.container(from, b']', |_, index| Some(Inside::Item(index))),
            _ => self.scanner.value().map(drop),
        }?;
        Some(false)
    }

    /// Goes through an object's members or an array's items.
    fn container(
        &mut self,
        from: usize,
        closing: u8,
        inside: impl Fn(&mut Scanner<'a>, usize) -> Option<Inside<'a>>,
    ) -> Option<()> {
        self.scanner.next()?;
        self.scanner.skip_space();
        if self.scanner.takes(closing) {
            return Some(());
        }
        let to = self.under_way.len();
        let mut keeps_any = false;
        let mut comma = 0;
        // Where the last one begins, while all so far are removed: that goes with the comma and the blanks behind it.
        let mut first = None;
        for index in 0.. {
            let begin = self.scanner.position();
            if let Some(first) = first.take() {
                self.cut(first, begin);
            }
            let inside = inside(&mut self.scanner, index)?;
            for at in from..to {
                let (path, done) = self.under_way[at];
                if self.paths[path].0.get(done).is_some_and(|step| inside.is(step)) {
                    self.under_way.push((path, done + 1));
                }
            }
            let is_removed = self.value(to)?;
            self.under_way.truncate(to);
            let end = self.scanner.position();
            match (is_removed, keeps_any) {
                (true, true) => self.cut(comma, end),
                (true, false) => first = Some(begin),
                (false, _) => keeps_any = true,
            }
            self.scanner.skip_space();
            if self.scanner.takes(closing) {
                if let Some(first) = first {
                    self.cut(first, end);
                }
                break;
            }
            comma = self.scanner.position();
            if !self.scanner.takes(b',') {
                return None;
            }
            self.scanner.skip_space();
        }
        Some(())
    }

    fn copy_up_to(&mut self, end: usize) {
        let text = self.text.as_bytes().get(self.copied..end).unwrap_or_default();
        self.out.extend_from_slice(text);
        self.copied = end;
    }

    /// Leaves a part of the text out.
    fn cut(&mut self, from: usize, to: usize) {
        self.copy_up_to(from);
        self.copied = to;
    }
}

/// A place in a container.
#[derive(Clone, Copy)]
enum Inside<'a> {
    Named(Name<'a>),
    Item(usize),
}

impl Inside<'_> {
    fn is(self, step: &Step) -> bool {
        match (self, step) {
            (Self::Named(name), Step::Member(member)) => name.is(member),
            (Self::Item(index), Step::Item(item)) => index == *item,
            (Self::Item(_), Step::EveryItem) => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
