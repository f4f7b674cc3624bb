//! The filters that [`rewrite`](super::rewrite) puts into templates.

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

/// `str(value)`, as Python joins what is no text.
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

/// `left * right`.
fn times(state: &mut State, left: &Value, right: &Value) -> Result<Value, Error> {
    let (value, number) = if size(left) > 0 { (left, right) } else { (right, left) };
    if let Some(count) = number.as_usize() {
        let length = size(value).checked_mul(count);
        if value.kind() == ValueKind::String {
            check_text(length)?;
        }
        spend(state, length.unwrap_or(usize::MAX))?;
    }
    plainly(state, "left * right", context! { left, right })
}

/// `value[start:stop:step]`. minijinja panics where it goes backwards through nothing.
fn slice(state: &mut State, value: &Value, start: Value, stop: Value, step: Value) -> Result<Value, Error> {
    let (text, tuple) = (value.as_str(), value.is_tuple());
    let list = matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable);
    let step_back = i64::try_from(step.clone()).ok().filter(|step| *step < 0 && (list || text.is_some()));
    let Some(step) = step_back else {
        spend(state, size(value))?;
        let part = plainly(state, "value[start:stop:step]", context! { value, start, stop, step })?;
        // minijinja looks at a list through its slice, and so at a slice of a slice of it.
        return Ok(if list && !tuple { part.try_iter()?.collect() } else { part });
    };
    spend(state, size(value).saturating_mul(if list { 1 } else { size_of::<char>() }))?;
    let place = |at: Value| if at.is_none() { Ok(None) } else { i64::try_from(at).map(Some) };
    let (start, stop) = (place(start)?, place(stop)?);
    if let Some(text) = text {
        return Ok(backwards(&text.chars().collect::<Vec<_>>(), start, stop, step).collect::<String>().into());
    }
    let items: Vec<Value> = value.try_iter()?.collect();
    let items: Vec<Value> = backwards(&items, start, stop, step).collect();
    Ok(if tuple { Tuple::from(items).into() } else { items.into() })
}

/// The items that a slice with a negative step has, as Python's `slice.indices` says.
fn backwards<T: Clone>(
    items: &[T],
    start: Option<i64>,
    stop: Option<i64>,
    step: i64,
) -> impl Iterator<Item = T> + use<'_, T> {
    let length = items.len() as i64;
    let place = |at: i64| (if at < 0 { at.saturating_add(length) } else { at }).clamp(-1, length - 1);
    let (start, stop) = (start.map_or(length - 1, place), stop.map_or(-1, place));
    let places = std::iter::successors(Some(start), move |at| Some(at.saturating_add(step)));
    places.take_while(move |at| *at > stop).filter_map(|at| items.get(usize::try_from(at).ok()?).cloned())
}

/// What minijinja makes of an expression.
fn plainly(state: &State, expression: &'static str, variables: Value) -> Result<Value, Error> {
    let value = state.env().compile_expression(expression)?.eval(variables);
    // Its line would be the expression's.
    value.map_err(|error| match error.detail() {
        Some(detail) => Error::new(error.kind(), detail.to_owned()),
        None => Error::from(error.kind()),
    })
}
