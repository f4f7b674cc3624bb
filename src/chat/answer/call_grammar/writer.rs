//! Writes rules and terminals of a grammar in llguidance's dialect of Lark.

use std::collections::HashMap;

use serde_json::Value;

use crate::chat::schema;

/// The ids of special tokens by their text.
pub(crate) type SpecialTokens<'t> = HashMap<&'t str, u32>;

pub(in crate::chat::answer) struct Writer<'t> {
    special: SpecialTokens<'t>,
    text: String,
    /// The rules and terminals that are written, by their bodies.
    names: HashMap<String, String>,
}

/// All that a regular expression does not have to look into: any text.
pub(super) const ANY: &str = "/(?s:.*)/";

impl<'t> Writer<'t> {
    pub fn new(special: SpecialTokens<'t>) -> Self {
        Self { special, text: String::new(), names: HashMap::new() }
    }

    /// The whole grammar, which begins with this expression.
    pub fn finish(self, start: &str) -> String {
        format!("start: {start}\n{}", self.text)
    }

    /// Writes a rule with this body, or finds it, and returns its name.
    pub fn rule(&mut self, body: String) -> String {
        self.define("r", body)
    }

    /// Writes a terminal with this body, or finds it, and returns its name.
    pub fn terminal(&mut self, body: String) -> String {
        self.define("T", body)
    }

    fn define(&mut self, kind: &str, body: String) -> String {
        if let Some(name) = self.names.get(&body) {
            return name.clone();
        }
        let name = format!("{kind}{}", self.names.len());
        self.text += &format!("{name}: {body}\n");
        self.names.insert(body, name.clone());
        name
    }

    /// The expression for a mark: the special token of this text, or the text.
    pub fn mark(&self, mark: &str) -> String {
        self.special.get(mark).map_or_else(|| literal(mark), |id| format!("<[{id}]>"))
    }

    /// The expression for a text followed by a mark that is not in it. `content` says what the text
    /// is, as terminals and expressions joined by `&`; `empty` whether it may be empty.
    pub fn text_before(&mut self, mark: &str, content: &str, empty: bool) -> String {
        if !self.special.contains_key(mark) {
            return self.ended_text(content, mark, mark);
        }
        let text = self.terminal(format!("/(?s:.+)/ & {content} & {}", lacks(mark)));
        let repeated = if empty { "?" } else { "" };
        format!("{text}{repeated} {}", self.mark(mark))
    }

    /// The expression for a text followed by `end`, in which `mark`, which `end` ends with, is
    /// nowhere before.
    pub fn ended_text(&mut self, content: &str, end: &str, mark: &str) -> String {
        let once = format!("~/(?s:.*){}(?s:.+)/", escaped(mark));
        self.terminal(format!("({content}) {} & {once}", literal(end)))
    }
}

/// The terminal for texts without `mark`.
pub(super) fn lacks(mark: &str) -> String {
    format!("~/(?s:.*){}(?s:.*)/", escaped(mark))
}

/// A text as a literal of the grammar.
pub(in crate::chat::answer) fn literal(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// A text as a part of a regular expression of the grammar.
pub(in crate::chat::answer) fn escaped(text: &str) -> String {
    let mut written = String::new();
    for char in text.chars() {
        match char {
            char if char.is_control() => written.push_str(&format!("\\x{{{:x}}}", char as u32)),
            char if r"\.+*?()|[]{}^$#&-~/".contains(char) => written.extend(['\\', char]),
            char => written.push(char),
        }
    }
    written
}

/// A schema's `pattern` as a regular expression of the grammar, which matches whole texts.
pub(super) fn whole_text_pattern(pattern: &str) -> String {
    let whole = |branch: &str| {
        let (start, end) = (branch.starts_with('^'), ends_with_anchor(branch));
        let inner = &branch[usize::from(start)..branch.len() - usize::from(end)];
        let any = |anchored: bool| if anchored { "" } else { "(?s:.*)" };
        format!("{}(?:{inner}){}", any(start), any(end))
    };
    let branches: Vec<String> = top_level_branches(pattern).into_iter().map(whole).collect();
    let (mut written, mut escape) = (String::new(), false);
    for char in schema::ascii_classes(&branches.join("|")).chars() {
        match char {
            '/' if !escape => written.push_str("\\/"),
            '\n' => written.push_str("\\n"),
            char => written.push(char),
        }
        escape = char == '\\' && !escape;
    }
    written
}

/// Whether the last character is an anchor: a dollar sign after an even number of backslashes.
fn ends_with_anchor(branch: &str) -> bool {
    let Some(before) = branch.strip_suffix('$') else { return false };
    (before.len() - before.trim_end_matches('\\').len()) % 2 == 0
}

/// The alternatives of an expression, outside of all groups and classes.
fn top_level_branches(pattern: &str) -> Vec<&str> {
    let (mut branches, mut start) = (vec![], 0);
    let (mut groups, mut classes, mut escape) = (0_usize, 0_usize, false);
    for (at, char) in pattern.char_indices() {
        match char {
            _ if escape => escape = false,
            '\\' => escape = true,
            '[' => classes += 1,
            ']' => classes = classes.saturating_sub(1),
            '(' if classes == 0 => groups += 1,
            ')' if classes == 0 => groups = groups.saturating_sub(1),
            '|' if classes == 0 && groups == 0 => {
                branches.push(&pattern[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    branches.push(&pattern[start..]);
    branches
}
