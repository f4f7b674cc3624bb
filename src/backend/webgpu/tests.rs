//! Tests that every kernel of every kind of model is valid for adapters that this machine lacks:
//! naga translates it to the languages of Vulkan, Metal and DX12.

use std::{collections::BTreeSet, sync::Arc};

use naga::{
    back::{hlsl, msl, spv},
    valid::{Capabilities, ValidationFlags, Validator},
};

use super::{
    argmax, best,
    context::Traits,
    lower::{GEMV_ROWS, GpuLowering, StepKind},
    prepare,
    templates::Templates,
    test_adapters::ADAPTERS,
    weight_buffers::WeightBuffers,
};
use crate::{
    DType, Result,
    backend::Bounds,
    graph::{
        Activation, Builder, DeltaSpec, ExpertsSpec, Graph, HeadOrder, LayerCache, RopeAxes, RopeSpec, RopeStyle,
        Scores, Sees, Window,
    },
    kv_cache::{CacheLayout, CacheType},
    optimize::{Target, optimize},
    plan::Plan,
    weights::Weights,
};

/// Soft caps and a window, as in Gemma 2.
const CAPPED: Scores = Scores { scale: 0.1, softcap: Some(50.0), window: Some(Window::Sliding(100)), sees: Sees::Past };

/// Returns a model of one layer with weights of a format: with norms of heads as in Qwen3, or
/// without as in Llama. `group` query heads share the key-value head.
fn model(dtype: DType, normed: bool, head_dim: usize, group: usize, scores: Scores) -> (Graph, Weights) {
    const HIDDEN: usize = 256;
    let (mut b, mut tensors) = (Builder::new(), vec![]);
    let mut weight = |b: &mut Builder, name: &str, dtype: DType, rows: usize, columns: usize| {
        let bytes = vec![0; rows * dtype.row_bytes(columns).unwrap()];
        let shape = if rows == 1 { vec![columns] } else { vec![rows, columns] };
        tensors.push((name.to_string(), dtype, shape, bytes));
        b.weight(name, dtype, rows, columns)
    };
    let width = group * head_dim;
    let tokens = b.tokens();
    let table = weight(&mut b, "table", dtype, 512, HIDDEN);
    let x = b.embed(table, tokens);
    let norm = weight(&mut b, "norm", DType::F32, 1, HIDDEN);
    let h = b.rms_norm(x, norm, 1e-6);
    let mut heads = |b: &mut Builder, name: &str, width: usize| {
        let w = weight(b, name, dtype, width, HIDDEN);
        b.matmul(h, w)
    };
    let [mut q, mut k, v] = [heads(&mut b, "q", width), heads(&mut b, "k", head_dim), heads(&mut b, "v", head_dim)];
    if normed {
        let [q_norm, k_norm] = ["q_norm", "k_norm"].map(|name| weight(&mut b, name, DType::F32, 1, head_dim));
        (q, k) = (b.rms_norm(q, q_norm, 1e-6), b.rms_norm(k, k_norm, 1e-6));
    }
    let frequencies = b.constant(vec![0.5; head_dim / 2]);
    let style = if normed { RopeStyle::Halves } else { RopeStyle::Adjacent };
    let [q, k] = [q, k].map(|x| b.rope(x, frequencies, RopeSpec { style, head_dim, axes: RopeAxes::First }));
    let a = b.attention([q, k, v], LayerCache { kv_heads: 1, head_dim, keys_only: false }, group, scores);
    let o = weight(&mut b, "o", if width.is_multiple_of(256) { dtype } else { DType::F16 }, HIDDEN, width);
    let a = b.matmul(a, o);
    let x = b.add(x, a);
    let norm = weight(&mut b, "ffn_norm", DType::F32, 1, HIDDEN);
    let h = b.rms_norm(x, norm, 1e-6);
    let [gate, up] = ["gate", "up"].map(|name| {
        let w = weight(&mut b, name, dtype, 512, HIDDEN);
        b.matmul(h, w)
    });
    let gate = b.silu(gate);
    let h = b.mul(gate, up);
    let down = weight(&mut b, "down", dtype, HIDDEN, 512);
    let h = b.matmul(h, down);
    let x = b.add(x, h);
    let norm = weight(&mut b, "last_norm", DType::F32, 1, HIDDEN);
    let h = b.rms_norm(x, norm, 1e-6);
    let logits = b.matmul(h, table);
    let logits = scores.softcap.map_or(logits, |cap| b.soft_cap(logits, cap));
    (b.finish(logits).unwrap(), Weights::from_memory(tensors).unwrap())
}

/// Returns layers of experts: with the weights of a router and with scaled weights, and with gate
/// and up as two matrices and as one.
fn mixture(dtype: DType) -> (Graph, Weights) {
    const EXPERTS: usize = 6;
    const TOP_K: usize = 2;
    const WIDTH: usize = 256;
    let (mut b, mut tensors) = (Builder::new(), vec![]);
    let mut weight = |b: &mut Builder, name: &str, dtype: DType, rows: usize| {
        tensors.push((name.to_string(), dtype, vec![rows, WIDTH], vec![0; rows * dtype.row_bytes(WIDTH).unwrap()]));
        b.weight(name, dtype, rows, WIDTH)
    };
    let tokens = b.tokens();
    let table = weight(&mut b, "table", dtype, 64);
    let x = b.embed(table, tokens);
    let router = weight(&mut b, "router", DType::F32, EXPERTS);
    let logits = b.matmul(x, router);
    let weights = b.route(logits, TOP_K);
    let spec =
        |activation: Activation| ExpertsSpec { experts: EXPERTS, top_k: TOP_K, glu: activation.into(), biased: false };
    let apart = ["gate", "up", "down"].map(|name| weight(&mut b, name, dtype, EXPERTS * WIDTH));
    let x = b.experts(x, weights, &apart, spec(Activation::Silu));
    let factors = b.constant(vec![0.5; EXPERTS]);
    let weights = b.mul(weights, factors);
    let joined = [("both", 2), ("mixed", 1)].map(|(name, each)| weight(&mut b, name, dtype, each * EXPERTS * WIDTH));
    let x = b.experts(x, weights, &joined, spec(Activation::Gelu));
    let mixed = [("f16", DType::F16), ("other", dtype), ("f32", DType::F32)];
    let mixed = mixed.map(|(name, dtype)| weight(&mut b, name, dtype, EXPERTS * WIDTH));
    let x = b.experts(x, weights, &mixed, spec(Activation::Silu));
    (b.finish(x).unwrap(), Weights::from_memory(tensors).unwrap())
}

/// Returns a graph with a short convolution and a gated delta rule.
fn recurrent(head_dim: usize, kernel: usize) -> (Graph, Weights) {
    let (mut b, mut tensors) = (Builder::new(), vec![]);
    let mut weight = |b: &mut Builder, name: &str, rows: usize, columns: usize| {
        let shape = if rows == 1 { vec![columns] } else { vec![rows, columns] };
        tensors.push((name.to_string(), DType::F32, shape, vec![0; 4 * rows * columns]));
        b.weight(name, DType::F32, rows, columns)
    };
    let tokens = b.tokens();
    let mut rows = |b: &mut Builder, name: &str, width: usize| {
        let table = weight(b, name, 8, width);
        b.embed(table, tokens)
    };
    let [qkv, alpha, beta] = [("qkv", 4 * head_dim), ("alpha", 2), ("beta", 2)].map(|(name, n)| rows(&mut b, name, n));
    let taps = weight(&mut b, "taps", 4 * head_dim, kernel);
    let qkv = b.short_conv(qkv, taps);
    let [a, dt] = ["a", "dt"].map(|name| weight(&mut b, name, 1, 2));
    let spec = DeltaSpec { state: 0, key_heads: 1, value_heads: 2, order: HeadOrder::Tiled, head_dim, eps: 1e-6 };
    let y = b.gated_delta([qkv, alpha, beta, a, dt], spec);
    (b.finish(y).unwrap(), Weights::from_memory(tensors).unwrap())
}

/// Returns the WGSL sources of all kernels of a model's programs.
fn sources(graph: &Graph, weights: &Weights, traits: &Traits, cache_type: CacheType) -> Result<BTreeSet<String>> {
    let cache = CacheLayout::new(graph, cache_type)?;
    let plan = Plan::new(graph)?;
    let bounds = Bounds::new(&plan, &cache, 64, 2 * GEMV_ROWS);
    let vectors = prepare::vectors(&plan, weights)?;
    let layout = prepare::layout(traits, &plan, &vectors, &bounds, &cache)?;
    let mut weight_buffers = WeightBuffers::new();
    prepare::place_matrices(traits, &plan, weights, &mut weight_buffers)?;
    let templates = Templates::new()?;
    let choices = argmax::kernels(&plan).into_iter().chain(best::kernels(&plan));
    let mut sources = choices.map(|kernel| kernel.source(&templates)).collect::<Result<BTreeSet<_>>>()?;
    for steps in StepKind::up_to(bounds.max_outputs) {
        let lowering = GpuLowering::new(&plan, &mut weight_buffers, traits, &cache, &layout, &vectors);
        for command in lowering.program(steps)? {
            for kernel in &command.variants {
                sources.insert(kernel.source(&templates)?);
            }
        }
    }
    Ok(sources)
}

pub(super) fn translate(source: &str, traits: &Traits) {
    let module = naga::front::wgsl::parse_str(source).unwrap_or_else(|e| panic!("{}", e.emit_to_string(source)));
    let everywhere = Capabilities::SUBGROUP | Capabilities::SHADER_FLOAT16 | Capabilities::SHADER_FLOAT16_IN_FLOAT32;
    let uses_matrices = source.contains("coop_mat");
    let capabilities = if uses_matrices { everywhere | Capabilities::COOPERATIVE_MATRIX } else { everywhere };
    let mut validator = Validator::new(ValidationFlags::all(), capabilities);
    validator.subgroup_stages(naga::valid::ShaderStages::all());
    validator.subgroup_operations(naga::valid::SubgroupOperationSet::all());
    let info = validator.validate(&module).unwrap_or_else(|e| panic!("{}", e.emit_to_string(source)));

    spv::write_vec(&module, &info, &spv::Options::default(), None).unwrap_or_else(|e| panic!("SPIR-V: {e}\n{source}"));
    if uses_matrices {
        assert!(traits.matrices);
        return;
    }
    let options = msl::Options { lang_version: (3, 0), ..Default::default() };
    msl::write_string(&module, &info, &options, &msl::PipelineOptions::default())
        .unwrap_or_else(|e| panic!("Metal: {e}\n{source}"));
    let options = hlsl::Options { shader_model: hlsl::ShaderModel::V6_4, ..Default::default() };
    let mut text = String::new();
    hlsl::Writer::new(&mut text, &options, &hlsl::PipelineOptions::default())
        .write(&module, &info, None)
        .unwrap_or_else(|e| panic!("HLSL: {e}\n{source}"));
}

fn optimized(graph: &Graph) -> Graph {
    let target = Target { supports: &|_| true, vector: &|_, _| None::<Arc<[f32]>> };
    optimize(graph, &target).unwrap().graph
}

#[test]
fn every_kernel_translates_to_the_languages_of_vulkan_metal_and_dx12() {
    for traits in &ADAPTERS {
        let mut all = BTreeSet::new();
        for dtype in DType::ALL {
            let (graph, weights) = model(*dtype, true, 128, 2, 0.1.into());
            all.extend(sources(&optimized(&graph), &weights, traits, CacheType::F16).unwrap());
            let (graph, weights) = mixture(*dtype);
            all.extend(sources(&optimized(&graph), &weights, traits, CacheType::F16).unwrap());
        }
        let plain = Scores::from(0.1);
        for (cache_type, head_dim, group, scores) in [
            (CacheType::F32, 64, 4, plain),
            (CacheType::Q8_0, 128, 8, CAPPED),
            (CacheType::F16, 256, 2, plain),
            (CacheType::F16, 256, 2, CAPPED),
            (CacheType::F16, 80, 1, CAPPED),
        ] {
            let (graph, weights) = model(DType::Q4_K, false, head_dim, group, scores);
            // Also without fused ops, because fusions do not apply to every graph.
            for graph in [optimized(&graph), graph] {
                all.extend(sources(&graph, &weights, traits, cache_type).unwrap());
            }
        }
        for (head_dim, kernel) in [(16, 2), (48, 3), (128, 4)] {
            let (graph, weights) = recurrent(head_dim, kernel);
            all.extend(sources(&optimized(&graph), &weights, traits, CacheType::F16).unwrap());
        }
        assert!(all.len() > 100, "{} kernels", all.len());
        all.iter().for_each(|source| translate(source, traits));
    }
}
