//! JSON as it comes out of Kafka Connect once it was taken apart into Connect's own data, which is what Debezium's event
//! router does to a payload that it expands.
//!
//! Connect's data has shapes: an array's items are of one kind, its objects have the same members, and a member of no shape
//! (null, an empty array) is left out or kept as asked. Text that fits no shape is not expanded. Where the way through
//! Connect would lose something, this does not: objects inside the objects of an array are brought to one shape as those
//! are, an integer beyond 64 bits keeps its digits, and an array that is no member of anything is only made compact.

use std::collections::HashMap;
use std::rc::Rc;

use super::compact::compact;
use super::double::java_text;
use super::rewrite_connect_string;
use super::scan::Scanner;
use crate::config::pipeline::LeftOut;

/// Nothing that is deeper is expanded, since each level takes some of the stack. (Jackson's limit is 1000.)
const MAX_DEPTH: usize = 200;
/// So many names are looked through one by one.
const FEW: usize = 16;

/// None: the text is no object or array from its first byte on, or it cannot be expanded.
pub(in crate::processor) fn expanded(text: &str, left_out: LeftOut) -> Option<Vec<u8>> {
    if text.starts_with('[') {
        return compact(text, left_out);
    }
    if !text.starts_with('{') {
        return None;
    }
    let mut scanner = Scanner::new(text);
    let node = Node::read(&mut scanner, 1)?;
    scanner.skip_space();
    if !scanner.is_at_end() {
        return None;
    }
    let Inferred::Shape(shape) = Shape::infer(&node, left_out)? else {
        return None;
    };
    let mut out = Vec::with_capacity(text.len());
    node.write(&mut out, Some(&shape));
    Some(out)
}

/// Writes a number: an integer's digits, anything else as Java prints a double.
pub(in crate::processor) fn write_number(out: &mut Vec<u8>, text: &str) {
    match text {
        "-0" => out.push(b'0'),
        _ if is_integer(text) => out.extend_from_slice(text.as_bytes()),
        _ => match text.parse::<f64>() {
            Ok(number) if number.is_finite() => out.extend_from_slice(java_text(number).as_bytes()),
            _ if text.starts_with('-') => out.extend_from_slice(br#""-Infinity""#),
            _ => out.extend_from_slice(br#""Infinity""#),
        },
    }
}

fn is_integer(number: &str) -> bool {
    !number.contains(['.', 'e', 'E'])
}

/// Members in the order in which their names came first.
#[derive(Debug)]
struct Members<T> {
    list: Vec<(Rc<[u8]>, T)>,
    /// Empty while there are few.
    places: HashMap<Rc<[u8]>, usize>,
}

impl<T> Default for Members<T> {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            places: HashMap::new(),
        }
    }
}

impl<T> Members<T> {
    fn place(&self, name: &[u8]) -> Option<usize> {
        match self.list.len() {
            0..=FEW => self.list.iter().position(|(known, _)| **known == *name),
            _ => self.places.get(name).copied(),
        }
    }

    fn get(&self, name: &[u8]) -> Option<&T> {
        self.place(name)
            .and_then(|place| self.list.get(place))
            .map(|(_, value)| value)
    }

    /// Of a name that is not there yet.
    fn push(&mut self, name: Rc<[u8]>, value: T) {
        self.list.push((name, value));
        if self.list.len() > FEW {
            let known = self.places.len();
            let new = self.list.iter().enumerate().skip(known);
            self.places
                .extend(new.map(|(place, (name, _))| (Rc::clone(name), place)));
        }
    }
}

/// A value, as it is written.
#[derive(Debug)]
enum Node<'a> {
    Null,
    Scalar(Scalar, &'a str),
    Array(Vec<Node<'a>>),
    /// By their names as they are to be written.
    Object(Members<Node<'a>>),
}

/// What values of one kind can stand in one array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scalar {
    Boolean,
    Text,
    Int32,
    Int64,
    /// Also an integer beyond 64 bits.
    Double,
}

impl<'a> Node<'a> {
    /// Reads the value that begins here. None: it is no JSON, or too deep.
    fn read(scanner: &mut Scanner<'a>, depth: usize) -> Option<Self> {
        if matches!(scanner.peek()?, b'{' | b'[') && depth > MAX_DEPTH {
            return None;
        }
        match scanner.peek()? {
            b'{' => Self::read_object(scanner, depth).map(Self::Object),
            b'[' => Self::read_array(scanner, depth).map(Self::Array),
            first => {
                let text = scanner.value()?;
                Some(match first {
                    b'n' => Self::Null,
                    b't' | b'f' => Self::Scalar(Scalar::Boolean, text),
                    b'"' => Self::Scalar(Scalar::Text, text),
                    _ => Self::Scalar(Scalar::of_number(text), text),
                })
            }
        }
    }

    fn read_object(scanner: &mut Scanner<'a>, depth: usize) -> Option<Members<Self>> {
        let mut members = Members::default();
        scanner.takes(b'{');
        scanner.skip_space();
        let mut ends = scanner.takes(b'}');
        while !ends {
            let mut name = Vec::new();
            rewrite_connect_string(&mut name, scanner.name()?.quoted);
            let value = Self::read(scanner, depth + 1)?;
            match members.place(&name) {
                Some(place) => members.list[place].1 = value,
                None => members.push(Rc::from(name), value),
            }
            ends = ends_here(scanner, b'}')?;
        }
        Some(members)
    }

    fn read_array(scanner: &mut Scanner<'a>, depth: usize) -> Option<Vec<Self>> {
        let mut items = Vec::new();
        scanner.takes(b'[');
        scanner.skip_space();
        let mut ends = scanner.takes(b']');
        while !ends {
            items.push(Self::read(scanner, depth + 1)?);
            ends = ends_here(scanner, b']')?;
        }
        Some(items)
    }

    /// Writes the value in a shape that it was brought into. None: of an array that says nothing of its items.
    fn write(&self, out: &mut Vec<u8>, shape: Option<&Shape>) {
        match self {
            Self::Null => out.extend_from_slice(b"null"),
            Self::Scalar(Scalar::Boolean, text) => out.extend_from_slice(text.as_bytes()),
            Self::Scalar(Scalar::Text, quoted) => rewrite_connect_string(out, quoted),
            Self::Scalar(Scalar::Int32 | Scalar::Int64 | Scalar::Double, text) => write_number(out, text),
            Self::Array(items) => {
                let inside = match shape {
                    Some(Shape::Array(inside)) => inside.as_deref(),
                    _ => None,
                };
                write_list(out, *b"[]", items, |out, item| item.write(out, inside));
            }
            Self::Object(members) => match shape {
                Some(Shape::Object(shapes)) => write_list(out, *b"{}", &shapes.list, |out, (name, shape)| {
                    write_name(out, name);
                    members.get(name).unwrap_or(&Self::Null).write(out, Some(shape));
                }),
                _ => write_list(out, *b"{}", &members.list, |out, (name, value)| {
                    write_name(out, name);
                    value.write(out, None);
                }),
            },
        }
    }
}

/// Passes over what is behind an item: a comma, or the end.
fn ends_here(scanner: &mut Scanner<'_>, end: u8) -> Option<bool> {
    scanner.skip_space();
    if scanner.takes(end) {
        return Some(true);
    }
    let goes_on = scanner.takes(b',');
    scanner.skip_space();
    goes_on.then_some(false)
}

fn write_list<T>(out: &mut Vec<u8>, [begin, end]: [u8; 2], items: &[T], mut write: impl FnMut(&mut Vec<u8>, &T)) {
    out.push(begin);
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write(out, item);
    }
    out.push(end);
}

fn write_name(out: &mut Vec<u8>, name: &[u8]) {
    out.extend_from_slice(name);
    out.push(b':');
}

impl Scalar {
    fn of_number(text: &str) -> Self {
        match (is_integer(text), text.parse::<i64>()) {
            (true, Ok(number)) if i32::try_from(number).is_ok() => Self::Int32,
            (true, Ok(_)) => Self::Int64,
            _ => Self::Double,
        }
    }
}

/// What all items of an array, or a member in all objects of one, have in common.
#[derive(Debug)]
enum Shape {
    /// Fits any other.
    Null,
    Scalar(Scalar),
    /// None: nothing is known of its items.
    Array(Option<Box<Shape>>),
    Object(Members<Shape>),
}

/// What a value says of its shape.
enum Inferred {
    Shape(Shape),
    /// An empty array, which is left out where it is a member.
    Empty,
    /// An array of nothing but nulls, which has no shape where nulls have none.
    Nulls,
}

impl Shape {
    /// None: there is none.
    fn infer(node: &Node<'_>, left_out: LeftOut) -> Option<Inferred> {
        let shape = match node {
            Node::Null => Self::Null,
            Node::Scalar(scalar, _) => Self::Scalar(*scalar),
            Node::Array(items) if items.is_empty() => {
                if left_out.empty_arrays {
                    return Some(Inferred::Empty);
                }
                Self::Array(None)
            }
            Node::Array(items) => {
                let mut common: Option<Self> = None;
                for item in items.iter().filter(|item| !matches!(item, Node::Null)) {
                    common = match (Self::infer(item, left_out)?, common) {
                        (Inferred::Shape(shape), None) => Some(shape),
                        (Inferred::Shape(shape), Some(common)) => Some(common.merge(shape)?),
                        // The first item is what says the shape.
                        (Inferred::Empty | Inferred::Nulls, None) => return None,
                        (Inferred::Empty | Inferred::Nulls, common) => common,
                    };
                }
                if common.is_none() && left_out.null_members {
                    return Some(Inferred::Nulls);
                }
                Self::Array(Some(Box::new(common.unwrap_or(Self::Null))))
            }
            Node::Object(members) => {
                let mut shapes = Members::default();
                for (name, value) in &members.list {
                    let shape = match (value, Self::infer(value, left_out)?) {
                        (Node::Null, _) if left_out.null_members => continue,
                        (_, Inferred::Empty) => continue,
                        (_, Inferred::Nulls) => return None,
                        (_, Inferred::Shape(shape)) => shape,
                    };
                    // Connect has no such member.
                    if **name == *br#""""# {
                        return None;
                    }
                    shapes.push(Rc::clone(name), shape);
                }
                Self::Object(shapes)
            }
        };
        Some(Inferred::Shape(shape))
    }

    /// The shape that both fit. None: there is none.
    fn merge(self, other: Self) -> Option<Self> {
        Some(match (self, other) {
            (Self::Null, shape) | (shape, Self::Null) => shape,
            (Self::Scalar(scalar), Self::Scalar(other)) if scalar == other => Self::Scalar(scalar),
            (Self::Array(inside), Self::Array(other)) => Self::Array(match (inside, other) {
                (Some(inside), Some(other)) => Some(Box::new(inside.merge(*other)?)),
                (inside, other) => inside.or(other),
            }),
            (Self::Object(members), Self::Object(others)) => {
                let mut members = members;
                for (name, shape) in others.list {
                    match members.place(&name) {
                        None => members.push(name, shape),
                        Some(place) => {
                            let known = &mut members.list[place].1;
                            *known = std::mem::replace(known, Self::Null).merge(shape)?;
                        }
                    }
                }
                Self::Object(members)
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests;
