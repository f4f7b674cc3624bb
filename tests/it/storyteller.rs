//! The small real model that comes with the crate: its text is llama.cpp's, and every format serves it nearly as well
//! as single precision does.

use std::{fs, path::PathBuf};

use inkstone::{
    CacheType, DType,
    backend::{Backend, cpu::Cpu},
    generate::{Decoder, Limits, Wanted},
    gguf::Gguf,
    kv_cache::{CacheLayout, KvCache},
    models::Model,
    quant,
    weights::Weights,
};

use crate::support::{data, quantize::quantize};

/// Tokens of held-out stories that a perplexity is taken over.
const TOKENS: usize = 600;

fn file() -> PathBuf {
    data("storyteller/storyteller.gguf")
}

/// The model's tensors with every matrix in another format, and the same rounded weights in single precision.
fn requantized(gguf: &Gguf, dtype: DType) -> [Weights; 2] {
    let weights = Weights::from_gguf(gguf);
    let (mut packed, mut widened) = (vec![], vec![]);
    for tensor in gguf.tensors() {
        let weight = weights.get(&tensor.name, &tensor.shape).unwrap();
        let mut values = vec![0.0; tensor.elements()];
        quant::dequantize_row(weight.dtype, weight.bytes, &mut values).unwrap();
        let dtype = if tensor.shape.len() == 1 { DType::F32 } else { dtype };
        let bytes = quantize(dtype, &values);
        quant::dequantize_row(dtype, &bytes, &mut values).unwrap();
        packed.push((tensor.name.clone(), dtype, tensor.shape.clone(), bytes));
        widened.push((tensor.name.clone(), DType::F32, tensor.shape.clone(), quantize(DType::F32, &values)));
    }
    [packed, widened].map(|tensors| Weights::from_memory(tensors).unwrap())
}

/// The perplexity of `ids`, all but the first given those before it.
fn perplexity(gguf: &Gguf, weights: &Weights, cache_type: CacheType, ids: &[u32]) -> f64 {
    let Model { config, graph } = Model::from_gguf(gguf, weights).unwrap();
    let layout = CacheLayout::new(graph.caches(), cache_type).unwrap();
    let limits = Limits { vocab_size: config.vocab_size, max_tokens: 64, max_outputs: 64 };
    let executable = Cpu::new(Some(2)).unwrap().compile(&graph, weights, &layout, 64, 64).unwrap();
    let mut decoder = Decoder::new(executable, KvCache::new(config.context_length, usize::MAX), limits);
    let sequence = decoder.open();
    let mut surprise = 0.0;
    let mut next = ids[1..].iter();
    for chunk in ids[..ids.len() - 1].chunks(64) {
        let logits = decoder.step(&[(sequence, chunk, Wanted::All)]).unwrap();
        for (row, &id) in logits.chunks_exact(limits.vocab_size).zip(&mut next) {
            let total: f64 = row.iter().map(|&logit| f64::from(logit).exp()).sum();
            surprise += total.ln() - f64::from(row[id as usize]);
        }
    }
    (surprise / (ids.len() - 1) as f64).exp()
}

#[test]
fn ppl() {
    let gguf = Gguf::open(file()).unwrap();
    let tokenizer = inkstone::tokenizer::Tokenizer::from_gguf(&gguf).unwrap();
    let text = fs::read_to_string(data("storyteller/held_out.txt")).unwrap();
    let ids = tokenizer.encode_prompt(&text).unwrap();
    for &dtype in DType::ALL {
        let [a, b] = requantized(&gguf, dtype);
        println!("{dtype} {} {}", perplexity(&gguf, &a, CacheType::F16, &ids[..TOKENS]), perplexity(&gguf, &b, CacheType::F32, &ids[..TOKENS]));
    }
}
