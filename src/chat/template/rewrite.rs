//! A template in; the same template with what grows in it told to a budget.
//!
//! minijinja lets nobody watch its operators, so filters of our own are put around what they take: `a ~ b` becomes
//! `a|_text ~ b|_text`, `a + b` becomes `a|_sized + b|_sized`, `a * b` becomes `a|_times(b)`, `a[1:]` becomes
//! `(a|_slice(1, none, none))` and `a in b` becomes `(a)|_needle in b`. Filters bind closer than operators, so precedence need not be known beyond that. A tag before
//! a long text is followed by one that counts it. No line is added or lost, so errors are still where they were.

use super::lexer::{Kind, Piece, Tag, Token};

/// The filters, by what they do.
pub(super) mod filter {
    /// Looks at what is about to be searched for: minijinja makes a text of it.
    pub const NEEDLE: &str = "_needle";
    /// Counts a value that is about to be joined.
    pub const SIZED: &str = "_sized";
    /// Makes a text of a value that is about to be joined by `~`, and counts it.
    pub const TEXT: &str = "_text";
    /// Multiplies.
    pub const TIMES: &str = "_times";
    /// Slices.
    pub const SLICE: &str = "_slice";
    /// Counts text of the template.
    pub const WRITTEN: &str = "_written";
}

/// Texts that are shorter need not be counted: a template's steps bound them.
const SHORT: usize = 64;

/// Deeper brackets than minijinja takes.
const MAX_DEPTH: usize = 200;

/// A rewritten template.
pub(super) struct Rewritten {
    pub text: String,
    pub offsets: Offsets,
}

/// Translates offsets in a rewritten template to those in the template as its author wrote it.
#[derive(Clone, Debug)]
pub(super) struct Offsets(
    /// Pairs of offsets, rewritten and original, at the start and at the end of each edit, ascending.
    Vec<(usize, usize)>,
);

impl Offsets {
    /// Returns the original offset; for one within inserted text, an offset within the text that it replaced.
    pub fn original(&self, at: usize) -> usize {
        let next = self.0.partition_point(|(rewritten, _)| *rewritten <= at);
        let (rewritten, original) = next.checked_sub(1).map_or((0, 0), |last| self.0[last]);
        let end = self.0.get(next).map_or(usize::MAX, |(_, original)| *original);
        (original + at - rewritten).min(end)
    }
}

/// Rewrites a template that was cut into `pieces`. `{% generation %}` and its end, with which Hugging Face marks the assistant's
/// tokens for training, become a condition that is true: they print nothing, and minijinja has no tags of others.
pub(super) fn rewrite(template: &str, pieces: &[Piece<'_>]) -> Rewritten {
    let mut edits = vec![];
    let mut after: Option<&Tag<'_>> = None;
    let mut text = 0;
    for piece in pieces {
        match piece {
            Piece::Text(length) => text += length,
            Piece::Tag(tag) => {
                count_text(after, text, &mut edits);
                (after, text) = (Some(tag), 0);
                Expressions { tokens: &tag.tokens, at: 0, depth: 0, edits: &mut edits }.tag(tag.statement);
            }
        }
    }
    count_text(after, text, &mut edits);
    edits.sort_by_key(|edit| edit.at);
    let (mut text, mut at) = (String::with_capacity(template.len() * 2), 0);
    let mut offsets = vec![];
    for edit in edits {
        text.push_str(&template[at..edit.at]);
        offsets.push((text.len(), edit.at));
        text.push_str(&edit.text);
        at = edit.at + edit.removed;
        offsets.push((text.len(), at));
    }
    text.push_str(&template[at..]);
    Rewritten { text, offsets: Offsets(offsets) }
}

/// Some text in the place of so many bytes.
struct Edit {
    at: usize,
    removed: usize,
    text: String,
}

/// What follows the tag has its mark for white space, which has no effect on the tag's own end then.
fn count_text(after: Option<&Tag<'_>>, length: usize, edits: &mut Vec<Edit>) {
    let Some(tag) = after.filter(|tag| length >= SHORT && !tag.close.is_empty()) else { return };
    let mark = match tag.close.as_bytes()[0] {
        b'-' => "-",
        b'%' => "",
        _ => "+",
    };
    let text = format!("{{% if {length}|{} %}}{{% endif {mark}%}}", filter::WRITTEN);
    edits.push(Edit { at: tag.end, removed: 0, text });
}

/// Goes through the tokens of a tag.
struct Expressions<'e, 't> {
    tokens: &'e [Token<'t>],
    at: usize,
    depth: usize,
    edits: &'e mut Vec<Edit>,
}

/// Where an operand begins and ends.
#[derive(Clone, Copy)]
struct Operand<'t> {
    start: usize,
    end: usize,
    /// Its only token.
    single: Option<Token<'t>>,
}

impl Operand<'_> {
    /// Whether it is a constant that Python and minijinja write alike.
    fn is_short_constant(&self) -> bool {
        let constant = |token: Token<'_>| match token.kind {
            Kind::Literal => token.text.len() < SHORT,
            Kind::Number => token.text.len() < 10 && token.text.bytes().all(|byte| byte.is_ascii_digit()),
            _ => false,
        };
        self.single.is_some_and(constant)
    }
}

impl<'t> Expressions<'_, 't> {
    fn tag(&mut self, statement: bool) {
        if let Some(name) = self.tokens.first().filter(|_| statement) {
            match (name.text, self.tokens.len()) {
                ("generation", 1) => self.replace(name, "if true"),
                ("endgeneration", 1) => self.replace(name, "endif"),
                ("for", _) => self.at = self.tokens.iter().position(|token| token.is("in")).map_or(1, |at| at + 1),
                _ => self.at = 1,
            }
        }
        self.list(None);
    }

    fn peek(&self) -> Option<Token<'t>> {
        self.tokens.get(self.at).copied()
    }

    fn next_is(&self, texts: &[&str]) -> bool {
        self.peek().is_some_and(|token| texts.iter().any(|text| token.is(text)))
    }

    fn take(&mut self, text: &str) -> bool {
        let taken = self.next_is(&[text]);
        self.at += usize::from(taken);
        taken
    }

    fn end(&self) -> usize {
        self.tokens[self.at - 1].range().end
    }

    fn insert(&mut self, at: usize, text: impl Into<String>) {
        self.edits.push(Edit { at, removed: 0, text: text.into() });
    }

    fn replace(&mut self, token: &Token<'_>, text: impl Into<String>) {
        self.edits.push(Edit { at: token.at, removed: token.text.len(), text: text.into() });
    }

    /// Expressions and what stands between them, up to and with a closing bracket. Returns the colons among them.
    fn list(&mut self, close: Option<&str>) -> Vec<usize> {
        let mut colons = vec![];
        while let Some(token) = self.peek() {
            if close.is_some_and(|close| token.is(close)) {
                self.at += 1;
                break;
            }
            let before = self.at;
            self.sum();
            if self.at == before {
                colons.extend(token.is(":").then_some(before));
                self.at += 1;
            }
        }
        colons
    }

    /// Terms with `+`, `-` and `~` between them.
    fn sum(&mut self) {
        let Some(first) = self.term() else { return };
        let (mut term, mut before) = (first, None);
        loop {
            let operator = self.peek().filter(|token| ["+", "-", "~"].iter().any(|text| token.is(text)));
            let joined = |text: &str| [before, operator].iter().flatten().any(|token: &Token<'_>| token.is(text));
            if (joined("~") || joined("+")) && !term.is_short_constant() {
                self.insert(term.end, format!("|{}", if joined("~") { filter::TEXT } else { filter::SIZED }));
            }
            let Some(operator) = operator else { break };
            self.at += 1;
            before = Some(operator);
            match self.term() {
                Some(next) => term = next,
                None => break,
            }
        }
        let not_in = self.next_is(&["not"]) && self.tokens.get(self.at + 1).is_some_and(|token| token.is("in"));
        let single = first.start == term.start && term.is_short_constant();
        if (not_in || self.next_is(&["in"])) && !single {
            self.insert(first.start, "(");
            self.insert(self.end(), format!(")|{}", filter::NEEDLE));
        }
    }

    /// Powers with `*`, `/`, `//` and `%` between them. A filter that is put after it is its own.
    fn term(&mut self) -> Option<Operand<'t>> {
        let (first, mut loose) = self.power()?;
        let (start, mut operand) = (first.start, first);
        let close = |this: &mut Self, end: usize| {
            this.insert(start, "(");
            this.insert(end, ")");
        };
        while let Some(operator) = self.peek().filter(|token| ["*", "/", "//", "%"].iter().any(|text| token.is(text))) {
            let end = operand.end;
            self.at += 1;
            let times = operator.is("*");
            if times && std::mem::take(&mut loose) {
                close(self, end);
            }
            if times {
                self.replace(&operator, format!("|{}(", filter::TIMES));
            }
            let factor = self.power();
            operand = Operand { start, end: self.end(), single: None };
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

    /// Operands with `**` between them, and whether there is one.
    fn power(&mut self) -> Option<(Operand<'t>, bool)> {
        let operand = self.operand()?;
        let mut powers = false;
        while self.take("**") {
            powers = true;
            if self.operand().is_none() {
                break;
            }
        }
        let single = operand.single.filter(|_| !powers);
        Some((Operand { start: operand.start, end: self.end(), single }, powers))
    }

    /// A value with its sign, attributes, subscripts, calls, filters and tests. Nothing where none begins.
    fn operand(&mut self) -> Option<Operand<'t>> {
        let first = self.at;
        while self.take("-") {}
        if !self.value() {
            return (self.at > first).then(|| self.since(first));
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

    fn since(&self, first: usize) -> Operand<'t> {
        let single = (self.at == first + 1).then(|| self.tokens[first]);
        Operand { start: self.tokens[first].at, end: self.end(), single }
    }

    fn dotted_name(&mut self) {
        self.at += usize::from(self.peek().is_some());
        while self.take(".") {
            self.at += usize::from(self.peek().is_some());
        }
    }

    /// What a test without brackets may be given: `x is divisibleby 3`.
    fn test_argument(&mut self) {
        while self.take("-") {}
        if !self.next_is(&["("]) {
            self.value();
        }
    }

    /// A value with its attributes, subscripts and calls.
    fn value(&mut self) -> bool {
        let Some(token) = self.peek() else { return false };
        let word = ["if", "else", "and", "or", "not", "in", "is"].iter().any(|word| token.is(word));
        match token.kind {
            Kind::Name if !word => self.at += 1,
            Kind::Number => self.at += 1,
            Kind::Literal => {
                while self.peek().is_some_and(|token| token.kind == Kind::Literal) {
                    self.at += 1;
                }
            }
            _ if self.group() || self.brackets("[", "]").is_some() || self.brackets("{", "}").is_some() => {}
            _ => return false,
        }
        loop {
            if self.take(".") {
                self.at += usize::from(self.peek().is_some());
            } else if self.next_is(&["["]) {
                let open = self.at;
                let colons = self.brackets("[", "]").unwrap_or_default();
                self.slice(token.at, open, &colons);
            } else if !self.group() {
                return true;
            }
        }
    }

    fn group(&mut self) -> bool {
        self.brackets("(", ")").is_some()
    }

    /// Makes a filter of a subscript with colons, where a value begins at `start`.
    fn slice(&mut self, start: usize, open: usize, colons: &[usize]) {
        if colons.is_empty() {
            return;
        }
        self.insert(start, "(");
        for (index, mark) in [open].iter().chain(colons).enumerate() {
            let nothing = self.tokens.get(mark + 1).is_none_or(|token| token.is(":") || token.is("]"));
            let text = if index == 0 { format!("|{}(", filter::SLICE) } else { ", ".to_owned() };
            self.replace(&self.tokens[*mark], text + if nothing { "none" } else { "" });
        }
        let close = self.tokens[self.at - 1];
        let missing = 2usize.saturating_sub(colons.len());
        self.replace(&close, ", none".repeat(missing) + "))");
    }

    /// What is in brackets, if they come next, and the colons in it.
    fn brackets(&mut self, open: &str, close: &str) -> Option<Vec<usize>> {
        if !self.next_is(&[open]) {
            return None;
        }
        self.at += 1;
        if self.depth == MAX_DEPTH {
            // minijinja refuses the template for this.
            self.at = self.tokens.len();
            return Some(vec![]);
        }
        self.depth += 1;
        let colons = self.list(Some(close));
        self.depth -= 1;
        Some(colons)
    }
}
