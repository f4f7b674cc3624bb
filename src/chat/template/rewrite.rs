//! Rewrites a template so that every value that it creates is counted against a budget.
//!
//! minijinja has no hooks for its operators, so operands get filters of ours: `a ~ b` becomes
//! `a|_text ~ b|_text`, `a + b` becomes `a|_sized + b|_sized`, `a * b` becomes `a|_times(b)`,
//! `a[1:]` becomes `(a|_slice(1, none, none))` and `a in b` becomes `(a)|_needle in b`. Filters
//! bind closer than operators, so the rewriting needs no other precedence. A tag before a long text
//! gets a tag that counts the text. The number of lines stays the same, so that errors have the
//! right line.

use super::lexer::{SourcePiece, Tag, TagToken, TokenKind};

/// The names of the inserted filters.
pub(super) mod filter {
    /// Counts the text of a value that `in` searches for.
    pub const NEEDLE: &str = "_needle";
    /// Counts an operand of `+`.
    pub const SIZED: &str = "_sized";
    /// Converts an operand of `~` into a text, and counts it.
    pub const TEXT: &str = "_text";
    /// Multiplies, and counts the result.
    pub const TIMES: &str = "_times";
    /// Slices, and counts the result.
    pub const SLICE: &str = "_slice";
    /// Counts text between tags.
    pub const WRITTEN: &str = "_written";
}

/// The length in bytes from which texts of the template are counted. The limit on steps bounds the
/// total of shorter texts.
const MIN_COUNTED: usize = 64;

/// The deepest nesting of brackets; more than minijinja accepts.
const MAX_DEPTH: usize = 200;

/// A rewritten template.
pub(super) struct Rewritten {
    pub text: String,
    pub offsets: Offsets,
}

/// Translates offsets in a rewritten template to offsets in the original.
#[derive(Clone, Debug)]
pub(super) struct Offsets(
    /// Pairs of rewritten and original offset at the start and the end of each edit, ascending.
    Vec<(usize, usize)>,
);

impl Offsets {
    /// Returns the original offset; for an offset within inserted text, one within the replaced
    /// text.
    pub fn original(&self, offset: usize) -> usize {
        let next = self.0.partition_point(|(rewritten, _)| *rewritten <= offset);
        let (rewritten, original) = next.checked_sub(1).map_or((0, 0), |last| self.0[last]);
        let end = self.0.get(next).map_or(usize::MAX, |(_, original)| *original);
        (original + offset - rewritten).min(end)
    }
}

/// Rewrites a template, given its pieces. `{% generation %}` and `{% endgeneration %}`, with which
/// Hugging Face marks the assistant's tokens for training, become `{% if true %}` and
/// `{% endif %}`, because minijinja has no custom tags.
pub(super) fn rewrite(template: &str, pieces: &[SourcePiece<'_>]) -> Rewritten {
    let mut edits = vec![];
    let mut after: Option<&Tag<'_>> = None;
    let mut text = 0;
    for piece in pieces {
        match piece {
            SourcePiece::Text(length) => text += length,
            SourcePiece::Tag(tag) => {
                count_text(after, text, &mut edits);
                (after, text) = (Some(tag), 0);
                TagRewriter { tokens: &tag.tokens, next: 0, depth: 0, edits: &mut edits }.tag(tag.statement);
            }
        }
    }
    count_text(after, text, &mut edits);
    edits.sort_by_key(|edit| edit.offset);
    let (mut text, mut copied) = (String::with_capacity(template.len() * 2), 0);
    let mut offsets = vec![];
    for edit in edits {
        text.push_str(&template[copied..edit.offset]);
        offsets.push((text.len(), edit.offset));
        text.push_str(&edit.text);
        copied = edit.offset + edit.removed;
        offsets.push((text.len(), copied));
    }
    text.push_str(&template[copied..]);
    Rewritten { text, offsets: Offsets(offsets) }
}

/// The replacement of `removed` bytes at an offset by a text.
struct Edit {
    offset: usize,
    removed: usize,
    text: String,
}

/// Inserts a tag that counts `length` bytes of text after a tag. It takes over the white space
/// control at that tag's end, where it has no effect any more.
fn count_text(after: Option<&Tag<'_>>, length: usize, edits: &mut Vec<Edit>) {
    let Some(tag) = after.filter(|tag| length >= MIN_COUNTED && !tag.close.is_empty()) else { return };
    let trim = match tag.close.as_bytes()[0] {
        b'-' => "-",
        b'%' => "",
        _ => "+",
    };
    let text = format!("{{% if {length}|{} %}}{{% endif {trim}%}}", filter::WRITTEN);
    edits.push(Edit { offset: tag.end, removed: 0, text });
}

/// Parses the tokens of one tag, and collects edits.
struct TagRewriter<'e, 't> {
    tokens: &'e [TagToken<'t>],
    /// Index of the next token.
    next: usize,
    depth: usize,
    edits: &'e mut Vec<Edit>,
}

/// The byte range of an operand in the template.
#[derive(Clone, Copy)]
struct OperandRange<'t> {
    start: usize,
    end: usize,
    /// The operand's token, if it is just one.
    single: Option<TagToken<'t>>,
}

impl OperandRange<'_> {
    /// Returns whether it is a short constant, whose text is the same in Python and minijinja.
    fn is_short_constant(&self) -> bool {
        let constant = |token: TagToken<'_>| match token.kind {
            TokenKind::Literal => token.text.len() < MIN_COUNTED,
            TokenKind::Number => token.text.len() < 10 && token.text.bytes().all(|byte| byte.is_ascii_digit()),
            _ => false,
        };
        self.single.is_some_and(constant)
    }
}

impl<'t> TagRewriter<'_, 't> {
    fn tag(&mut self, statement: bool) {
        if let Some(name) = self.tokens.first().filter(|_| statement) {
            match (name.text, self.tokens.len()) {
                ("generation", 1) => self.replace(name, "if true"),
                ("endgeneration", 1) => self.replace(name, "endif"),
                ("for", _) => self.next = self.tokens.iter().position(|token| token.is("in")).map_or(1, |at| at + 1),
                _ => self.next = 1,
            }
        }
        self.list(None);
    }

    fn peek(&self) -> Option<TagToken<'t>> {
        self.tokens.get(self.next).copied()
    }

    fn next_is(&self, texts: &[&str]) -> bool {
        self.peek().is_some_and(|token| texts.iter().any(|text| token.is(text)))
    }

    fn take(&mut self, text: &str) -> bool {
        let matched = self.next_is(&[text]);
        self.next += usize::from(matched);
        matched
    }

    fn end(&self) -> usize {
        self.tokens[self.next - 1].range().end
    }

    fn insert(&mut self, offset: usize, text: impl Into<String>) {
        self.edits.push(Edit { offset, removed: 0, text: text.into() });
    }

    fn replace(&mut self, token: &TagToken<'_>, text: impl Into<String>) {
        self.edits.push(Edit { offset: token.offset, removed: token.text.len(), text: text.into() });
    }

    /// Parses expressions and separators through the bracket `close`, or to the end of the tag.
    /// Returns the indices of colons; none if the bracket is missing, as a slice then has no end
    /// to rewrite, and minijinja refuses the template.
    fn list(&mut self, close: Option<&str>) -> Vec<usize> {
        let mut colons = vec![];
        while let Some(token) = self.peek() {
            if close.is_some_and(|close| token.is(close)) {
                self.next += 1;
                return colons;
            }
            let before = self.next;
            self.sum();
            if self.next == before {
                colons.extend(token.is(":").then_some(before));
                self.next += 1;
            }
        }
        vec![]
    }

    /// Parses terms joined by `+`, `-` and `~`.
    fn sum(&mut self) {
        let Some(first) = self.term() else { return };
        let (mut term, mut before) = (first, None);
        loop {
            let operator = self.peek().filter(|token| ["+", "-", "~"].iter().any(|text| token.is(text)));
            let joined = |text: &str| [before, operator].iter().flatten().any(|token: &TagToken<'_>| token.is(text));
            if (joined("~") || joined("+")) && !term.is_short_constant() {
                self.insert(term.end, format!("|{}", if joined("~") { filter::TEXT } else { filter::SIZED }));
            }
            let Some(operator) = operator else { break };
            self.next += 1;
            before = Some(operator);
            match self.term() {
                Some(next) => term = next,
                None => break,
            }
        }
        let not_in = self.next_is(&["not"]) && self.tokens.get(self.next + 1).is_some_and(|token| token.is("in"));
        let single = first.start == term.start && term.is_short_constant();
        if (not_in || self.next_is(&["in"])) && !single {
            self.insert(first.start, "(");
            self.insert(self.end(), format!(")|{}", filter::NEEDLE));
        }
    }

    /// Parses powers joined by `*`, `/`, `//` and `%`. A filter after the result applies to all of
    /// it.
    fn term(&mut self) -> Option<OperandRange<'t>> {
        let (first, mut loose) = self.power()?;
        let (start, mut operand) = (first.start, first);
        let close = |this: &mut Self, end: usize| {
            this.insert(start, "(");
            this.insert(end, ")");
        };
        while let Some(operator) = self.peek().filter(|token| ["*", "/", "//", "%"].iter().any(|text| token.is(text))) {
            let end = operand.end;
            self.next += 1;
            let times = operator.is("*");
            if times && std::mem::take(&mut loose) {
                close(self, end);
            }
            if times {
                self.replace(&operator, format!("|{}(", filter::TIMES));
            }
            let factor = self.power();
            operand = OperandRange { start, end: self.end(), single: None };
            if times {
                self.insert(operand.end, ")");
            }
            loose |= !times;
            if factor.is_none() {
                break;
            }
        }
        if loose {
            close(self, operand.end);
        }
        Some(operand)
    }

    /// Parses operands joined by `**`. Returns also whether there is a `**`.
    fn power(&mut self) -> Option<(OperandRange<'t>, bool)> {
        let operand = self.operand()?;
        let mut powers = false;
        while self.take("**") {
            powers = true;
            if self.operand().is_none() {
                break;
            }
        }
        let single = operand.single.filter(|_| !powers);
        Some((OperandRange { start: operand.start, end: self.end(), single }, powers))
    }

    /// Parses a value with its sign, attributes, subscripts, calls, filters and tests; `None` if no
    /// value follows.
    fn operand(&mut self) -> Option<OperandRange<'t>> {
        let first = self.next;
        while self.take("-") {}
        if !self.value() {
            return (self.next > first).then(|| self.since(first));
        }
        loop {
            if self.take("|") {
                self.dotted_name();
                self.group();
            } else if self.take("is") {
                self.take("not");
                self.dotted_name();
                if !self.next_is(&["("]) {
                    self.test_argument();
                } else {
                    self.group();
                }
            } else {
                return Some(self.since(first));
            }
        }
    }

    fn since(&self, first: usize) -> OperandRange<'t> {
        let single = (self.next == first + 1).then(|| self.tokens[first]);
        OperandRange { start: self.tokens[first].offset, end: self.end(), single }
    }

    fn dotted_name(&mut self) {
        self.next += usize::from(self.peek().is_some());
        while self.take(".") {
            self.next += usize::from(self.peek().is_some());
        }
    }

    /// Parses a test's argument without brackets: `x is divisibleby 3`.
    fn test_argument(&mut self) {
        while self.take("-") {}
        if !self.next_is(&["("]) {
            self.value();
        }
    }

    /// Parses a value with its attributes, subscripts and calls. Returns whether there is one.
    fn value(&mut self) -> bool {
        let Some(token) = self.peek() else { return false };
        let word = ["if", "else", "and", "or", "not", "in", "is"].iter().any(|word| token.is(word));
        match token.kind {
            TokenKind::Name if !word => self.next += 1,
            TokenKind::Number => self.next += 1,
            TokenKind::Literal => {
                while self.peek().is_some_and(|token| token.kind == TokenKind::Literal) {
                    self.next += 1;
                }
            }
            _ if self.group() || self.brackets("[", "]").is_some() || self.brackets("{", "}").is_some() => {}
            _ => return false,
        }
        loop {
            if self.take(".") {
                self.next += usize::from(self.peek().is_some());
            } else if self.next_is(&["["]) {
                let open = self.next;
                let colons = self.brackets("[", "]").unwrap_or_default();
                self.slice(token.offset, open, &colons);
            } else if !self.group() {
                return true;
            }
        }
    }

    /// Parses an expression in parentheses. Returns whether there is one.
    fn group(&mut self) -> bool {
        self.brackets("(", ")").is_some()
    }

    /// Rewrites a subscript with colons as a filter. `start` is the offset of the value, `open` the
    /// index of the opening bracket.
    fn slice(&mut self, start: usize, open: usize, colons: &[usize]) {
        if colons.is_empty() {
            return;
        }
        self.insert(start, "(");
        for (index, mark) in [open].iter().chain(colons).enumerate() {
            let omitted = self.tokens.get(mark + 1).is_none_or(|token| token.is(":") || token.is("]"));
            let text = if index == 0 { format!("|{}(", filter::SLICE) } else { ", ".to_owned() };
            self.replace(&self.tokens[*mark], text + if omitted { "none" } else { "" });
        }
        let close = self.tokens[self.next - 1];
        let missing = 2usize.saturating_sub(colons.len());
        self.replace(&close, ", none".repeat(missing) + "))");
    }

    /// Parses brackets, if they come next. Returns the indices of the colons in them.
    fn brackets(&mut self, open: &str, close: &str) -> Option<Vec<usize>> {
        if !self.next_is(&[open]) {
            return None;
        }
        self.next += 1;
        if self.depth == MAX_DEPTH {
            // minijinja rejects the template because of its depth.
            self.next = self.tokens.len();
            return Some(vec![]);
        }
        self.depth += 1;
        let colons = self.list(Some(close));
        self.depth -= 1;
        Some(colons)
    }
}
