//! Collects the rules and terminals of a grammar in llguidance's dialect of Lark.

use std::collections::HashMap;

use serde_json::Value;

use crate::chat::schema;

/// The ids of special tokens by their text.
pub(crate) type SpecialTokenIds<'t> = HashMap<&'t str, u32>;

pub(in crate::chat::answer) struct GrammarWriter<'t> {
    special: SpecialTokenIds<'t>,
    text: String,
    /// Names of the rules and terminals written so far, by their bodies.
    names: HashMap<String, String>,
}

/// The expression of any text.
pub(in crate::chat::answer) const ANY: &str = "/(?s:.*)/";

impl<'t> GrammarWriter<'t> {
    pub fn new(special: SpecialTokenIds<'t>) -> Self {
        Self { special, text: String::new(), names: HashMap::new() }
    }

    /// Returns the whole grammar, with this start expression.
    pub fn finish(self, start: &str) -> String {
        format!("start: {start}\n{}", self.text)
    }

    /// Returns the name of the rule with this body, which is written if it is new.
    pub fn rule(&mut self, body: String) -> String {
        self.define("r", body)
    }

    /// Returns the name of the terminal with this body, which is written if it is new.
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

    /// Returns the expression of a mark: the special token with this text, or else the text.
    pub fn mark(&self, mark: &str) -> String {
        self.special.get(mark).map_or_else(|| literal(mark), |id| format!("<[{id}]>"))
    }

    /// Returns the expression of a text without `mark`, followed by `mark`. `content` restricts the
    /// text, as terminals and expressions joined by `&`; `empty` says whether it may be empty.
    pub fn text_before(&mut self, mark: &str, content: &str, empty: bool) -> String {
        if !self.special.contains_key(mark) {
            return self.ended_text(content, mark, mark);
        }
        let text = self.terminal(format!("/(?s:.+)/ & {content} & {}", lacks(mark)));
        let repeated = if empty { "?" } else { "" };
        format!("{text}{repeated} {}", self.mark(mark))
    }

    /// Returns the expression of a text followed by `end`. `mark`, with which `end` ends, does not
    /// occur earlier.
    pub fn ended_text(&mut self, content: &str, end: &str, mark: &str) -> String {
        let once = format!("~/(?s:.*){}(?s:.+)/", escaped(mark));
        self.terminal(format!("({content}) {} & {once}", literal(end)))
    }
}

/// Returns the terminal of texts without `mark`.
pub(in crate::chat::answer) fn lacks(mark: &str) -> String {
    format!("~/(?s:.*){}(?s:.*)/", escaped(mark))
}

/// Returns a text as a literal of the grammar.
pub(in crate::chat::answer) fn literal(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// Returns the regular expression of exactly this text.
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

/// Returns a schema's `pattern`, which matches anywhere, as an expression that matches whole texts.
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

/// Returns whether the last character is an anchor: a dollar sign after an even number of
/// backslashes.
fn ends_with_anchor(branch: &str) -> bool {
    let Some(before) = branch.strip_suffix('$') else { return false };
    (before.len() - before.trim_end_matches('\\').len()) % 2 == 0
}

/// Returns the alternatives of an expression outside of groups and classes.
fn top_level_branches(pattern: &str) -> Vec<&str> {
    let (mut branches, mut start) = (vec![], 0);
    let (mut groups, mut classes, mut escape) = (0_usize, 0_usize, false);
    for (index, char) in pattern.char_indices() {
        match char {
            _ if escape => escape = false,
            '\\' => escape = true,
            '[' => classes += 1,
            ']' => classes = classes.saturating_sub(1),
            '(' if classes == 0 => groups += 1,
            ')' if classes == 0 => groups = groups.saturating_sub(1),
            '|' if classes == 0 && groups == 0 => {
                branches.push(&pattern[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    branches.push(&pattern[start..]);
    branches
}
