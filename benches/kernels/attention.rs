//! Measures attention for each cache format and instruction set, with heads as in Qwen3-0.6B.

use inkstone::{
    CacheType, DType, Result,
    internals::{
        backend::{Backend, Executable, Run, Step, cpu::Cpu},
        graph::{Builder, LayerCache},
        kv_cache::{CacheLayout, KvCache, PageTable},
        weights::Weights,
    },
};

use super::machine::Machine;

const HEADS: usize = 16;
const CACHE: LayerCache = LayerCache { kv_heads: 8, head_dim: 128, keys_only: false };
/// Number of layers. Even the smallest cache format then exceeds the machine's caches.
const LAYERS: usize = 8;
/// Numbers of cached positions for a decoded token.
const DEPTHS: [usize; 2] = [4096, 32_768];
/// Tokens of a prefill.
const PREFILL_TOKENS: usize = 512;
/// Number of positions including the prefill.
const PREFILL_DEPTH: usize = 4096;

pub fn print_header() {
    let decode = format!("GB/s (of reads) at {DEPTHS:?} positions");
    println!("\n{:<14} {:<8} {decode}   GFLOP/s, {PREFILL_TOKENS} of {PREFILL_DEPTH}", "set", "cache");
}

/// Prints one line for each cache format.
pub fn measure(cpu: &Cpu, reps: usize, machine: &mut Machine) -> Result<()> {
    for cache_type in [CacheType::F32, CacheType::F16, CacheType::Q8_0] {
        let mut decode = Vec::new();
        for depth in DEPTHS {
            let seconds = seconds(cpu, cache_type, LAYERS, 1, depth, reps)?;
            let row = cache_type.row_bytes(CACHE.head_dim)?;
            let rate = (2 * LAYERS * depth * CACHE.kv_heads * row) as f64 / seconds / 1e9;
            machine.measure();
            decode.push(format!("{rate:8.1} ({:3.0}%)", 100.0 * rate / machine.read));
        }
        let (tokens, depth) = (PREFILL_TOKENS, PREFILL_DEPTH);
        let seconds = seconds(cpu, cache_type, 1, tokens, depth, reps.div_ceil(3))?;
        let scores = HEADS * (tokens * (depth - tokens) + tokens * (tokens + 1) / 2);
        let flops = 4e-9 * (scores * CACHE.head_dim) as f64 / seconds;
        println!("{:<14} {cache_type:<8?} {}   {flops:8.0}", cpu.device().details, decode.join(" "));
    }
    Ok(())
}

/// Returns the median time of a step of the last `tokens` of `depth` positions.
fn seconds(cpu: &Cpu, cache_type: CacheType, layers: usize, tokens: usize, depth: usize, reps: usize) -> Result<f64> {
    let (mut executable, layout) = executable(cpu, cache_type, layers, tokens)?;
    let mut cache = KvCache::new(&layout, depth);
    let sequence = cache.open();
    cache.extend(sequence, depth)?;
    let pages = cache.pages(sequence)?;
    fill(&mut *executable, pages)?;
    let ids: Vec<u32> = (0..tokens as u32).collect();
    let runs = [Run { len: tokens, start: depth - tokens, pages, state: None, ..Default::default() }];
    let step = Step { tokens: &ids, runs: &runs, outputs: &[0], copies: &[], ..Default::default() };
    super::median_seconds(&mut *executable, &step, reps)
}

/// Compiles layers of attention that use the same queries, keys and values.
fn executable(
    cpu: &Cpu,
    cache_type: CacheType,
    layers: usize,
    tokens: usize,
) -> Result<(Box<dyn Executable>, CacheLayout)> {
    let widths = [HEADS, CACHE.kv_heads, CACHE.kv_heads].map(|heads| heads * CACHE.head_dim);
    let names = ["q", "k", "v"];
    let weights = Weights::from_memory(names.iter().zip(widths).map(|(name, width)| {
        let elements = (0..tokens * width).map(|i| (i * 7919 % 201) as f32 / 100.0 - 1.0);
        (name.to_string(), DType::F32, vec![tokens, width], elements.flat_map(f32::to_le_bytes).collect())
    }))?;
    let mut builder = Builder::new();
    let ids = builder.tokens();
    let [q, k, v] = [0, 1, 2].map(|i| {
        let table = builder.weight(names[i], DType::F32, tokens, widths[i]);
        builder.embed(table, ids)
    });
    let mut x = q;
    for _ in 0..layers {
        x = builder.attention([x, k, v], CACHE, HEADS, 0.1);
    }
    let graph = builder.finish(x)?;
    let layout = CacheLayout::new(&graph, cache_type)?;
    Ok((cpu.compile(&graph, &weights, &layout, tokens, 1)?, layout))
}

/// Fills the first page and copies it to all other pages.
fn fill(executable: &mut dyn Executable, pages: &[PageTable]) -> Result<()> {
    for position in 0..64 {
        let runs = [Run { len: 1, start: position, pages, state: None, ..Default::default() }];
        executable.run(&Step { tokens: &[0], runs: &runs, outputs: &[], copies: &[], ..Default::default() })?;
    }
    let ids: Vec<_> = pages[0].pages().collect();
    let copies: Vec<_> = ids[1..].iter().map(|id| (ids[0], *id)).collect();
    let runs = [Run { len: 1, start: 0, pages, state: None, ..Default::default() }];
    executable.run(&Step { tokens: &[0], runs: &runs, outputs: &[], copies: &copies, ..Default::default() })?;
    Ok(())
}
