//! Keeps the import rule over src/: a stage uses those above it, never those below, and a backend no other backend.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// What everything may use.
const COMMON: [&str; 3] = ["error", "dtype", "tool_call"];

/// The stages, from the file down; each may use those before it.
const STAGES: [&str; 13] = [
    "gguf",
    "safetensors",
    "weights",
    "simd",
    "quant",
    "graph",
    "models",
    "optimize",
    "plan",
    "kv_cache",
    "backend",
    "generate",
    "runner",
];

/// What stands apart of that order: it uses the file's metadata at most, and of its own kind those before it. The decode
/// loop and the runner use it.
const APART: [&str; 4] = ["tokenizer", "chat", "sampler", "grammar"];
const USERS_OF_APART: [&str; 2] = ["generate", "runner"];

/// Names that lib.rs re-exports and every module may take from there, with the module that they are in.
const RE_EXPORTED: [(&str, &str); 3] = [("Error", "error"), ("Result", "error"), ("DType", "dtype")];

#[test]
fn imports_run_one_way() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut violations = vec![];
    for file in rust_files(&root) {
        let place = module_of(file.strip_prefix(&root).unwrap());
        if place.is_empty() {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        for path in crate_paths(&text, &place) {
            if let Err(why) = check(&place, &path) {
                violations.push(format!("{}: `{}`: {why}", file.display(), path.join("::")));
            }
        }
    }
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

#[test]
fn violations_are_found() {
    let place = ["backend", "cpu", "run"].map(String::from);
    let text = "use crate::{Error, graph::{Op, Shape}, backend::{self, webgpu::Shader}};\n\
                // use crate::api::runner::Runner;\n\
                fn f() { super::super::super::generate::g(); super::pool::h(); super::super::webgpu::k() }\n\
                const S: &str = \"crate::api::runner\";";
    let paths: BTreeSet<_> = crate_paths(text, &place).into_iter().map(|path| path.join("::")).collect();
    let expected = [
        "Error",
        "backend",
        "backend::cpu::pool::h",
        "backend::webgpu::Shader",
        "backend::webgpu::k",
        "generate::g",
        "graph::Op",
        "graph::Shape",
    ];
    assert_eq!(paths, expected.map(String::from).into());
    let refused = |place: &[&str], path: &str| {
        let place: Vec<_> = place.iter().copied().map(String::from).collect();
        check(&place, &path.split("::").map(String::from).collect::<Vec<_>>()).is_err()
    };
    assert!(refused(&["graph"], "plan::Plan") && !refused(&["plan"], "graph::Graph"));
    assert!(refused(&["backend", "cpu", "run"], "backend::webgpu::k") && !refused(&["backend"], "backend::cpu::Cpu"));
    assert!(refused(&["tokenizer"], "models::Config") && !refused(&["tokenizer"], "gguf::Gguf"));
    assert!(refused(&["models"], "sampler::Sampler") && !refused(&["generate"], "sampler::Sampler"));
    assert!(refused(&["gguf"], "Runner") && refused(&["gguf"], "nonsense::x") && !refused(&["gguf"], "Error"));
    assert!(refused(&["error"], "gguf::Gguf") && !refused(&["chat"], "tokenizer::Tokenizer"));
}

/// Whether the module at `place` may use this path.
fn check(place: &[String], path: &[String]) -> Result<(), String> {
    let (user, used) = (place[0].as_str(), path[0].as_str());
    let used = RE_EXPORTED.iter().find(|(name, _)| *name == used).map_or(used, |(_, module)| module);
    if let ("backend", Some(own), Some(other)) = (used, place.get(1), path.get(1))
        && user == "backend"
        && own != other
        && other.starts_with(char::is_lowercase)
    {
        return Err(format!("the backend {own} uses the backend {other}"));
    }
    if used == user || COMMON.contains(&used) {
        return Ok(());
    }
    let rank = |list: &[&str], name: &str| list.iter().position(|module| *module == name);
    let allowed = match (rank(&STAGES, user), rank(&STAGES, used), rank(&APART, user), rank(&APART, used)) {
        (Some(user), Some(used), ..) => used < user,
        (Some(_), None, _, Some(_)) => USERS_OF_APART.contains(&user),
        (None, Some(_), Some(_), _) => used == "gguf",
        (None, None, Some(user), Some(used)) => used < user,
        _ => false,
    };
    if allowed { Ok(()) } else { Err(format!("{user} may not use {used}")) }
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.flat_map(|path| if path.is_dir() { rust_files(&path) } else { vec![path] });
    files.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

/// `backend/cpu/run.rs` is `backend::cpu::run`; lib.rs is the root, and may name all.
fn module_of(file: &Path) -> Vec<String> {
    let mut place: Vec<_> = file.with_extension("").iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    if place.last().is_some_and(|name| name == "mod" || name == "lib") {
        place.pop();
    }
    place
}

/// Every path in the text that begins at the crate's root, or by `super` or `self` at a place within it, as from the root.
fn crate_paths(text: &str, place: &[String]) -> Vec<Vec<String>> {
    let tokens = tokens(text);
    let mut paths = vec![];
    let mut at = 0;
    while at < tokens.len() {
        let start = at;
        at += 1;
        let continues_another = start > 0 && tokens[start - 1] == "::";
        if continues_another
            || !matches!(tokens[start].as_str(), "crate" | "super")
            || tokens.get(at).is_none_or(|t| t != "::")
        {
            continue;
        }
        let mut base = if tokens[start] == "crate" { vec![] } else { parent(place) };
        at += 1;
        while tokens.get(at).is_some_and(|token| token == "super") {
            base = parent(&base);
            at += 2;
        }
        tree(&tokens, &mut at, &base, &mut paths);
    }
    paths.retain(|path| !path.is_empty());
    paths
}

fn parent(place: &[String]) -> Vec<String> {
    place[..place.len().saturating_sub(1)].to_vec()
}

/// Reads `a::b`, `a::{b, c::d}` or `*` from token `at` on, each after `base`.
fn tree(tokens: &[String], at: &mut usize, base: &[String], paths: &mut Vec<Vec<String>>) {
    let mut path = base.to_vec();
    while let Some(token) = tokens.get(*at) {
        *at += 1;
        match token.as_str() {
            "{" => {
                while tokens.get(*at).is_some_and(|token| token != "}") {
                    tree(tokens, at, &path, paths);
                    while tokens.get(*at).is_some_and(|token| token != "," && token != "}") {
                        *at += 1;
                    }
                    *at += usize::from(tokens.get(*at).is_some_and(|token| token == ","));
                }
                *at += 1;
                return;
            }
            "self" | "*" => {}
            name => path.push(name.to_owned()),
        }
        if tokens.get(*at).is_none_or(|token| token != "::") {
            break;
        }
        *at += 1;
    }
    paths.push(path);
}

/// Names, `::` and single characters, without comments, strings and white space.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = vec![];
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let len = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if first == '"' {
            string_length(rest)
        } else if rest.starts_with("'\"'") {
            3
        } else {
            let len = if rest.starts_with("::") {
                2
            } else {
                rest.find(|c| !is_name(c)).unwrap_or(rest.len()).max(first.len_utf8())
            };
            if !first.is_whitespace() {
                tokens.push(rest[..len].to_owned());
            }
            len
        };
        rest = &rest[len..];
    }
    tokens
}

/// The bytes of the string literal that the text begins with.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    let end = text.char_indices().skip(1).find(|(_, c)| {
        let ends = *c == '"' && !escaped;
        escaped = *c == '\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |(at, _)| at + 1)
}
