//! The README's table of families is that of the crate.

use std::{fmt::Write, fs};

use inkstone::{gguf::Gguf, models::FAMILIES};

use crate::support::tiny::MODELS;

#[test]
fn the_table_of_families_is_the_crates() {
    let tiny = MODELS.map(|tiny| (Gguf::open(tiny.path()).unwrap().architecture().unwrap().to_string(), tiny.0));
    let mut table = String::from(
        "| `general.architecture` | `model_type` of safetensors | models | tiny models of it, whose logits and text are \
         llama.cpp's |\n|---|---|---|---|\n",
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
