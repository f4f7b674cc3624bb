//! What a template may write in all; and minijinja's filters and methods that allocate what a number in it says, or multiply the
//! sizes of texts, bounded first.

use std::io;

use minijinja::value::{Kwargs, Rest, StringInput, Value, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, filters};

use super::methods;

/// The most columns of padding, or parts of a list, that a template may ask for.
const LIMIT: usize = 9999;

/// How deep lists and dicts may nest.
pub(super) const LIMIT_DEPTH: usize = 64;

/// The most bytes that a template may write, or make at once of several texts: more than any context holds.
pub(super) const MAX_OUTPUT: usize = 64 << 20;

/// What was written so far.
#[derive(Default)]
pub(super) struct Output {
    pub bytes: Vec<u8>,
}

impl io::Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > MAX_OUTPUT {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) fn install(environment: &mut Environment<'_>) {
    environment.add_filter("indent", indent);
    environment.add_filter("slice", slice);
    environment.add_filter("format", format);
    environment.add_filter("replace", replace);
    environment.add_filter("join", join);
    environment.set_unknown_method_callback(method);
}

pub(super) fn check_size(size: Option<usize>) -> Result<(), Error> {
    if size.is_none_or(|size| size <= LIMIT) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidOperation, format!("a size is more than {LIMIT}")))
}

/// A width is a number in the text: one of more digits than the limit is refused, width or not.
fn check_widths(format: &Value) -> Result<(), Error> {
    let runs = format.as_str().unwrap_or_default().split(|char: char| !char.is_ascii_digit());
    check_size(runs.filter(|run| run.len() > 4).map(|_| usize::MAX).next())
}

fn indent(
    text: StringInput<'_>,
    width: Option<usize>,
    first: Option<bool>,
    blank: Option<bool>,
    options: Kwargs,
) -> Result<Value, Error> {
    check_size(width)?;
    check_size(options.get("width")?)?;
    filters::indent(text, width, first, blank, options)
}

fn slice(state: &State, value: Value, count: usize, fill_with: Option<Value>) -> Result<Value, Error> {
    check_size(Some(count))?;
    filters::slice(state, value, count, fill_with)
}

fn format(state: &mut State, format: &Value, values: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    check_widths(format)?;
    filters::format(state, format, values)
}

/// Where every `old` of a text becomes `new`, the sizes multiply.
fn check_replaced(text: &str, old: &str, new: &str) -> Result<(), Error> {
    check_text(text.matches(old).count().checked_mul(new.len()))
}

fn check_text(length: Option<usize>) -> Result<(), Error> {
    if length.is_some_and(|length| length <= MAX_OUTPUT) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidOperation, format!("a text is longer than {} MB", MAX_OUTPUT >> 20)))
}

fn replace(
    state: &mut State,
    text: StringInput<'_>,
    old: StringInput<'_>,
    new: StringInput<'_>,
) -> Result<Value, Error> {
    check_replaced(text.as_str(), old.as_str(), new.as_str())?;
    filters::replace(state, text, old, new)
}

/// Takes what a value's text has at least off what is left; `false` where it is more.
fn spend(value: &Value, left: &mut usize, depth: usize) -> bool {
    let length = value.as_str().map_or(1, str::len);
    if length > *left || depth > LIMIT_DEPTH {
        return false;
    }
    *left -= length;
    let items = matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map);
    !items || value.try_iter().is_ok_and(|mut items| items.all(|item| spend(&item, left, depth + 1)))
}

fn check_joined(values: &Value, separator: &str) -> Result<(), Error> {
    let separators = values.len().unwrap_or(0).checked_mul(separator.len());
    let mut left = separators.map_or(0, |length| MAX_OUTPUT.saturating_sub(length));
    check_text(spend(values, &mut left, 0).then_some(0))
}

fn join(
    state: &mut State,
    values: &Value,
    separator: Option<StringInput<'_>>,
    attribute: Option<&str>,
    options: Kwargs,
) -> Result<Value, Error> {
    check_joined(values, separator.as_ref().map_or("", |separator| separator.as_str()))?;
    filters::join(state, values, separator, attribute, options)
}

/// Python's methods.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    match (name, value.as_str(), args) {
        ("format", ..) => check_widths(value)?,
        ("join", Some(separator), [values]) => check_joined(values, separator)?,
        ("replace", Some(text), [old, new, ..]) => {
            check_replaced(text, old.as_str().unwrap_or_default(), new.as_str().unwrap_or_default())?;
        }
        _ => {}
    }
    methods::call(state, value, name, args)
}
