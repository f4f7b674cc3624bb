//! Finds paths in documents that lead to no file.

use std::path::Path;

/// Folders that documents may leave out of a path.
const ROOTS: [&str; 5] = ["", "src", "src/backend/cpu", "src/backend/webgpu", "kernels"];

/// Returns the paths in code spans of a Markdown text that exist under none of the roots in
/// `folder`. A path has a slash; a name in capitals stands for any name.
pub fn missing_paths<'t>(text: &'t str, folder: &Path) -> Vec<&'t str> {
    let spans = text.split('`').skip(1).step_by(2);
    let is_file = |span: &str| {
        let is_path = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
        span.contains('/')
            && span.chars().all(is_path)
            && span.rsplit('/').next().is_some_and(|name| name.is_empty() || name.contains('.'))
            && !span.starts_with(['/', '.'])
            && !span.contains("NAME")
    };
    let exists = |span: &str| ROOTS.iter().any(|root| folder.join(root).join(span).exists());
    spans.filter(|span| is_file(span) && !exists(span)).collect()
}
