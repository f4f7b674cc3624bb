//! Reads the lists of parameters and buffers at the start of templates.

use std::collections::{BTreeMap, BTreeSet};

use super::fields::Fields;

/// The list of a template's parameters and buffers.
#[derive(Default)]
pub(super) struct List {
    /// The type of each parameter, by its path.
    pub parameters: BTreeMap<String, String>,
    /// The values that are named of each parameter called `kind`.
    pub kinds: BTreeMap<String, BTreeSet<String>>,
    /// The type of each buffer, by its name.
    pub buffers: BTreeMap<String, String>,
}

impl List {
    /// Reads the list: lines such as `//   width: u32 - elements of a row` after a line `//
    /// Parameters ..:`, and `//   y: f32, written - the result` after `// Buffers:`. A longer
    /// description goes on with two more blanks.
    pub fn of(source: &str) -> Result<Self, String> {
        let mut list = Self::default();
        let mut section = "";
        let mut lines = source.lines().take_while(|line| line.starts_with("//")).peekable();
        while let Some(line) = lines.next() {
            if let Some(title) = line.strip_prefix("// ").filter(|line| !line.starts_with(' ')) {
                section = if title.starts_with("Parameters") { "Parameters" } else { title };
                continue;
            }
            let Some(entry) = line.strip_prefix("//   ") else { continue };
            if entry.starts_with(' ') {
                continue;
            }
            let mut text = entry.to_string();
            while let Some(more) = lines.next_if(|line| line.starts_with("//     ")) {
                text.push_str(more.trim_start_matches("//    "));
            }
            let (name, rest) = text.split_once(": ").ok_or_else(|| format!("`{text}` has no type"))?;
            let (type_name, meaning) = rest.split_once(" - ").unwrap_or((rest, ""));
            match section {
                "Parameters" => {
                    if meaning.is_empty() {
                        return Err(format!("`{name}` has no meaning"));
                    }
                    if name.ends_with("kind") {
                        let quoted = meaning.split('"').skip(1).step_by(2).map(str::to_string);
                        list.kinds.insert(name.into(), quoted.collect());
                    }
                    list.parameters.insert(name.into(), type_name.into());
                }
                "Buffers:" => {
                    list.buffers.insert(name.into(), type_name.into());
                }
                _ => return Err(format!("`{text}` is in no list")),
            }
        }
        Ok(list)
    }
}

/// Reads the types that several templates share: the fields of each, listed after `### Name`.
pub(super) fn shared_types(index: &str) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut types: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let mut name = String::new();
    for line in index.lines() {
        if let Some(title) = line.strip_prefix("### ") {
            name = title.trim_matches('`').into();
            types.entry(name.clone()).or_default();
        } else if line.starts_with("## ") {
            name.clear();
        } else if let Some((field, _)) = line.strip_prefix("- `").and_then(|line| line.split_once("`: "))
            && let Some((field, type_name)) = field.split_once(": ")
            && let Some(fields) = types.get_mut(&name)
        {
            fields.insert(field.into(), type_name.into());
        }
    }
    types
}

/// Returns the list that a template must have: all fields except the fields of shared types, which
/// must match the list of their type.
pub(super) fn expected(
    fields: &Fields,
    shared: &BTreeMap<String, BTreeMap<String, String>>,
) -> BTreeMap<String, String> {
    let mut expected = BTreeMap::new();
    for (path, field) in &fields.0 {
        // The elements of a list have the type of the list.
        if path.ends_with("[]") {
            continue;
        }
        let parents = path.match_indices('.').map(|(end, _)| &path[..end]);
        let mut of_shared = parents.filter_map(|parent| {
            let type_name = fields.0[parent].types.first()?;
            Some((type_name.as_str(), &path[parent.len() + 1..]))
        });
        match of_shared.rfind(|(type_name, _)| shared.contains_key(*type_name)) {
            Some((type_name, name)) if !name.contains('.') => {
                let listed = shared[type_name].get(name);
                assert_eq!(listed, Some(&field.type_name()), "kernels/README.md: `{name}` of `{type_name}`");
            }
            Some((_, name)) => panic!("kernels/README.md lacks the type that `{name}` of `{path}` is a field of"),
            None => {
                expected.insert(path.clone(), field.type_name());
            }
        }
    }
    for (type_name, listed) in shared {
        let of_type = fields.0.iter().filter(|(_, field)| field.types.contains(type_name.as_str()));
        for (path, _) in of_type {
            for name in listed.keys() {
                let known = fields.0.contains_key(&format!("{path}.{name}"));
                assert!(known, "kernels/README.md: `{type_name}` has no `{name}`");
            }
        }
    }
    expected
}

/// Returns the type of a buffer as lists write it.
pub(super) fn buffer(types: &BTreeSet<(String, bool)>) -> String {
    let elements: BTreeSet<_> = types.iter().map(|(element, _)| element.as_str()).collect();
    let written: BTreeSet<_> = types.iter().map(|(_, writes)| *writes).collect();
    let suffix = match written.first().zip(written.last()) {
        Some((true, true)) => ", written",
        Some((false, true)) => ", written by some",
        _ => "",
    };
    format!("{}{suffix}", elements.into_iter().collect::<Vec<_>>().join(" or "))
}

/// Returns the first name of a path.
pub(super) fn root(path: &str) -> &str {
    path.split(['.', '[']).next().unwrap_or(path)
}

/// Returns whether the path is a list, which templates read by index.
pub(super) fn is_of_list(path: &str, fields: &Fields) -> bool {
    fields.0.contains_key(&format!("{path}[]"))
}

/// Returns the templates that this one includes by name.
pub(super) fn included(source: &str) -> Vec<String> {
    source.split("{% include \"").skip(1).filter_map(|rest| rest.split('"').next()).map(String::from).collect()
}

/// Returns the names that a template binds for those that it includes.
pub(super) fn bound(source: &str) -> BTreeSet<String> {
    let set = source.split("{% set ").skip(1).filter_map(|rest| rest.split([' ', '=']).next()).map(String::from);
    let imported = source
        .split("{% from ")
        .skip(1)
        .filter_map(|rest| rest.split(" import ").nth(1)?.split(" %}").next())
        .flat_map(|names| names.split(", ").map(String::from));
    let own = macros(source).into_iter().filter_map(|own| own.split('(').next().map(String::from));
    set.chain(imported).chain(own).collect()
}

/// Returns the macros of a template with their arguments, but not the defaults of these.
pub(super) fn macros(source: &str) -> BTreeSet<String> {
    let heads = source.split("{% macro ").skip(1).filter_map(|rest| rest.split(" %}").next());
    heads.map(|head| head.replace("=false", "").replace("=true", "").replace("=\"\"", "")).collect()
}

/// Returns the macros that the comment at a partial's beginning lists.
pub(super) fn listed_macros(source: &str) -> BTreeSet<String> {
    let lines = source.lines().take_while(|line| line.starts_with("//"));
    let entries = lines.skip_while(|line| !line.starts_with("// Macros")).filter_map(|line| line.strip_prefix("//   "));
    let entries = entries.filter(|line| !line.starts_with(' '));
    entries.filter_map(|line| line.split(" - ").next()).map(String::from).collect()
}
