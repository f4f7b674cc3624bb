//! Checks the imports of src/: a stage uses the stages above it alone, a backend uses no other
//! backend, and the files of some folders do not import each other in circles. Checks the style of
//! all source files.

mod circles;
mod documents;
mod paths;
mod style;

use std::{collections::BTreeSet, fs, path::Path};

use self::{
    circles::{Uses, circles, uses_within},
    documents::missing_paths,
    paths::{ModulePath, mentions, module_of, rust_files},
    style::breaches,
};

/// Modules that all others may use.
const COMMON: [&str; 4] = ["error", "dtype", "image", "tool_call"];

/// The stages, from the file down; each may use those before it.
const STAGES: [&str; 15] = [
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
    "profile",
    "backend",
    "generate",
    "vision",
    "runner",
];

/// Modules beside that order: they use `gguf` and the modules before them in this list, and only
/// the decode loop and the runner use them.
const APART: [&str; 4] = ["tokenizer", "chat", "sampler", "grammar"];
const USERS_OF_APART: [&str; 2] = ["generate", "runner"];

/// The module that only re-exports stages, for tests and benches.
const INTERNALS: &str = "internals";

/// Names that lib.rs re-exports and every module may take from there, each with the module that
/// defines it.
const RE_EXPORTED: [(&str, &str); 4] =
    [("Error", "error"), ("Result", "error"), ("DType", "dtype"), ("Image", "image")];

/// Folders whose files use each other in one direction.
const ROOMS_WITHOUT_CIRCLES: [&str; 2] = ["backend::cpu", "chat"];

#[test]
fn imports_run_one_way() {
    let mut violations = vec![];
    let is_checked = |place: &ModulePath| place.first().is_some_and(|module| module != INTERNALS);
    for (place, text) in sources().iter().filter(|(place, _)| is_checked(place)) {
        for path in crate_paths(text, place) {
            if let Err(why) = check(place, &path) {
                violations.push(format!("{}: `{}`: {why}", place.join("::"), path.join("::")));
            }
        }
    }
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

#[test]
fn files_of_a_room_import_in_one_direction() {
    let files = sources();
    for room in ROOMS_WITHOUT_CIRCLES {
        let uses = uses_within(&path(room), &files);
        let edges: usize = uses.values().map(BTreeSet::len).sum();
        assert!(uses.len() > 10 && edges > uses.len(), "{room}: {} files and {edges} imports found", uses.len());
        let circles = circles(uses);
        assert!(circles.is_empty(), "files of {room} import each other in circles:\n{}", listed(&circles));
    }
}

#[test]
fn circles_of_imports_are_found() {
    let found = |files: &[(&str, &str)]| {
        let files: Vec<_> = files.iter().map(|(place, text)| (path(place), (*text).to_owned())).collect();
        listed(&circles(uses_within(&path("room"), &files)))
    };
    let declares = ("room", "mod a; mod b; mod c; pub(crate) use self::{a::A, b::B};");
    let (a, c) = (("room::a", "pub struct A;"), ("room::c", "use super::a::A; pub fn f(_: A) {}"));
    assert_eq!(found(&[declares, a, ("room::b", "use super::{A, c}; fn g() { c::f(A) }"), c]), "");
    // Through a re-export, through an imported module, and in an inline module.
    let circle = "room::a -> room::b\nroom::b -> room::a";
    let b = ("room::b", "pub struct B; fn g(_: super::a::A) {}");
    for uses_b in [
        "use super::B; pub struct A;",
        "use crate::room; pub struct A; fn f(_: room::B) {}",
        "use super::b; pub struct A; fn f(_: b::B) {}",
        "use super::b as other; pub struct A; fn f(_: other::B) {}",
        "pub struct A; mod inner { use super::super::b::B; }",
        "use super::b; pub struct A; macro_rules! m { ($m:ident) => { mod $m { fn f(_: b::B) {} } } }",
    ] {
        assert_eq!(found(&[declares, ("room::a", uses_b), b]), circle, "{uses_b}");
    }
    // A module that declares its children and computes with them uses them.
    let computes = ("room", "mod a; pub(crate) use self::a::A; pub struct R; fn f() -> A { A }");
    assert_eq!(
        found(&[computes, ("room::a", "pub struct A; fn g(_: super::R) {}")]),
        "room -> room::a\nroom::a -> room"
    );
    for harmless in [
        "pub struct A; // use super::b::B;",
        "pub struct A; const S: &str = r#\"} use super::b::B;\"#; const C: char = '{';",
        "pub struct A; mod tests { use super::super::b::B; }",
        "pub struct A; use other::b::B; fn f() { std::b::g() }",
    ] {
        assert_eq!(found(&[declares, ("room::a", harmless), b]), "", "{harmless}");
    }
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
    assert!(refused(&["image"], "gguf::Gguf") && !refused(&["chat"], "Image"));
    assert!(refused(&["error"], "gguf::Gguf") && !refused(&["chat"], "tokenizer::Tokenizer"));
}

#[test]
fn source_files_keep_the_style() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = vec![];
    for folder in ["src", "tests", "benches", "examples", "fuzz/src", "fuzz/targets"] {
        let files = rust_files(&root.join(folder));
        assert!(!files.is_empty(), "{folder} has no files");
        for file in &files {
            let name = file.strip_prefix(root).unwrap().display().to_string();
            let text = fs::read_to_string(file).unwrap();
            found.extend(breaches(&text).into_iter().map(|breach| format!("{name}:{breach}")));
            if has_folder_of_its_name(file) {
                found.push(format!("{name}: must be `mod.rs` in the folder of its name"));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn breaches_of_the_style_are_found() {
    let sound = [
        "//! A file.\n\nmod a;\npub mod b;\n\nuse std::{fs, io};\n\nuse half::f16;\n\nuse self::a::A;\n",
        "use super::B;\nuse crate::{C, d::D};\n#[cfg(test)]\nuse crate::E;\npub use crate::F;\n\n",
        "/// Runs.\n///\n/// # Safety\n/// The machine has `S`.\n#[inline]\npub unsafe fn f() {}\n",
        "type G = unsafe fn();\nmod inline {}\nuse A::{B, C};\n",
    ];
    assert_eq!(breaches(&sound.concat()), [""; 0]);
    let refused = |line: &str, text: &str| {
        let found = breaches(text);
        assert!(found.len() == 1 && found[0].starts_with(line), "{text}: {found:?}");
    };
    refused("2: `mod a;`", "use std::fs;\nmod a;\n");
    refused("2: `pub(crate) mod a;`", "use std::fs;\npub(crate) mod a;\n");
    refused("2: `std` must", "use crate::A;\nuse std::fs;\n");
    refused("2: `half` must", "use super::A;\nuse half::f16;\n");
    refused("2: imports of `std`", "use std::fs;\nuse std::io;\n");
    refused("1: the comment has 101", &format!("// {}\n", "x".repeat(98)));
    refused("1: the comment has 101", &format!("    /// {}\n", "é".repeat(93)));
    refused("2: the comment has 121", &format!("/// ```\n/// {}\n/// ```\n", "x".repeat(117)));
    refused("1: `unsafe fn f() {}`", "unsafe fn f() {}\n");
    refused("2: `pub unsafe fn f();`", "/// Runs.\npub unsafe fn f();\n");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    assert!(has_folder_of_its_name(&source.join("gguf.rs")) && !has_folder_of_its_name(&source.join("plan.rs")));
}

#[test]
fn paths_in_documents_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let markdown = |folder: &str| {
        let files = fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect::<Vec<_>>()
    };
    let documents = ["", "docs", "kernels"].map(markdown).concat();
    assert!(documents.len() > 10);
    for document in documents {
        let text = fs::read_to_string(&document).unwrap();
        assert_eq!(missing_paths(&text, root), Vec::<&str>::new(), "{}", document.display());
    }
    let text = "`src/lib.rs`, `threads/pool.rs`, `src/no.rs`, `a / b.rs`, `src/models/NAME.rs`, `docs/`, `no/`, `f32`";
    assert_eq!(missing_paths(text, root), ["src/no.rs", "no/"]);
}

/// Returns whether a folder beside the file has the file's name, so that the file belongs into it.
fn has_folder_of_its_name(file: &Path) -> bool {
    file.with_extension("").is_dir()
}

/// Returns all files of src/, as modules and their texts.
fn sources() -> Vec<(ModulePath, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let read = |file: &Path| (module_of(file.strip_prefix(&root).unwrap()), fs::read_to_string(file).unwrap());
    rust_files(&root).iter().map(|file| read(file)).collect()
}

fn path(text: &str) -> ModulePath {
    text.split("::").map(String::from).collect()
}

/// Returns one line for each module: its path and those that it uses.
fn listed(uses: &Uses) -> String {
    let join =
        |places: &BTreeSet<ModulePath>| places.iter().map(|place| place.join("::")).collect::<Vec<_>>().join(", ");
    uses.iter().map(|(place, of)| format!("{} -> {}", place.join("::"), join(of))).collect::<Vec<_>>().join("\n")
}

/// Returns the paths from the crate's root in the source of the module `place`, without other
/// crates' and local names.
fn crate_paths(text: &str, place: &[String]) -> Vec<ModulePath> {
    let paths = mentions(text, place).into_iter().filter_map(|mention| mention.absolute());
    paths.filter(|path| !path.is_empty()).collect()
}

/// Returns why the module at `place` may not use this path.
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
