//! Finds the paths that Rust source names: its imports, and the paths in its code.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A module's or an item's path from the crate's root, without `crate`.
pub type ModulePath = Vec<String>;

/// A path as the source writes it.
#[derive(Clone, Debug)]
pub struct Mention {
    /// The module that names it; inline modules count.
    pub place: ModulePath,
    /// Its segments, which may begin with `crate`, `self` or `super`, and end with `*`.
    pub segments: Vec<String>,
    /// Set for the paths of `use` declarations.
    pub import: Option<Import>,
}

/// A name that a `use` declaration brings into its module.
#[derive(Clone, Debug)]
pub struct Import {
    pub name: String,
    /// Whether other modules can take the name from there.
    pub public: bool,
}

impl Mention {
    /// Returns the path from the crate's root; `None` if it begins with another name.
    pub fn absolute(&self) -> Option<ModulePath> {
        let rest = |skip: usize| self.segments[skip..].iter().cloned();
        let ancestors = self.segments.iter().take_while(|segment| *segment == "super").count();
        match self.segments.first()?.as_str() {
            "crate" => Some(rest(1).collect()),
            "self" => Some(self.place.iter().cloned().chain(rest(1)).collect()),
            "super" => {
                let base = &self.place[..self.place.len().saturating_sub(ancestors)];
                Some(base.iter().cloned().chain(rest(ancestors)).collect())
            }
            _ => None,
        }
    }
}

/// Returns all Rust files below a folder.
pub fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    // Examples with a package of their own have outputs of builds.
    let sources = entries.filter(|path| !path.ends_with("target"));
    let files = sources.flat_map(|path| if path.is_dir() { rust_files(&path) } else { vec![path] });
    files.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

/// Returns the module of a file: `backend::cpu::run` for `backend/cpu/run.rs`, the root for
/// `lib.rs`.
pub fn module_of(file: &Path) -> ModulePath {
    let mut place: Vec<_> = file.with_extension("").iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    if place.last().is_some_and(|name| name == "mod" || name == "lib") {
        place.pop();
    }
    place
}

/// Returns all imports and all paths of two or more segments in the source of the module `place`.
pub fn mentions(text: &str, place: &[String]) -> Vec<Mention> {
    let tokens = tokens(text);
    let mut reader = Reader { tokens: &tokens, at: 0, place: place.to_vec(), mentions: vec![] };
    let mut open = vec![];
    while let Some(token) = reader.next() {
        match token {
            "mod" => {
                if let Some(name) = reader.inline_module() {
                    reader.place.push(name);
                    open.push(true);
                }
            }
            "use" => reader.import(),
            "{" => open.push(false),
            "}" => {
                if open.pop() == Some(true) {
                    reader.place.pop();
                }
            }
            _ => reader.path(),
        }
    }
    reader.mentions
}

struct Reader<'t> {
    tokens: &'t [String],
    /// The next token.
    at: usize,
    place: ModulePath,
    mentions: Vec<Mention>,
}

impl<'t> Reader<'t> {
    fn next(&mut self) -> Option<&'t str> {
        let token = self.tokens.get(self.at)?;
        self.at += 1;
        Some(token)
    }

    fn peek(&self) -> Option<&'t str> {
        self.tokens.get(self.at).map(String::as_str)
    }

    /// Reads the name and brace of `mod name {`, also where the name is a macro's variable.
    fn inline_module(&mut self) -> Option<String> {
        let name = self.at + usize::from(self.peek() == Some("$"));
        if self.tokens.get(name + 1).is_none_or(|token| token != "{") {
            return None;
        }
        self.at = name + 2;
        Some(self.tokens[name].clone())
    }

    /// Reads the rest of a `use` declaration.
    fn import(&mut self) {
        let before = |back: usize| self.at.checked_sub(back).map(|at| self.tokens[at].as_str());
        let public = matches!(before(2), Some("pub" | ")"));
        self.import_tree(&[], public);
    }

    /// Reads `a::b`, `a::{b, c::d}`, `a as b` or `a::*`, each after `base`.
    fn import_tree(&mut self, base: &[String], public: bool) {
        let mut segments = base.to_vec();
        let mut alias = None;
        while let Some(token) = self.next() {
            match token {
                "{" => {
                    while self.peek().is_some_and(|token| token != "}") {
                        self.import_tree(&segments, public);
                        if self.peek() == Some(",") {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    return;
                }
                "self" if !segments.is_empty() => {}
                name => segments.push(name.to_owned()),
            }
            match self.peek() {
                Some("::") => self.at += 1,
                Some("as") => {
                    alias = self.tokens.get(self.at + 1).cloned();
                    self.at += 2;
                    break;
                }
                _ => break,
            }
        }
        let name = alias.or_else(|| segments.last().cloned()).unwrap_or_default();
        self.mentions.push(Mention { place: self.place.clone(), segments, import: Some(Import { name, public }) });
    }

    /// Reads the rest of a path, of which the first token has been read.
    fn path(&mut self) {
        let start = self.at - 1;
        let is_name = |token: &String| token.starts_with(|c: char| c.is_alphabetic() || c == '_');
        if !is_name(&self.tokens[start]) || start > 0 && self.tokens[start - 1] == "::" {
            return;
        }
        let mut segments = vec![self.tokens[start].clone()];
        while self.peek() == Some("::") && self.tokens.get(self.at + 1).is_some_and(is_name) {
            segments.push(self.tokens[self.at + 1].clone());
            self.at += 2;
        }
        if segments.len() > 1 {
            self.mentions.push(Mention { place: self.place.clone(), segments, import: None });
        }
    }
}

/// Splits source into names, `::` and single characters; comments, literals and white space are
/// left out.
pub fn tokens(text: &str) -> Vec<String> {
    let mut tokens = vec![];
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skipped = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            '"' => string_length(rest),
            'r' => raw_string_length(rest),
            '\'' => char_length(rest),
            _ if first.is_whitespace() => first.len_utf8(),
            _ => 0,
        };
        if skipped == 0 {
            let is_name = |c: char| c.is_alphanumeric() || c == '_';
            let name = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
            let len = if rest.starts_with("::") { 2 } else { name.max(first.len_utf8()) };
            tokens.push(rest[..len].to_owned());
            rest = &rest[len..];
        } else {
            rest = &rest[skipped..];
        }
    }
    tokens
}

/// Returns the bytes of the string literal that the text begins with.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    let end = text.char_indices().skip(1).find(|(_, c)| {
        let ends = *c == '"' && !escaped;
        escaped = *c == '\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |(at, _)| at + 1)
}

/// Returns the bytes of the raw string literal that the text begins with, or 0.
fn raw_string_length(text: &str) -> usize {
    let hashes = text[1..].chars().take_while(|c| *c == '#').count();
    if text.as_bytes().get(1 + hashes) != Some(&b'"') {
        return 0;
    }
    let close = format!("\"{}", "#".repeat(hashes));
    let start = 2 + hashes;
    text[start..].find(&close).map_or(text.len(), |end| start + end + close.len())
}

/// Returns the bytes of the character literal that the text begins with, or 0 for a lifetime.
fn char_length(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match chars.next() {
        // The escaped character may be a quote itself.
        Some((_, '\\')) => text[3..].find('\'').map_or(text.len(), |end| end + 4),
        Some(_) => chars.next().filter(|(_, c)| *c == '\'').map_or(0, |(at, _)| at + 1),
        None => 0,
    }
}
