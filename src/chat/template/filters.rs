//! The filters that [`rewrite`](super::rewrite) inserts into templates in place of operators.

use minijinja::{
    Environment, Error, State, context,
    value::{Tuple, Value, ValueKind},
};

use super::{
    budget::{check_text, size, spend, text_size},
    python_format,
    rewrite::filter,
};

pub(super) fn install(environment: &mut Environment<'_>) {
    environment.add_filter(filter::NEEDLE, needle);
    environment.add_filter(filter::SIZED, sized);
    environment.add_filter(filter::SLICE, slice);
    environment.add_filter(filter::TEXT, text);
    environment.add_filter(filter::TIMES, times);
    environment.add_filter(filter::WRITTEN, written);
}

fn sized(state: &mut State, value: Value) -> Result<Value, Error> {
    spend(state, size(&value))?;
    Ok(value)
}

/// Returns `str(value)`, for the operator `~`.
fn text(state: &mut State, value: Value) -> Result<Value, Error> {
    let text = python_format::string(&value)?;
    sized(state, text)
}

fn written(state: &mut State, length: usize) -> Result<bool, Error> {
    spend(state, length)?;
    Ok(false)
}

pub(super) fn needle(state: &mut State, value: Value) -> Result<Value, Error> {
    if value.kind() != ValueKind::String {
        spend(state, text_size(&value)?)?;
    }
    Ok(value)
}

/// Returns `left * right`.
fn times(state: &mut State, left: &Value, right: &Value) -> Result<Value, Error> {
    let (value, number) = if size(left) > 0 { (left, right) } else { (right, left) };
    if let Some(count) = number.as_usize() {
        let length = size(value).checked_mul(count);
        if value.kind() == ValueKind::String {
            check_text(length)?;
        }
        spend(state, length.unwrap_or(usize::MAX))?;
    }
    evaluate(state, "left * right", context! { left, right })
}

/// Returns `value[start:stop:step]`. Negative steps are computed here, because minijinja panics for
/// them if the value is empty.
fn slice(state: &mut State, value: &Value, start: Value, stop: Value, step: Value) -> Result<Value, Error> {
    let (text, tuple) = (value.as_str(), value.is_tuple());
    let list = matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable);
    let step_back = i64::try_from(step.clone()).ok().filter(|step| *step < 0 && (list || text.is_some()));
    let Some(step) = step_back else {
        spend(state, size(value))?;
        let part = evaluate(state, "value[start:stop:step]", context! { value, start, stop, step })?;
        // minijinja's slice of a list refers to the list, so slices of slices would form long
        // chains.
        return Ok(if list && !tuple { part.try_iter()?.collect() } else { part });
    };
    spend(state, size(value).saturating_mul(if list { 1 } else { size_of::<char>() }))?;
    let bound = |index: Value| if index.is_none() { Ok(None) } else { i64::try_from(index).map(Some) };
    let (start, stop) = (bound(start)?, bound(stop)?);
    if let Some(text) = text {
        return Ok(backwards(&text.chars().collect::<Vec<_>>(), start, stop, step).collect::<String>().into());
    }
    let items: Vec<Value> = value.try_iter()?.collect();
    let items: Vec<Value> = backwards(&items, start, stop, step).collect();
    Ok(if tuple { Tuple::from(items).into() } else { items.into() })
}

/// Returns the items of a slice with a negative step, as Python's `slice.indices` defines them.
fn backwards<T: Clone>(
    items: &[T],
    start: Option<i64>,
    stop: Option<i64>,
    step: i64,
) -> impl Iterator<Item = T> + use<'_, T> {
    let length = items.len() as i64;
    let bound = |index: i64| (if index < 0 { index.saturating_add(length) } else { index }).clamp(-1, length - 1);
    let (start, stop) = (start.map_or(length - 1, bound), stop.map_or(-1, bound));
    let indices = std::iter::successors(Some(start), move |index| Some(index.saturating_add(step)));
    indices.take_while(move |index| *index > stop).filter_map(|index| items.get(usize::try_from(index).ok()?).cloned())
}

/// Evaluates an expression with minijinja's own operators.
fn evaluate(state: &State, expression: &'static str, variables: Value) -> Result<Value, Error> {
    let value = state.env().compile_expression(expression)?.eval(variables);
    // The error's line is left out, as it is a line of the expression.
    value.map_err(|error| match error.detail() {
        Some(detail) => Error::new(error.kind(), detail.to_owned()),
        None => Error::from(error.kind()),
    })
}
