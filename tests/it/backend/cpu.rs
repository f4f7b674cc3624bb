//! What every backend promises beside right results: typed errors, growth, the same results however
//! the work is divided.

use std::{collections::HashMap, thread};

use inkstone::{
    CacheType, DType, Error, Result,
    internals::{
        backend::{self, Backend, cpu::Cpu},
        graph::{Builder, FusedOp, Graph, LayerCache, Op},
        kv_cache::{CacheLayout, KvCache, PageTable},
        plan::Plan,
        weights::Weights,
    },
};

use super::ops::{compare, ragged};
use crate::support::{
    drive::{self, Driver, Tensor, label, packed},
    graphs::{self, Sizes},
    interpret::{self, Interpreter, Step},
    quantize::quantize,
};

/// Large enough for K formats and for every thread to have a share.
const SIZES: Sizes =
    Sizes { layers: 2, embedding: 256, heads: 6, kv_heads: 2, head_dim: 32, feed_forward: 512, vocabulary: 90 };
const BOUNDS: [usize; 2] = [200, 200];

/// A small model in single precision: the graph, its weights in both forms.
fn model() -> (Graph, Weights, interpret::Weights) {
    let sizes = graphs::SMALL;
    let graph = graphs::qwen3_like(Sizes { vocabulary: SIZES.vocabulary, ..sizes });
    let dense = graphs::weights_for(&graph, 1);
    let weights = packed(&tensors(&graph, &dense));
    (graph, weights, dense)
}

/// The tensors that a graph names, in the formats that it names.
fn tensors(graph: &Graph, dense: &interpret::Weights) -> Vec<Tensor> {
    let mut tensors: Vec<Tensor> = Vec::new();
    for value in graph.values() {
        let inkstone::internals::graph::Source::Weight { slice, dtype } = &value.source else { continue };
        if tensors.iter().any(|tensor| *tensor.name == *slice.name) {
            continue;
        }
        let (columns, elements) = (value.shape.width, &dense[&*slice.name]);
        let (rows, bytes) = (elements.len() / columns, quantize(*dtype, elements));
        tensors.push(Tensor { name: slice.name.to_string(), dtype: *dtype, rows, columns, bytes });
    }
    tensors
}

/// Attention and products in three formats, with weights small enough for any depth.
pub fn quantized_model() -> (Graph, Weights) {
    let mut b = Builder::new();
    let tokens = b.tokens();
    let Sizes { embedding: n, heads, kv_heads, head_dim, feed_forward, vocabulary, .. } = SIZES;
    let table = b.weight("table", DType::Q8_0, vocabulary, n);
    let x = b.embed(table, tokens);
    let [q, k, v] = [("q", heads, DType::Q4_K), ("k", kv_heads, DType::Q4_K), ("v", kv_heads, DType::Q6_K)]
        .map(|(name, heads, dtype)| b.weight(name, dtype, heads * head_dim, n));
    let qkv = b.push_all(FusedOp::MatMulJoined, &[x, q, k, v]);
    let attended =
        b.attention([qkv[0], qkv[1], qkv[2]], LayerCache { kv_heads, head_dim, keys_only: false }, heads, 0.2);
    let o = b.weight("o", DType::Q5_0, n, heads * head_dim);
    let x = b.push(FusedOp::MatMulAdd, &[attended, o, x]);
    let [gate, up] = ["gate", "up"].map(|name| b.weight(name, DType::Q4_K, feed_forward, n));
    let gated = b.push(FusedOp::MatMulGlu(inkstone::internals::graph::Activation::Silu), &[x, gate, up]);
    let down = b.weight("down", DType::F16, n, feed_forward);
    let x = b.push(FusedOp::MatMulAdd, &[gated, down, x]);
    let logits = b.matmul(x, table);
    let graph = b.finish(logits).expect("a sound graph");
    let mut dense = graphs::weights_for(&graph, 2);
    dense.iter_mut().filter(|(name, _)| *name != "table").for_each(|(_, w)| w.iter_mut().for_each(|w| *w *= 0.05));
    let weights = packed(&tensors(&graph, &dense));
    (graph, weights)
}

/// The backends that support the model, which holds fused ops.
pub fn backends_for(graph: &Graph) -> Vec<Box<dyn Backend>> {
    let all = drive::backends().into_iter();
    all.filter(|backend| graph.nodes().iter().filter_map(|node| node.op.fused()).all(|op| backend.supports(op)))
        .collect()
}

pub fn driver(backend: &dyn Backend, graph: &Graph, weights: &Weights) -> Driver {
    let driver = Driver::new(backend, graph, weights, CacheType::F32, BOUNDS);
    driver.unwrap_or_else(|e| panic!("{}: {e}", label(backend)))
}

#[test]
fn wrong_steps_are_typed_errors() {
    let (graph, weights, _) = model();
    let mut cache = KvCache::new(&CacheLayout::new(&graph, CacheType::F16).unwrap(), 1000);
    let [a, b] = [cache.open(), cache.open()];
    cache.extend(a, 70).unwrap();
    cache.extend(b, 5).unwrap();
    let (a, b): (&[PageTable], &[PageTable]) = (cache.pages(a).unwrap(), cache.pages(b).unwrap());
    let [second, hole]: [PageTable; 2] =
        [[a[0].page(64), None], [None, a[0].page(64)]].map(|pages| pages.into_iter().collect());
    let (second, hole) = ([second], [hole]);
    type Runs<'a> = &'a [(usize, usize, &'a [PageTable])];
    let cases: [(&[u32], Runs<'_>, &[usize], &str); 16] = [
        (&[], &[], &[], "has 0 tokens and 0 outputs: 1 to 8 and up to 3 fit"),
        (&[0; 9], &[(9, 0, a)], &[], "has 9 tokens and 0 outputs"),
        (&[0; 5], &[(5, 0, a)], &[0, 1, 2, 3], "has 5 tokens and 4 outputs"),
        (&[0, 90], &[(2, 0, a)], &[], "has the token id 90, the vocabulary ends at 89"),
        (&[0, u32::MAX], &[(2, 0, a)], &[], "has the token id 4294967295"),
        (&[0, 1], &[(1, 0, a)], &[], "has runs whose lengths do not add up to its 2 tokens"),
        (&[0, 1], &[(usize::MAX, 0, a), (3, 0, b)], &[], "has runs whose lengths"),
        (&[0, 1], &[(2, 0, a)], &[2], "has outputs that are not ascending indices below 2"),
        (&[0, 1], &[(2, 0, a)], &[1, 0], "has outputs that are not ascending"),
        (&[0, 1], &[(2, 0, a)], &[1, 1], "has outputs that are not ascending"),
        (&[0, 1], &[(2, 127, a)], &[], "has a run of 2 tokens from 127 on, with pages for 128"),
        (&[0, 1], &[(2, usize::MAX, a)], &[], "has a run of 2 tokens from 18446744073709551615 on"),
        (&[0, 1], &[(1, 3, b), (1, 3, b)], &[], "has runs that write one position of a cache page twice"),
        (&[0, 1, 2], &[(2, 63, a), (1, 0, &second)], &[], "has runs that write one position"),
        (&[0], &[(1, 70, &hole)], &[], "has a run from 70 on that sees positions whose pages were given back"),
        (&[0], &[(1, 0, &[])], &[], "has a run with 0 page tables, and the cache has 1 groups of layers"),
    ];
    for backend in drive::backends() {
        let layout = CacheLayout::new(&graph, CacheType::F16).unwrap();
        let mut executable = backend.compile(&graph, &weights, &layout, 8, 3).unwrap();
        let mut run = |tokens: &[u32], runs: Runs<'_>, outputs: &[usize]| -> Result<usize> {
            let runs: Vec<_> = runs
                .iter()
                .map(|&(len, start, pages)| backend::Run { len, start, pages, state: None, ..Default::default() })
                .collect();
            let step = backend::Step { tokens, runs: &runs, outputs, copies: &[], ..Default::default() };
            executable.run(&step).map(<[f32]>::len)
        };
        for (tokens, runs, outputs, expected) in cases {
            let error = run(tokens, runs, outputs).unwrap_err();
            assert!(matches!(error, Error::Argument { name: "step", .. }), "{error:?}");
            assert!(error.to_string().starts_with(&format!("step: {expected}")), "{error}");
        }
        // Two runs of one sequence, one after the other, are sound, and so is what follows an
        // error.
        assert_eq!(run(&[1, 2, 3], &[(2, 63, a), (1, 65, a)], &[0, 2]).unwrap(), 180);
    }
}

#[test]
fn wrong_weights_and_caches_are_typed_errors() {
    let (graph, weights, dense) = model();
    let layout = CacheLayout::new(&graph, CacheType::F16).unwrap();
    let without =
        |name: &str| packed(&tensors(&graph, &dense).into_iter().filter(|t| t.name != name).collect::<Vec<_>>());
    let as_half = |name: &str| {
        let mut tensors = tensors(&graph, &dense);
        let tensor = tensors.iter_mut().find(|tensor| tensor.name == name).unwrap();
        (tensor.dtype, tensor.bytes) = (DType::F16, quantize(DType::F16, &dense[name]));
        packed(&tensors)
    };
    for backend in drive::backends() {
        let error = |weights: &Weights, layout: &CacheLayout| {
            let result = backend.compile(&graph, weights, layout, 8, 8);
            result.err().expect("this cannot be compiled").to_string()
        };
        let missing = error(&without("blk.1.ffn_up.weight"), &layout);
        assert_eq!(missing, "tensor `blk.1.ffn_up.weight`: is missing from the file");
        let other = error(&as_half("blk.1.ffn_up.weight"), &layout);
        assert_eq!(other, "tensor `blk.1.ffn_up.weight`: is stored as F16, but the graph has F32");
        let fewer = CacheLayout::new(&quantized_model().0, CacheType::F16).unwrap();
        assert!(error(&weights, &fewer).starts_with("cache: is laid out for other layers"));
    }
    let error = CacheLayout::new(&graph, CacheType::Q8_0).unwrap_err();
    assert!(matches!(error, Error::Argument { name: "cache_type", .. }), "{error}");
}

#[test]
fn wrong_devices_are_typed_errors() {
    for threads in [0, 1025] {
        let error = Cpu::new(Some(threads)).err().unwrap();
        assert_eq!(error.to_string(), format!("threads: must be from 1 to 1024, not {threads}"));
    }
    let error = Cpu::with_instruction_set(Some(1), "abacus").err().unwrap().to_string();
    assert!(error.starts_with("instruction set: abacus is not one of this machine's: "), "{error}");
    assert!(Cpu::new(None).unwrap().device().threads > 0);
}

#[test]
fn memory_grows_and_results_stay() {
    let (graph, weights, dense) = model();
    let steps = [
        ragged(&[(0, 0, 2)], 90),
        ragged(&[(1, 0, 120), (0, 2, 3)], 90),
        ragged(&[(0, 5, 1)], 90),
        Step { outputs: vec![], ..ragged(&[(1, 120, 7)], 90) },
        ragged(&[(2, 0, 190), (0, 6, 1), (1, 127, 2)], 90),
        ragged(&[(2, 190, 1), (1, 129, 1)], 90),
    ];
    let mut interpreter = Interpreter::new(&dense);
    let expected: Vec<_> = steps.iter().map(|step| interpreter.run(&graph, step)).collect();
    for backend in drive::backends() {
        let mut driver = driver(&*backend, &graph, &weights);
        for (index, (step, expected)) in steps.iter().zip(&expected).enumerate() {
            let found = driver.run(step).unwrap();
            compare(&found, expected, 1e-10).unwrap_or_else(|e| panic!("{}, step {index}: {e}", label(&*backend)));
        }
    }
}

/// Bit for bit: each number is worked out by one thread, in an order that the batch does not
/// change.
#[test]
fn results_do_not_depend_on_threads_or_on_the_order_of_runs() {
    let (graph, weights) = quantized_model();
    let runs = [(0, 0, 66), (1, 0, 1), (2, 0, 13), (3, 0, 5)];
    let turned = [(2, 0, 13), (3, 0, 5), (1, 0, 1), (0, 0, 66)];
    let by_run = |runs: &[(usize, usize, usize)], logits: &[f32]| {
        let mut start = 0;
        let rows = runs.iter().map(|(sequence, _, len)| {
            let rows = logits[start..start + len * SIZES.vocabulary].iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            start += len * SIZES.vocabulary;
            (*sequence, rows)
        });
        let mut rows: Vec<_> = rows.collect();
        rows.sort();
        rows
    };
    let mut by_instruction_set = HashMap::new();
    for backend in backends_for(&graph) {
        let found = driver(&*backend, &graph, &weights).run(&ragged(&runs, 90)).unwrap();
        let other = driver(&*backend, &graph, &weights).run(&ragged(&turned, 90)).unwrap();
        let found = by_run(&runs, &found);
        assert!(found == by_run(&turned, &other), "{}: the order of runs matters", label(&*backend));
        let first = by_instruction_set.entry(backend.device().details.clone()).or_insert_with(|| found.clone());
        assert!(*first == found, "{}: the number of threads matters", label(&*backend));
    }
}

#[test]
fn forks_go_their_own_ways() {
    let (graph, weights, dense) = model();
    // Shared up to the middle of a page: both write there next, in one step and in two.
    let shared = ragged(&[(0, 0, 70)], 90);
    let twin = ragged(&[(1, 0, 70)], 90);
    let twin = Step { tokens: shared.tokens.clone(), ..twin };
    let third = Step { tokens: shared.tokens.clone(), ..ragged(&[(2, 0, 70)], 90) };
    let apart = [ragged(&[(0, 70, 2), (1, 70, 3)], 90), ragged(&[(2, 70, 1), (0, 72, 1), (1, 73, 60)], 90)];
    let mut interpreter = Interpreter::new(&dense);
    for step in [&shared, &twin, &third] {
        interpreter.run(&graph, step);
    }
    let expected: Vec<_> = apart.iter().map(|step| interpreter.run(&graph, step)).collect();
    for backend in drive::backends() {
        let mut driver = driver(&*backend, &graph, &weights);
        driver.run(&shared).unwrap();
        driver.fork(0, 1).unwrap();
        driver.fork(0, 2).unwrap();
        for (step, expected) in apart.iter().zip(&expected) {
            let found = driver.run(step).unwrap();
            compare(&found, expected, 1e-10).unwrap_or_else(|e| panic!("{}: {e}", label(&*backend)));
        }
    }
}

#[test]
fn logits_are_compact_where_their_slot_is_wider() {
    let mut b = Builder::new();
    let tokens = b.tokens();
    let table = b.weight("table", DType::F32, 9, 48);
    let x = b.embed(table, tokens);
    let x = b.push(Op::SelectOutputs, &[x]);
    let [narrow, head] = [("narrow", 8, 48), ("head", 11, 8)].map(|(name, r, c)| b.weight(name, DType::F32, r, c));
    let x = b.matmul(x, narrow);
    let logits = b.matmul(x, head);
    let graph = b.finish(logits).unwrap();
    let plan = Plan::new(&graph).unwrap();
    assert_eq!(plan.slots()[plan.logits().slot.index()].width, 48, "the test needs a wide slot");
    let dense = graphs::weights_for(&graph, 3);
    let weights = packed(&tensors(&graph, &dense));
    let step = ragged(&[(0, 0, 7)], 9);
    let expected = Interpreter::new(&dense).run(&graph, &step);
    for backend in drive::backends() {
        let found = driver(&*backend, &graph, &weights).run(&step).unwrap();
        compare(&found, &expected, 1e-12).unwrap_or_else(|e| panic!("{}: {e}", label(&*backend)));
    }
}

/// What a broken model makes neither hangs nor crashes, nor outlives its sequence.
#[test]
fn non_finite_activations_stay_where_they_are() {
    let (graph, _) = quantized_model();
    let mut dense = graphs::weights_for(&graph, 2);
    dense.iter_mut().for_each(|(_, w)| w.iter_mut().for_each(|w| *w *= 0.05));
    let mut all = tensors(&graph, &dense);
    let table = all.iter_mut().find(|tensor| tensor.name == "table").unwrap();
    // The scales of the first rows: infinite, not a number, the largest, the smallest.
    for (row, scale) in [0x7c00u16, 0x7e00, 0x7bff, 0x0001].into_iter().enumerate() {
        let row = &mut table.bytes[row * 272..][..272];
        row.chunks_exact_mut(34).for_each(|block| block[..2].copy_from_slice(&scale.to_le_bytes()));
    }
    let weights = packed(&all);
    let broken = |tokens: &[u32]| Step { tokens: tokens.to_vec(), ..ragged(&[(0, 0, tokens.len())], 90) };
    let sound = Step { tokens: (10..30).collect(), ..ragged(&[(1, 0, 20)], 90) };
    for backend in backends_for(&graph) {
        let mut driver = driver(&*backend, &graph, &weights);
        let before = driver.run(&sound).unwrap();
        // The table is the head as well, so that the logits of its broken rows are no numbers.
        assert!(before.chunks(90).all(|row| row[4..].iter().all(|x| x.is_finite())));
        for token in 0..4 {
            assert_eq!(driver.run(&broken(&[token])).unwrap().len(), 90);
            assert_eq!(driver.run(&broken(&[token, 5, 6, token, 7, 8, 9, 10, 11, 12])).unwrap().len(), 900);
            let after = driver.run(&sound).unwrap();
            let same = before.iter().map(|x| x.to_bits()).eq(after.iter().map(|x| x.to_bits()));
            assert!(same, "{}: token {token} has left something", label(&*backend));
        }
    }
}

#[test]
fn executables_run_beside_each_other() {
    let (graph, weights) = quantized_model();
    let step = ragged(&[(0, 0, 20), (1, 0, 3)], 90);
    for backend in backends_for(&graph) {
        let expected = driver(&*backend, &graph, &weights).run(&step).unwrap();
        let mut drivers = [0, 1].map(|_| driver(&*backend, &graph, &weights));
        thread::scope(|scope| {
            for driver in &mut drivers {
                scope.spawn(|| (0..5).for_each(|_| assert!(driver.run(&step).unwrap() == expected)));
            }
        });
    }
}

#[test]
fn scratch_is_bounded_by_what_the_backend_says() {
    let (graph, _) = quantized_model();
    let plan = Plan::new(&graph).unwrap();
    for backend in backends_for(&graph) {
        let [small, large] = [1, 200].map(|tokens| backend.scratch_bytes(&plan, tokens, 1, 400));
        assert!(plan.bytes(1, 1) <= small && plan.bytes(200, 1) <= large, "{}", label(&*backend));
        assert!(large < 2 * plan.bytes(200, 1) + (1 << 20), "{}: {large}", label(&*backend));
    }
}
