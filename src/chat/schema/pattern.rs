//! Compiles the regular expressions of `pattern` and `patternProperties`.

use regex_automata::meta::Regex;

/// Compiles an expression with JSON Schema's meaning: it may match anywhere in the text, and `\d`
/// and `\w` match ASCII only.
pub(super) fn compile(pattern: &str) -> Result<Regex, String> {
    let config = Regex::config().nfa_size_limit(Some(1 << 20)).hybrid_cache_capacity(1 << 20);
    let regex = Regex::builder().configure(config).build(&ascii_classes(pattern));
    regex.map_err(|e| format!("`{pattern}` is not a supported regular expression: {}", reason(&e)))
}

fn reason(error: &regex_automata::meta::BuildError) -> String {
    match error.syntax_error() {
        // The lines before the last one repeat the expression.
        Some(syntax) => syntax.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned(),
        None => error.to_string(),
    }
}

/// Replaces `\d`, `\w`, `\D` and `\W` by ASCII classes. JSON Schema defines them for ASCII, and
/// Rust for Unicode.
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

/// Returns whether the empty text matches.
#[cfg(feature = "constrained")]
pub(in crate::chat) fn pattern_matches_empty(pattern: &str) -> bool {
    compile(pattern).is_ok_and(|pattern| pattern.is_match(""))
}
