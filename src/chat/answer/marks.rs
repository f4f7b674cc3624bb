//! Finds marks in text that arrives in pieces.

/// The result of looking for a mark at the start of a text.
pub(super) enum MarkMatch {
    None,
    /// The text is the beginning of the mark.
    Partial,
    Full,
}

/// Looks for a mark at the start of a text.
pub(super) fn match_mark(mark: &str, text: &str) -> MarkMatch {
    if text.starts_with(mark) {
        MarkMatch::Full
    } else if mark.starts_with(text) {
        MarkMatch::Partial
    } else {
        MarkMatch::None
    }
}

/// Removes and returns the held text before the first mark, and the mark. Without a mark, text
/// that may be the beginning of one stays held, and white space before it.
pub(super) fn take_up_to(held: &mut String, marks: &[&'static str], last: bool) -> (String, Option<&'static str>) {
    let found = marks.iter().filter_map(|mark| Some((held.find(mark)?, *mark))).min_by_key(|(at, _)| *at);
    if let Some((at, mark)) = found {
        let text = held[..at].to_owned();
        held.drain(..at + mark.len());
        return (text, Some(mark));
    }
    if last || marks.is_empty() {
        return (std::mem::take(held), None);
    }
    let may_become = |at: &usize| marks.iter().any(|mark| mark.starts_with(&held[*at..]));
    let longest = marks.iter().map(|mark| mark.len()).max().unwrap_or(0);
    let end = held.char_indices().map(|(at, _)| at).filter(|at| held.len() - at < longest);
    let settled = end.clone().find(may_become).unwrap_or(held.len());
    let rest = held.split_off(held[..settled].trim_end().len());
    (std::mem::replace(held, rest), None)
}
