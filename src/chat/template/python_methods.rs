//! Adds the methods, tests and filters of Python and jinja2 that minijinja lacks, or that it
//! defines for fewer values.

use std::borrow::Cow;

use minijinja::{
    Environment, Error, ErrorKind, State, filters,
    value::{Kwargs, Rest, Tuple, Value, ValueKind, from_args},
};
use minijinja_contrib::{
    globals::{cycler, joiner},
    pycompat::unknown_method_callback,
};

use super::{budget::check_width, python_format};

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

/// Returns whether Python's `iter` accepts the value. `none` is not iterable; an undefined value is
/// an empty iterable.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// Returns whether the value has a length and items by index or key.
fn is_sequence(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::String | ValueKind::Seq | ValueKind::Map | ValueKind::Bytes | ValueKind::Undefined
    )
}

fn length(value: &Value) -> Result<usize, Error> {
    if value.is_undefined() { Ok(0) } else { filters::length(value) }
}

/// Returns the filter's result, or undefined for an undefined value, which is an empty list in
/// jinja2.
pub(super) fn or_undefined(value: &Value, filter: impl Fn(&Value) -> Result<Value, Error>) -> Result<Value, Error> {
    if value.is_undefined() { Ok(Value::UNDEFINED) } else { filter(value) }
}

/// The filter `center`.
pub(super) fn center(value: &Value, width: usize) -> Result<Value, Error> {
    align(python_format::string(value)?.as_str().unwrap_or_default(), width, " ", PadSide::Both)
}

/// Calls the method `name` with positional arguments.
pub(super) fn call(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let own = match (value.kind(), value.as_str()) {
        (_, Some(text)) => of_string(text, name, args),
        (ValueKind::Seq, _) => of_list(value, name, args),
        (ValueKind::Map, _) if name == "copy" => Some(from_args::<()>(args).map(|()| value.clone())),
        _ => None,
    };
    own.unwrap_or_else(|| unknown_method_callback(state, value, name, args))
}

/// Converts keyword arguments into positional ones.
pub(super) fn positional<'a>(name: &str, args: &'a [Value]) -> Result<Cow<'a, [Value]>, Error> {
    let names: &[&str] = match name {
        "split" | "rsplit" => &["sep", "maxsplit"],
        "splitlines" => &["keepends"],
        _ => return Ok(args.into()),
    };
    let (positional, named): (Rest<Value>, Kwargs) = from_args(args)?;
    let mut args = positional.0;
    for name in names.iter().skip(args.len()) {
        args.push(named.get::<Option<Value>>(name)?.unwrap_or_else(|| ().into()));
    }
    named.assert_all_used()?;
    Ok(args.into())
}

fn of_list(value: &Value, name: &str, args: &[Value]) -> Option<Result<Value, Error>> {
    Some(match name {
        "copy" => from_args::<()>(args).map(|()| value.clone()),
        "index" => from_args::<(&Value,)>(args).and_then(|(sought,)| {
            let index = value.try_iter()?.position(|item| item == *sought);
            index.map(Value::from).ok_or_else(|| invalid("the value is not in the list"))
        }),
        _ => return None,
    })
}

fn of_string(text: &str, name: &str, args: &[Value]) -> Option<Result<Value, Error>> {
    Some(match name {
        "split" if args.first().is_none_or(Value::is_none) => {
            from_args::<(Option<&str>, Option<i64>)>(args).map(|(_, limit)| split(text, split_limit(limit)))
        }
        "rsplit" => from_args::<(Option<&str>, Option<i64>)>(args)
            .and_then(|(separator, limit)| rsplit(text, separator, split_limit(limit))),
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
        "index" => from_args::<(&str,)>(args).and_then(|(part,)| char_index(text, text.find(part))),
        "rindex" => from_args::<(&str,)>(args).and_then(|(part,)| char_index(text, text.rfind(part))),
        "zfill" => from_args::<(usize,)>(args).and_then(|(width,)| zfill(text, width)),
        "ljust" => aligned(text, args, PadSide::Right),
        "rjust" => aligned(text, args, PadSide::Left),
        "center" => aligned(text, args, PadSide::Both),
        "title" => from_args::<()>(args).map(|()| title_case(text).into()),
        "swapcase" => from_args::<()>(args).map(|()| swap_case(text).into()),
        _ => return None,
    })
}

fn invalid(what: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, what.to_owned())
}

fn tuple(parts: [&str; 3]) -> Value {
    Value::from(Tuple::from(parts.map(Value::from).to_vec()))
}

fn split_at<'t>(text: &'t str, mark: &'t str, at: Option<usize>) -> Result<Option<[&'t str; 3]>, Error> {
    if mark.is_empty() {
        return Err(invalid("the separator must not be empty"));
    }
    Ok(at.map(|at| [&text[..at], mark, &text[at + mark.len()..]]))
}

/// Converts an offset in bytes into one in characters; an error for `None`.
fn char_index(text: &str, at: Option<usize>) -> Result<Value, Error> {
    at.map(|at| text[..at].chars().count().into()).ok_or_else(|| invalid("the text does not contain the substring"))
}

/// Returns the largest number of splits: without limit if it is negative or missing.
fn split_limit(limit: Option<i64>) -> usize {
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

/// Splits a text at runs of white space, at most `limit` times.
fn split(text: &str, limit: usize) -> Value {
    let (mut parts, mut rest) = (vec![], text.trim_start());
    while let Some((part, after)) = rest.split_once(char::is_whitespace).filter(|_| parts.len() < limit) {
        parts.push(part);
        rest = after.trim_start();
    }
    parts.extend((!rest.is_empty()).then_some(rest));
    parts.into_iter().collect()
}

/// Splits a text from its end, at most `limit` times; without a separator, at runs of white space.
fn rsplit(text: &str, separator: Option<&str>, limit: usize) -> Result<Value, Error> {
    let (mut parts, mut rest) = (vec![], text);
    match separator {
        Some("") => return Err(invalid("the separator must not be empty")),
        Some(separator) => {
            while let Some((before, part)) = rest.rsplit_once(separator).filter(|_| parts.len() < limit) {
                parts.push(part);
                rest = before;
            }
            parts.push(rest);
        }
        None => {
            rest = rest.trim_end();
            while let Some((before, part)) = rest.rsplit_once(char::is_whitespace).filter(|_| parts.len() < limit) {
                parts.push(part);
                rest = before.trim_end();
            }
            parts.extend((!rest.is_empty()).then_some(rest));
        }
    }
    Ok(parts.into_iter().rev().collect())
}

/// The side of a text that is padded.
enum PadSide {
    Left,
    Right,
    Both,
}

fn aligned(text: &str, args: &[Value], side: PadSide) -> Result<Value, Error> {
    let (width, fill) = from_args::<(usize, Option<&str>)>(args)?;
    align(text, width, fill.unwrap_or(" "), side)
}

/// Pads a text to `width` characters. An odd padding on both sides has its larger half on the left
/// if the width is odd, as in Python.
fn align(text: &str, width: usize, fill: &str, side: PadSide) -> Result<Value, Error> {
    check_width(Some(width))?;
    if fill.chars().count() != 1 {
        return Err(invalid("the fill must be one character"));
    }
    let filling = width.saturating_sub(text.chars().count());
    let before = match side {
        PadSide::Left => filling,
        PadSide::Right => 0,
        PadSide::Both => filling / 2 + (filling & width & 1),
    };
    Ok([&fill.repeat(before), text, &fill.repeat(filling - before)].concat().into())
}

/// Pads a number with zeros after its sign.
fn zfill(text: &str, width: usize) -> Result<Value, Error> {
    let rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    let sign = &text[..text.len() - rest.len()];
    let filled = align(rest, width.saturating_sub(sign.len()), "0", PadSide::Left)?;
    Ok(format!("{sign}{filled}").into())
}

/// Returns the text with each word in title case.
fn title_case(text: &str) -> String {
    let (mut titled, mut in_word) = (String::with_capacity(text.len()), false);
    for char in text.chars() {
        if in_word {
            titled.extend(char.to_lowercase());
        } else {
            titled.extend(char.to_uppercase());
        }
        in_word = char.is_alphabetic();
    }
    titled
}

fn swap_case(text: &str) -> String {
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
