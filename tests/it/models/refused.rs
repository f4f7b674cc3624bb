//! Tests that keys which only single families have are named if they are out of range.

use inkstone::Error;

use super::families::{Stored, f32, file, load, mixture, text, u32};
use crate::support::gguf_file::array;

/// A key and its value; `None` removes the key.
type Change = (&'static str, Option<Stored>);

/// Returns an array of floats.
fn floats(numbers: &[f32]) -> Option<Stored> {
    let elements: Vec<_> = numbers.iter().map(|x| x.to_le_bytes().to_vec()).collect();
    Some((9, array(6, &elements)))
}

#[test]
fn keys_of_single_families_out_of_range_are_named() {
    let window = [("attention.sliding_window", u32(4))];
    let gemma3n = [("attention.sliding_window", u32(4)), ("embedding_length_per_layer_input", u32(8))];
    let muse = [("attention.sliding_window", u32(4)), ("logit_scale", f32(0.5))];
    let cases: Vec<(&str, &[Change], &str, Option<Stored>)> = vec![
        ("gemma3n", &gemma3n, "attention.sliding_window", None),
        ("gemma3n", &gemma3n, "embedding_length_per_layer_input", None),
        ("gemma3n", &gemma3n, "attention.shared_kv_layers", u32(1)),
        ("gemma3n", &gemma3n, "activation_sparsity_scale", f32(1.6)),
        ("gemma3n", &gemma3n, "activation_sparsity_scale", floats(&[1.6, 1.6])),
        ("gemma3n", &gemma3n, "activation_sparsity_scale", floats(&[f32::NAN])),
        ("gemma3n", &gemma3n, "activation_sparsity_scale", floats(&[f32::INFINITY])),
        ("gemma3n", &gemma3n, "altup.num_inputs", u32(1)),
        ("gemma3n", &gemma3n, "altup.num_inputs", u32(1 << 20)),
        ("gemma3n", &gemma3n, "altup.active_idx", u32(1)),
        // The streams are multiplied as heads, which have whole blocks.
        ("gemma3n", &gemma3n, "embedding_length", u32(8)),
        ("gemma3n", &gemma3n, "final_logit_softcapping", f32(-1.0)),
        ("muse-glimmer", &muse, "attention.sliding_window", None),
        ("muse-glimmer", &muse, "logit_scale", None),
        ("muse-glimmer", &muse, "logit_scale", f32(0.0)),
        ("nanbeige", &[], "num_loops", u32(0)),
        ("nanbeige", &[], "num_loops", u32(5000)),
        ("nanbeige", &[], "skip_loop_final_norm", u32(1)),
        ("nanbeige", &[], "rope.scaling.type", text("su")),
        ("nanbeige", &window, "attention.sliding_window", u32(4)),
    ];
    for (architecture, keys, key, value) in cases {
        let mut changes: Vec<_> = keys.iter().filter(|(other, _)| *other != key).cloned().collect();
        changes.push((key, value.clone()));
        named(load(&file(architecture, &changes)).unwrap_err(), architecture, key, &value);
    }
    // A token of Llama 4 has one expert, whose input is scaled.
    let one = ("expert_used_count", u32(1));
    let cases: [(&str, Option<Stored>); 6] = [
        ("expert_used_count", u32(2)),
        ("attention.sliding_window", u32(0)),
        ("expert_gating_func", u32(1)),
        ("interleave_moe_layer_step", u32(0)),
        ("attention.temperature_length", u32(0)),
        ("attention.temperature_scale", f32(-0.1)),
    ];
    for (key, value) in cases {
        let changes = if key == one.0 { vec![] } else { vec![one.clone()] };
        let changes = [changes, vec![(key, value.clone())]].concat();
        named(load(&mixture("llama4", &changes)).unwrap_err(), "llama4", key, &value);
    }
}

fn named(error: Error, architecture: &str, key: &str, value: &Option<Stored>) {
    let full = format!("{architecture}.{key}");
    assert!(matches!(&error, Error::Metadata { key, .. } if *key == full), "{full} {value:?}: {error:?}");
}
