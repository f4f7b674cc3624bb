//! How models mark what they think.

/// The marks around a thought.
#[derive(Debug)]
pub(super) struct Thinking {
    /// What the template has in it, one of these, where models think so.
    shown_by: &'static [&'static str],
    pub open: &'static str,
    pub close: &'static str,
    /// Whether a thought may begin anywhere, not only at the start: where the mark is a special token, which nobody quotes.
    pub anywhere: bool,
}

const FORMS: &[Thinking] = &[
    Thinking { shown_by: &["<|channel>"], open: "<|channel>thought", close: "<channel|>", anywhere: true },
    Thinking { shown_by: &["[THINK]"], open: "[THINK]", close: "[/THINK]", anywhere: true },
    Thinking { shown_by: &["<think>", "</think>"], open: "<think>", close: "</think>", anywhere: false },
];

impl Thinking {
    /// How models of this template think, if they do.
    pub fn of(template: &str) -> Option<&'static Self> {
        FORMS.iter().find(|form| form.shown_by.iter().any(|text| template.contains(text)))
    }
}
