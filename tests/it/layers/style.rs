//! Finds breaches of the style of source files: the order of imports, the width of comments, and
//! contracts of unsafe functions that are missing.

/// Largest number of columns in a comment. Code in examples may have as many as other code.
const COMMENT_COLUMNS: usize = 100;
const CODE_COLUMNS: usize = 120;

/// Returns the breaches in a file's text, each with its line number.
pub fn breaches(text: &str) -> Vec<String> {
    let lines: Vec<_> = text.lines().collect();
    let found = [import_breaches(&lines), wide_comments(&lines), missing_contracts(&lines)].concat();
    found.into_iter().map(|(index, what)| format!("{}: {what}", index + 1)).collect()
}

/// Returns breaches of the order `mod`, `use std`, `use` of other crates, `self`, `super`, `crate`,
/// and imports of one crate that are not nested in one declaration.
///
/// Declarations with attributes or a visibility do not count, because they cannot be merged with
/// others.
fn import_breaches(lines: &[&str]) -> Vec<(usize, String)> {
    let mut found = vec![];
    let (mut last, mut roots, mut imported) = (0, vec![], false);
    for (index, line) in lines.iter().enumerate() {
        if imported && is_module_declaration(line) {
            found.push((index, format!("`{line}` must be before the imports")));
        }
        let Some(path) = line.strip_prefix("use ") else { continue };
        if index > 0 && lines[index - 1].starts_with("#[") {
            continue;
        }
        imported = true;
        let root = path.split([':', ';', ' ']).next().unwrap_or_default();
        let rank = match root {
            "std" => 0,
            "self" => 2,
            "super" => 3,
            "crate" => 4,
            _ => 1,
        };
        // A macro of the same file, or the variants of an enum.
        if !path.contains("::") || root.starts_with(char::is_uppercase) {
            continue;
        }
        if rank < last {
            found.push((index, format!("`{root}` must be imported before the imports above")));
        }
        if roots.contains(&root) {
            found.push((index, format!("imports of `{root}` must be nested in one declaration")));
        }
        last = last.max(rank);
        roots.push(root);
    }
    found
}

/// Returns whether a line declares a module in another file.
fn is_module_declaration(line: &str) -> bool {
    let declaration = line.split_once("mod ").filter(|(visibility, _)| {
        visibility.is_empty()
            || visibility.starts_with("pub") && visibility.ends_with(' ') && !visibility.contains("::")
    });
    declaration.is_some_and(|(_, name)| name.ends_with(';') && !name.contains(' '))
}

/// Returns the comments that are too wide. Rows of Markdown tables cannot be wrapped.
fn wide_comments(lines: &[&str]) -> Vec<(usize, String)> {
    let mut found = vec![];
    let mut in_example = false;
    for (index, line) in lines.iter().enumerate() {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            in_example = false;
            continue;
        };
        let content = comment.trim_start_matches(['/', '!']).trim_start();
        in_example ^= content.starts_with("```");
        let (columns, limit) = (line.chars().count(), if in_example { CODE_COLUMNS } else { COMMENT_COLUMNS });
        if columns > limit && !content.starts_with('|') {
            found.push((index, format!("the comment has {columns} columns, {limit} are allowed")));
        }
    }
    found
}

/// Returns the unsafe functions whose documentation has no section `# Safety`.
fn missing_contracts(lines: &[&str]) -> Vec<(usize, String)> {
    let mut found = vec![];
    for (index, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let is_item = ["pub", "const ", "async ", "unsafe "].iter().any(|start| code.starts_with(start));
        let named = code.split_once("unsafe fn ").is_some_and(|(_, rest)| rest.starts_with(char::is_alphabetic));
        let is_attached = |line: &&&str| ["///", "#[", "//"].iter().any(|start| line.trim_start().starts_with(start));
        let mut documentation = lines[..index].iter().rev().take_while(is_attached);
        if is_item && named && !documentation.any(|line| line.trim_start().starts_with("/// # Safety")) {
            found.push((index, format!("`{}` has no section `# Safety`", code.trim_end())));
        }
    }
    found
}
