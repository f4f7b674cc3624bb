//! Python's methods of strings, lists and dicts, tests and filters that minijinja lacks, or has for fewer values than jinja2.

use std::borrow::Cow;

use minijinja::{
    Environment, Error, ErrorKind, State, filters,
    value::{Kwargs, Rest, Tuple, Value, ValueKind, from_args},
};
use minijinja_contrib::{
    globals::{cycler, joiner},
    pycompat::unknown_method_callback,
};

use super::{builtins::check, python_format};

pub(super) fn install(environment: &mut Environment<'_>) {
    environment.add_test("iterable", is_iterable);
    environment.add_test("sequence", is_sequence);
    environment.add_filter("length", length);
    environment.add_filter("count", length);
    environment.add_filter("first", |value: &Value| or_undefined(value, filters::first));
    environment.add_filter("last", |value: &Value| or_undefined(value, |value| filters::last(value.clone())));
    environment.add_function("cycler", |items: Rest<Value>| cycler(items.0));
    environment.add_function("joiner", joiner);
}

/// Whether Python's `iter` takes the value: nothing is no list there, but what is undefined is one without items.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// Whether the value has a length and items by index or key.
fn is_sequence(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::String | ValueKind::Seq | ValueKind::Map | ValueKind::Bytes | ValueKind::Undefined
    )
}

fn length(value: &Value) -> Result<usize, Error> {
    if value.is_undefined() { Ok(0) } else { filters::length(value) }
}

/// What a filter makes of a value, and nothing of what is undefined, which is an empty list to jinja2.
pub(super) fn or_undefined(value: &Value, filter: impl Fn(&Value) -> Result<Value, Error>) -> Result<Value, Error> {
    if value.is_undefined() { Ok(Value::UNDEFINED) } else { filter(value) }
}

/// The filter `center`.
pub(super) fn center(value: &Value, width: usize) -> Result<Value, Error> {
    align(python_format::string(value)?.as_str().unwrap_or_default(), width, " ", Side::Both)
}

/// Calls the method of this name, its arguments in their places.
pub(super) fn call(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let own = match (value.kind(), value.as_str()) {
        (_, Some(text)) => of_string(text, name, args),
        (ValueKind::Seq, _) => of_list(value, name, args),
        (ValueKind::Map, _) if name == "copy" => Some(from_args::<()>(args).map(|()| value.clone())),
        _ => None,
    };
    own.unwrap_or_else(|| unknown_method_callback(state, value, name, args))
}

/// Puts arguments that are given by name in the places that they have.
pub(super) fn positional<'a>(name: &str, args: &'a [Value]) -> Result<Cow<'a, [Value]>, Error> {
    let names: &[&str] = match name {
        "split" | "rsplit" => &["sep", "maxsplit"],
        "splitlines" => &["keepends"],
        _ => return Ok(args.into()),
    };
    let (given, named): (Rest<Value>, Kwargs) = from_args(args)?;
    let mut args = given.0;
    for name in names.iter().skip(args.len()) {
        args.push(named.get::<Option<Value>>(name)?.unwrap_or_else(|| ().into()));
    }
    named.assert_all_used()?;
    Ok(args.into())
}

fn of_list(value: &Value, name: &str, args: &[Value]) -> Option<Result<Value, Error>> {
    Some(match name {
        "copy" => from_args::<()>(args).map(|()| value.clone()),
        "index" => from_args::<(&Value,)>(args).and_then(|(wanted,)| {
            let place = value.try_iter()?.position(|item| item == *wanted);
            place.map(Value::from).ok_or_else(|| missing("the value is not in the list"))
        }),
        _ => return None,
    })
}

fn of_string(text: &str, name: &str, args: &[Value]) -> Option<Result<Value, Error>> {
    Some(match name {
        "split" if args.first().is_none_or(Value::is_none) => {
            from_args::<(Option<&str>, Option<i64>)>(args).map(|(_, most)| split(text, times(most)))
        }
        "rsplit" => {
            from_args::<(Option<&str>, Option<i64>)>(args).and_then(|(mark, most)| rsplit(text, mark, times(most)))
        }
        "partition" => from_args::<(&str,)>(args).and_then(|(mark,)| match split_at(text, mark, text.find(mark))? {
            Some(parts) => Ok(tuple(parts)),
            None => Ok(tuple([text, "", ""])),
        }),
        "rpartition" => from_args::<(&str,)>(args).and_then(|(mark,)| match split_at(text, mark, text.rfind(mark))? {
            Some(parts) => Ok(tuple(parts)),
            None => Ok(tuple(["", "", text])),
        }),
        "removeprefix" => from_args::<(&str,)>(args).map(|(start,)| text.strip_prefix(start).unwrap_or(text).into()),
        "removesuffix" => from_args::<(&str,)>(args).map(|(end,)| text.strip_suffix(end).unwrap_or(text).into()),
        "index" => from_args::<(&str,)>(args).and_then(|(part,)| place(text, text.find(part))),
        "rindex" => from_args::<(&str,)>(args).and_then(|(part,)| place(text, text.rfind(part))),
        "zfill" => from_args::<(usize,)>(args).and_then(|(width,)| zfill(text, width)),
        "ljust" => aligned(text, args, Side::Right),
        "rjust" => aligned(text, args, Side::Left),
        "center" => aligned(text, args, Side::Both),
        "title" => from_args::<()>(args).map(|()| titled(text).into()),
        "swapcase" => from_args::<()>(args).map(|()| swapped(text).into()),
        _ => return None,
    })
}

fn missing(what: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, what.to_owned())
}

fn tuple(parts: [&str; 3]) -> Value {
    Value::from(Tuple::from(parts.map(Value::from).to_vec()))
}

fn split_at<'t>(text: &'t str, mark: &'t str, at: Option<usize>) -> Result<Option<[&'t str; 3]>, Error> {
    if mark.is_empty() {
        return Err(missing("the separator is empty"));
    }
    Ok(at.map(|at| [&text[..at], mark, &text[at + mark.len()..]]))
}

/// A place in bytes as one in characters.
fn place(text: &str, at: Option<usize>) -> Result<Value, Error> {
    at.map(|at| text[..at].chars().count().into()).ok_or_else(|| missing("the text is not there"))
}

/// How often a text may be split: a negative number is no bound.
fn times(most: Option<i64>) -> usize {
    most.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX)
}

/// At runs of white space.
fn split(text: &str, most: usize) -> Value {
    let (mut parts, mut rest) = (vec![], text.trim_start());
    while let Some((part, after)) = rest.split_once(char::is_whitespace).filter(|_| parts.len() < most) {
        parts.push(part);
        rest = after.trim_start();
    }
    parts.extend((!rest.is_empty()).then_some(rest));
    parts.into_iter().collect()
}

/// From the end; without a mark, at runs of white space.
fn rsplit(text: &str, mark: Option<&str>, most: usize) -> Result<Value, Error> {
    let (mut parts, mut rest) = (vec![], text);
    match mark {
        Some("") => return Err(missing("the separator is empty")),
        Some(mark) => {
            while let Some((before, part)) = rest.rsplit_once(mark).filter(|_| parts.len() < most) {
                parts.push(part);
                rest = before;
            }
            parts.push(rest);
        }
        None => {
            rest = rest.trim_end();
            while let Some((before, part)) = rest.rsplit_once(char::is_whitespace).filter(|_| parts.len() < most) {
                parts.push(part);
                rest = before.trim_end();
            }
            parts.extend((!rest.is_empty()).then_some(rest));
        }
    }
    Ok(parts.into_iter().rev().collect())
}

enum Side {
    Left,
    Right,
    Both,
}

fn aligned(text: &str, args: &[Value], side: Side) -> Result<Value, Error> {
    let (width, fill) = from_args::<(usize, Option<&str>)>(args)?;
    align(text, width, fill.unwrap_or(" "), side)
}

/// As Python fills up: of an odd filling on both sides, the larger half goes before the text where the width is odd, too.
fn align(text: &str, width: usize, fill: &str, side: Side) -> Result<Value, Error> {
    check(Some(width))?;
    if fill.chars().count() != 1 {
        return Err(missing("the fill must be one character"));
    }
    let filling = width.saturating_sub(text.chars().count());
    let before = match side {
        Side::Left => filling,
        Side::Right => 0,
        Side::Both => filling / 2 + (filling & width & 1),
    };
    Ok([&fill.repeat(before), text, &fill.repeat(filling - before)].concat().into())
}

/// Zeros between the sign and the rest.
fn zfill(text: &str, width: usize) -> Result<Value, Error> {
    let rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    let sign = &text[..text.len() - rest.len()];
    let filled = align(rest, width.saturating_sub(sign.len()), "0", Side::Left)?;
    Ok(format!("{sign}{filled}").into())
}

/// Capitals where a word of letters begins.
fn titled(text: &str) -> String {
    let (mut titled, mut within) = (String::with_capacity(text.len()), false);
    for char in text.chars() {
        if within {
            titled.extend(char.to_lowercase());
        } else {
            titled.extend(char.to_uppercase());
        }
        within = char.is_alphabetic();
    }
    titled
}

fn swapped(text: &str) -> String {
    let mut swapped = String::with_capacity(text.len());
    for char in text.chars() {
        if char.is_uppercase() {
            swapped.extend(char.to_lowercase());
        } else {
            swapped.extend(char.to_uppercase());
        }
    }
    swapped
}
