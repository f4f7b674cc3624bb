//! Tests that the tables of families and features in the documentation match the crate.

use std::{fmt::Write, fs};

use inkstone::{gguf::Gguf, internals::models::FAMILIES};

use crate::support::tiny::MODELS;

#[test]
fn readme_families_match_the_crate() {
    let tiny = MODELS.map(|tiny| (Gguf::open(tiny.path()).unwrap().architecture().unwrap().to_string(), tiny.0));
    let mut table = String::from(
        "| `general.architecture` | `model_type` of safetensors | models | tiny models of it, whose logits and text are \
         llama.cpp's or transformers' |\n|---|---|---|---|\n",
    );
    for family in FAMILIES {
        let own: Vec<_> = tiny.iter().filter(|(of, _)| of == family.architecture).map(|(_, name)| *name).collect();
        assert!(!own.is_empty(), "{} is checked against nothing", family.architecture);
        let types: Vec<_> = family.model_types().map(|name| format!("`{name}`")).collect();
        let columns = [format!("`{}`", family.architecture), types.join(", "), family.models.into(), own.join(", ")];
        writeln!(table, "| {} |", columns.join(" | ")).unwrap();
    }
    let readme = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    assert!(readme.contains(&table), "README.md is to have this table:\n\n{table}");
}

#[test]
fn readme_features_match_cargo_toml() {
    let read = |name: &str| fs::read_to_string(format!("{}/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let (manifest, docs) = (read("Cargo.toml"), read("src/lib.rs"));
    let section = manifest.split_once("[features]\n").unwrap().1.split_once("\n\n").unwrap().0;
    let lines = section.lines().filter(|line| !line.starts_with('#'));
    // Features that begin with an underscore are for the crate's own tests.
    let public = lines.filter(|line| !line.starts_with('_'));
    let mut features: Vec<(&str, &str)> = public.map(|line| line.split_once(" = ").unwrap()).collect();
    let (_, default) = features.remove(0);
    features.sort_unstable();
    let table = docs.split_once("| feature | default |").unwrap().1.split_once("\n//!\n").unwrap().0;
    let rows = table.lines().skip(2).map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
    let mut rows: Vec<_> = rows.map(|row| (row[1].trim_matches('`').to_owned(), row[2] == "yes")).collect();
    rows.sort_unstable();
    let expected = features.iter().map(|(name, _)| (name.to_string(), default.contains(&format!("\"{name}\""))));
    assert_eq!(rows, expected.collect::<Vec<_>>());
}
