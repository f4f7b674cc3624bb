//! Tests that a token's logits on a CPU do not depend on the size of the steps.

use std::sync::Arc;

use inkstone::{
    CacheType, Decoder, LogitsFor,
    gguf::Gguf,
    internals::{
        backend::{Backend, cpu::Cpu},
        generate::Limits,
        kv_cache::{CacheLayout, KvCache},
        models::Model,
        optimize::{Target, optimize},
        weights::{TensorSlice, Weights},
    },
};

use crate::support::{data, tiny::MODELS};

/// Returns the logits after each of `ids`, computed in steps of `len` tokens.
fn logits_in_steps(backend: &dyn Backend, gguf: &Gguf, ids: &[u32], len: usize) -> Vec<f32> {
    let weights = Weights::from_gguf(gguf);
    let Model { config, graph, .. } = Model::from_gguf(gguf, &weights).unwrap();
    let vector = |slice: &TensorSlice, width| weights.vector(slice, width).ok().map(Arc::from);
    let graph = optimize(&graph, &Target { supports: &|op| backend.supports(op), vector: &vector }).unwrap().graph;
    let layout = CacheLayout::new(&graph, CacheType::F16).unwrap();
    let limits = Limits { vocab_size: config.vocab_size, max_tokens: len, max_outputs: len };
    let executable = backend.compile(&graph, &weights, &layout, len, len).unwrap();
    let mut decoder = Decoder::new(executable, KvCache::new(&layout, config.context_length), limits);
    let sequence = decoder.open();
    decoder.step(&[(sequence, ids, LogitsFor::All)]).unwrap().to_vec()
}

/// The logits are equal bit for bit, with every instruction set.
#[test]
fn logits_on_a_cpu_do_not_depend_on_the_size_of_steps() {
    let paths = MODELS.map(|tiny| tiny.path()).into_iter().chain([data("storyteller/storyteller.gguf")]);
    for path in paths {
        let gguf = Gguf::open(&path).unwrap();
        let ids: Vec<u32> = (0..37).map(|n| n * 29 % 300).collect();
        for set in Cpu::instruction_sets() {
            let cpu = Cpu::with_instruction_set(Some(2), set).unwrap();
            let [one, few, many] = [1, 6, 37].map(|len| logits_in_steps(&cpu, &gguf, &ids, len));
            assert!(one == few && one == many, "{} with {set}", path.display());
        }
    }
}
