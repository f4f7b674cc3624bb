//! minijinja's filters and methods that allocate what a number in the template says: that number is bounded here first.

use minijinja::value::{Kwargs, Rest, StringInput, Value, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, filters};
use minijinja_contrib::pycompat::unknown_method_callback;

/// The most columns of padding, or parts of a list, that a template may ask for.
const LIMIT: usize = 9999;

pub(super) fn install(environment: &mut Environment<'_>) {
    environment.add_filter("indent", indent);
    environment.add_filter("slice", slice);
    environment.add_filter("format", format);
    environment.set_unknown_method_callback(method);
}

fn check(size: Option<usize>) -> Result<(), Error> {
    if size.is_none_or(|size| size <= LIMIT) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidOperation, format!("a size is more than {LIMIT}")))
}

/// A width is a number in the text: one of more digits than the limit is refused, width or not.
fn check_widths(format: &Value) -> Result<(), Error> {
    let runs = format.as_str().unwrap_or_default().split(|char: char| !char.is_ascii_digit());
    check(runs.filter(|run| run.len() > 4).map(|_| usize::MAX).next())
}

fn indent(
    text: StringInput<'_>,
    width: Option<usize>,
    first: Option<bool>,
    blank: Option<bool>,
    options: Kwargs,
) -> Result<Value, Error> {
    check(width)?;
    check(options.get("width")?)?;
    filters::indent(text, width, first, blank, options)
}

fn slice(state: &State, value: Value, count: usize, fill_with: Option<Value>) -> Result<Value, Error> {
    check(Some(count))?;
    filters::slice(state, value, count, fill_with)
}

fn format(state: &mut State, format: &Value, values: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    check_widths(format)?;
    filters::format(state, format, values)
}

/// Python's methods.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    if name == "format" {
        check_widths(value)?;
    }
    unknown_method_callback(state, value, name, args)
}
