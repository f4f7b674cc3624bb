//! minijinja's filters, functions and methods: counted, and bounded first where they allocate what a number says, or multiply
//! the sizes of texts.

use std::slice::from_ref;

use minijinja::{
    Environment, Error, ErrorKind, State, filters, functions,
    value::{Kwargs, Rest, StringInput, Value, ValueKind, ValueOrKwargs},
};

use super::{
    budget::{ITEM, ITEM_LIST, check_text, size, spend, text_size},
    filters::needle,
    python_methods, python_format,
};

/// The most columns of padding, or parts of a list, that a template may ask for.
const LIMIT: usize = 9999;

/// What a call needs for what it is given, in bytes, beside its result.
type Needs = fn(&[Value]) -> Result<usize, Error>;

/// All of minijinja's that make something are here; the others pick what there is.
pub(super) fn install(environment: &mut Environment<'_>) {
    let mut texts = |name, needs: Needs, filter| environment.add_filter(name, counted(filter, needs));
    texts("capitalize", nothing, Value::from_function(filters::capitalize));
    texts("center", nothing, Value::from_function(python_methods::center));
    texts("e", escapes, Value::from_function(filters::escape));
    texts("escape", escapes, Value::from_function(filters::escape));
    texts("format", nothing, Value::from_function(format));
    texts("indent", nothing, Value::from_function(indent));
    texts("join", nothing, Value::from_function(join));
    texts("lower", nothing, Value::from_function(filters::lower));
    texts("pprint", escapes, Value::from_function(filters::pprint));
    texts("replace", nothing, Value::from_function(replace));
    texts("safe", nothing, Value::from_function(filters::safe));
    texts("string", nothing, Value::from_function(python_format::string));
    texts("title", nothing, Value::from_function(filters::title));
    texts("tojson", nothing, Value::from_function(python_format::tojson));
    texts("trim", nothing, Value::from_function(filters::trim));
    texts("upper", nothing, Value::from_function(filters::upper));
    let mut lists = |name, needs: Needs, filter| environment.add_filter(name, counted(filter, needs));
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
    // It prints all that there is. jinja2 has no such function.
    environment.remove_global("debug");
}

/// A function that is called when the budget has room for what it needs, and for what it made.
pub(super) fn counted(
    function: Value,
    needs: Needs,
) -> impl Fn(&mut State, Rest<ValueOrKwargs>) -> Result<Value, Error> + Send + Sync + 'static {
    move |state: &mut State, args: Rest<ValueOrKwargs>| {
        let args = args.into_values();
        spend(state, needs(&args)?)?;
        let made = function.call(state, &args)?;
        spend(state, size(&made))?;
        Ok(made)
    }
}

pub(super) fn nothing(_: &[Value]) -> Result<usize, Error> {
    Ok(0)
}

/// A text is a list of its characters to filters of lists.
fn characters(args: &[Value]) -> Result<usize, Error> {
    Ok(args.iter().filter_map(Value::as_str).map(|text| text.chars().count() * ITEM).sum())
}

/// Every item may get a list of its own.
fn item_lists(args: &[Value]) -> Result<usize, Error> {
    Ok(args.iter().filter_map(Value::len).fold(0, usize::saturating_add).saturating_mul(ITEM_LIST))
}

/// Some text of every item may be copied.
fn copies(args: &[Value]) -> Result<usize, Error> {
    args.iter().try_fold(characters(args)?, |sum, value| Ok(sum + text_size(value)?))
}

/// The items' texts may grow, each character to `&quot;` or `\u{10ffff}`.
fn escapes(args: &[Value]) -> Result<usize, Error> {
    args.iter().try_fold(0, |sum, value| Ok(sum + text_size(value)? * 10))
}

/// A text in parts: no more than it has separators, or white space.
fn parts(args: &[Value]) -> Result<usize, Error> {
    let Some(text) = args.first().and_then(Value::as_str) else { return Ok(0) };
    let ends = match args.get(1).and_then(Value::as_str) {
        Some(separator) => text.matches(separator).count(),
        None => text.matches(char::is_whitespace).count(),
    };
    Ok(text.len() + (ends + 1) * ITEM_LIST)
}

/// A map's entries, which are copied with their names.
fn entries(args: &[Value]) -> Result<usize, Error> {
    let mut bytes = 4 * ITEM_LIST;
    for map in args.iter().filter(|value| value.kind() == ValueKind::Map) {
        bytes += map.try_iter()?.map(|name| size(&name) + ITEM_LIST).sum::<usize>();
    }
    Ok(bytes)
}

/// Refuses a width or a count that no prompt needs.
pub(super) fn check(size: Option<usize>) -> Result<(), Error> {
    if size.is_none_or(|size| size <= LIMIT) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidOperation, format!("a size is more than {LIMIT}")))
}

/// A width is a number in the text: one of more digits than the limit is refused, width or not. Any mark may stand for any
/// value.
fn check_format(format: &Value, values: &[Value]) -> Result<(), Error> {
    let format = format.as_str().unwrap_or_default();
    let runs = format.split(|char: char| !char.is_ascii_digit()).filter(|run| !run.is_empty());
    check(runs.clone().filter(|run| run.len() > 4).map(|_| usize::MAX).next())?;
    let widths: usize = runs.map(|run| run.parse().unwrap_or(LIMIT)).sum();
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
        check(width)?;
        let lines = text.as_str().matches('\n').count() + 1;
        check_text(lines.checked_mul(width.unwrap_or(0)))?;
    }
    filters::indent(text, width, first, blank, options)
}

fn slice(state: &State, value: Value, count: usize, fill_with: Option<Value>) -> Result<Value, Error> {
    check(Some(count))?;
    filters::slice(state, value, count, fill_with)
}

fn batch(state: &State, value: Value, count: usize, fill_with: Option<Value>) -> Result<Value, Error> {
    check(fill_with.as_ref().map(|_| count))?;
    filters::batch(state, value, count, fill_with)
}

/// Pairs are made once, and not whenever somebody looks.
fn items(value: &Value) -> Result<Value, Error> {
    Ok(python_methods::or_undefined(value, filters::items)?.try_iter()?.collect())
}

fn zip(state: &State, value: Value, others: Rest<Value>) -> Result<Value, Error> {
    Ok(filters::zip(state, value, others)?.try_iter()?.collect())
}

/// Where every `old` of a text becomes `new`, the sizes multiply.
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

/// The test `in`, which looks for the text of what is no text.
fn is_in(state: &mut State, value: &Value, container: &Value) -> Result<bool, Error> {
    let value = needle(state, value.clone())?;
    minijinja::tests::is_in(state, &value, container)
}

/// Python's methods.
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
    let made = python_methods::call(state, value, name, args)?;
    match name {
        // What there was.
        "get" | "copy" => return Ok(made),
        "items" => return Ok(made.try_iter()?.collect()),
        _ => spend(state, size(&made))?,
    }
    Ok(made)
}
