//! Regular expressions of the keywords `pattern` and `patternProperties`.

use regex_automata::meta::Regex;

/// Compiles an expression as JSON Schema means it: found anywhere in the text, `\d` and `\w` of
/// ASCII alone.
pub(super) fn compile(pattern: &str) -> Result<Regex, String> {
    let config = Regex::config().nfa_size_limit(Some(1 << 20)).hybrid_cache_capacity(1 << 20);
    let regex = Regex::builder().configure(config).build(&ascii_classes(pattern));
    regex.map_err(|e| format!("`{pattern}` is not an expression that can be checked: {}", reason(&e)))
}

fn reason(error: &regex_automata::meta::BuildError) -> String {
    match error.syntax_error() {
        // The whole message repeats the expression on lines of its own.
        Some(syntax) => syntax.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned(),
        None => error.to_string(),
    }
}

/// Writes out `\d`, `\w` and their opposites, which mean ASCII in JSON Schema and all of Unicode in
/// Rust.
pub(in crate::chat) fn ascii_classes(pattern: &str) -> String {
    let mut written = String::new();
    let mut chars = pattern.chars();
    while let Some(char) = chars.next() {
        if char != '\\' {
            written.push(char);
            continue;
        }
        match chars.next() {
            Some('d') => written.push_str("[0-9]"),
            Some('D') => written.push_str("[^0-9]"),
            Some('w') => written.push_str("[0-9A-Za-z_]"),
            Some('W') => written.push_str("[^0-9A-Za-z_]"),
            escaped => written.extend(['\\'].into_iter().chain(escaped)),
        }
    }
    written
}

/// Whether the empty text matches.
#[cfg(feature = "constrained")]
pub(in crate::chat) fn pattern_matches_empty(pattern: &str) -> bool {
    compile(pattern).is_ok_and(|pattern| pattern.is_match(""))
}
