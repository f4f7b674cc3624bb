//! Replaces minijinja's filters, functions and methods by versions that stay within the [`budget`].
//!
//! A call that allocates by a number, or that multiplies the sizes of texts, is checked before it
//! runs; the results of all calls are counted.
//!
//! [`budget`]: super::budget

use std::slice::from_ref;

use minijinja::{
    Environment, Error, State, filters, functions,
    value::{Kwargs, Rest, StringInput, Value, ValueKind, ValueOrKwargs},
};

use super::{
    budget::{ITEM, ITEM_LIST, MAX_WIDTH, check_text, check_width, size, spend, text_size},
    filters::needle,
    python_format, python_methods,
};

/// Returns the memory in bytes that a call with the given arguments needs besides its result.
type CallCost = fn(&[Value]) -> Result<usize, Error>;

/// Installs the counted versions. Built-ins that are missing here create no values.
pub(super) fn install(environment: &mut Environment<'_>) {
    let mut texts = |name, cost: CallCost, filter| environment.add_filter(name, counted(filter, cost));
    texts("capitalize", no_cost, Value::from_function(filters::capitalize));
    texts("center", no_cost, Value::from_function(python_methods::center));
    texts("e", escapes, Value::from_function(filters::escape));
    texts("escape", escapes, Value::from_function(filters::escape));
    texts("format", no_cost, Value::from_function(format));
    texts("indent", no_cost, Value::from_function(indent));
    texts("join", no_cost, Value::from_function(join));
    texts("lower", no_cost, Value::from_function(filters::lower));
    texts("pprint", escapes, Value::from_function(filters::pprint));
    texts("replace", no_cost, Value::from_function(replace));
    texts("safe", no_cost, Value::from_function(filters::safe));
    texts("string", no_cost, Value::from_function(python_format::string));
    texts("title", no_cost, Value::from_function(filters::title));
    texts("tojson", no_cost, Value::from_function(python_format::tojson));
    texts("trim", no_cost, Value::from_function(filters::trim));
    texts("upper", no_cost, Value::from_function(filters::upper));
    let mut lists = |name, cost: CallCost, filter| environment.add_filter(name, counted(filter, cost));
    lists("batch", item_lists, Value::from_function(batch));
    lists("chain", characters, Value::from_function(filters::chain));
    lists("dictsort", item_lists, Value::from_function(filters::dictsort));
    lists("groupby", item_lists, Value::from_function(filters::groupby));
    lists("items", item_lists, Value::from_function(items));
    lists("lines", parts, Value::from_function(filters::lines));
    lists("list", characters, Value::from_function(filters::list));
    lists("map", characters, Value::from_function(filters::map));
    lists("reject", characters, Value::from_function(filters::reject));
    lists("rejectattr", characters, Value::from_function(filters::rejectattr));
    lists("reverse", characters, Value::from_function(filters::reverse));
    lists("select", characters, Value::from_function(filters::select));
    lists("selectattr", characters, Value::from_function(filters::selectattr));
    lists("slice", item_lists, Value::from_function(slice));
    lists("sort", copies, Value::from_function(filters::sort));
    lists("split", parts, Value::from_function(filters::split));
    lists("sum", copies, Value::from_function(filters::sum));
    lists("unique", copies, Value::from_function(filters::unique));
    lists("zip", item_lists, Value::from_function(zip));
    environment.add_function("dict", counted(Value::from_function(functions::dict), entries));
    environment.add_function("namespace", counted(Value::from_function(functions::namespace), entries));
    environment.add_test("in", is_in);
    environment.set_unknown_method_callback(method);
    // `debug` prints every variable, uncounted; jinja2 does not have it.
    environment.remove_global("debug");
}

/// Returns a function that counts the memory of the call, and then the result.
pub(super) fn counted(
    function: Value,
    cost: CallCost,
) -> impl Fn(&mut State, Rest<ValueOrKwargs>) -> Result<Value, Error> + Send + Sync + 'static {
    move |state: &mut State, args: Rest<ValueOrKwargs>| {
        let args = args.into_values();
        spend(state, cost(&args)?)?;
        let result = function.call(state, &args)?;
        spend(state, size(&result))?;
        Ok(result)
    }
}

/// Returns 0, for calls that need no memory besides their result.
pub(super) fn no_cost(_: &[Value]) -> Result<usize, Error> {
    Ok(0)
}

/// Returns the cost of filters of lists, which turn a text into a list of its characters.
fn characters(args: &[Value]) -> Result<usize, Error> {
    Ok(args.iter().filter_map(Value::as_str).map(|text| text.chars().count() * ITEM).sum())
}

/// Returns the cost of a list for each item.
fn item_lists(args: &[Value]) -> Result<usize, Error> {
    Ok(args.iter().filter_map(Value::len).fold(0, usize::saturating_add).saturating_mul(ITEM_LIST))
}

/// Returns the cost of a copy of each item's text.
fn copies(args: &[Value]) -> Result<usize, Error> {
    args.iter().try_fold(characters(args)?, |sum, value| Ok(sum + text_size(value)?))
}

/// Returns the cost of escaping each character, to `&quot;` or `\u{10ffff}` at the longest.
fn escapes(args: &[Value]) -> Result<usize, Error> {
    args.iter().try_fold(0, |sum, value| Ok(sum + text_size(value)? * 10))
}

/// Returns the cost of splitting a text at each separator, or at each white space character.
fn parts(args: &[Value]) -> Result<usize, Error> {
    let Some(text) = args.first().and_then(Value::as_str) else { return Ok(0) };
    let separators = match args.get(1).and_then(Value::as_str) {
        Some(separator) => text.matches(separator).count(),
        None => text.matches(char::is_whitespace).count(),
    };
    Ok(text.len() + (separators + 1) * ITEM_LIST)
}

/// Returns the cost of copying a map's entries with their names.
fn entries(args: &[Value]) -> Result<usize, Error> {
    let mut bytes = 4 * ITEM_LIST;
    for map in args.iter().filter(|value| value.kind() == ValueKind::Map) {
        bytes += map.try_iter()?.map(|name| size(&name) + ITEM_LIST).sum::<usize>();
    }
    Ok(bytes)
}

/// Checks the size of a formatted text. Every number in the format may be a width, and every `%` or
/// `{` may insert any of the values.
fn check_format(format: &Value, values: &[Value]) -> Result<(), Error> {
    let format = format.as_str().unwrap_or_default();
    let runs = format.split(|char: char| !char.is_ascii_digit()).filter(|run| !run.is_empty());
    check_width(runs.clone().filter(|run| run.len() > 4).map(|_| usize::MAX).next())?;
    let widths: usize = runs.map(|run| run.parse().unwrap_or(MAX_WIDTH)).sum();
    let values = values.iter().try_fold(0, |sum, value| Ok::<_, Error>(sum + text_size(value)?))?;
    let marks = format.matches(['%', '{']).count();
    check_text(marks.checked_mul(values).and_then(|length| length.checked_add(widths)))
}

fn format(state: &mut State, format: &Value, values: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let values = values.into_values();
    check_format(format, &values)?;
    filters::format(state, format, Rest(values.into_iter().map(ValueOrKwargs::from).collect()))
}

fn indent(
    text: StringInput<'_>,
    width: Option<usize>,
    first: Option<bool>,
    blank: Option<bool>,
    options: Kwargs,
) -> Result<Value, Error> {
    let widths = [width, options.get("width")?];
    for width in widths {
        check_width(width)?;
        let lines = text.as_str().matches('\n').count() + 1;
        check_text(lines.checked_mul(width.unwrap_or(0)))?;
    }
    filters::indent(text, width, first, blank, options)
}

fn slice(state: &State, value: Value, count: usize, fill_with: Option<Value>) -> Result<Value, Error> {
    check_width(Some(count))?;
    filters::slice(state, value, count, fill_with)
}

fn batch(state: &State, value: Value, count: usize, fill_with: Option<Value>) -> Result<Value, Error> {
    check_width(fill_with.as_ref().map(|_| count))?;
    filters::batch(state, value, count, fill_with)
}

/// Returns a list of pairs; minijinja's own creates the pairs again at each access.
fn items(value: &Value) -> Result<Value, Error> {
    Ok(python_methods::or_undefined(value, filters::items)?.try_iter()?.collect())
}

fn zip(state: &State, value: Value, lists: Rest<Value>) -> Result<Value, Error> {
    Ok(filters::zip(state, value, lists)?.try_iter()?.collect())
}

/// Checks the size of a text in which every `old` becomes `new`.
fn check_replaced(text: &str, old: &str, new: &str) -> Result<(), Error> {
    check_text(text.matches(old).count().checked_mul(new.len()))
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

fn check_joined(values: &Value, separator: &str) -> Result<(), Error> {
    let separators = values.len().unwrap_or(0).checked_mul(separator.len());
    check_text(separators.and_then(|length| length.checked_add(text_size(values).ok()?)))
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

/// The test `in`, which searches a text for the text of any value.
fn is_in(state: &mut State, value: &Value, container: &Value) -> Result<bool, Error> {
    let value = needle(state, value.clone())?;
    minijinja::tests::is_in(state, &value, container)
}

/// Calls a method with Python's name.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let args = &*python_methods::positional(name, args)?;
    match (name, value.as_str(), args) {
        ("format", Some(_), _) => check_format(value, args)?,
        ("join", Some(separator), [values]) => check_joined(values, separator)?,
        ("replace", Some(text), [old, new, ..]) => {
            check_replaced(text, old.as_str().unwrap_or_default(), new.as_str().unwrap_or_default())?;
        }
        ("split" | "rsplit" | "splitlines", Some(_), _) => spend(state, parts(&[from_ref(value), args].concat())?)?,
        ("items", None, _) => spend(state, item_lists(from_ref(value))?)?,
        _ => {}
    }
    let result = python_methods::call(state, value, name, args)?;
    match name {
        // These return a value that exists already.
        "get" | "copy" => return Ok(result),
        "items" => return Ok(result.try_iter()?.collect()),
        _ => spend(state, size(&result))?,
    }
    Ok(result)
}
