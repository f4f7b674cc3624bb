//! Makes samples of attention kernels.

use super::{Sample, adapter, all, none_missing, records, rotation, rows};
use crate::{
    backend::webgpu::{
        context::Traits,
        kernel::Resource,
        kernels::{
            Append, AttentionCombine, AttentionOutput, AttentionPrefill, AttentionPrefillCoop, AttentionStep,
            AttentionWindow, BoundBuffer, CacheShape, F32, HeadNorms, KeyRotation, NewToken, Norm, NormedRotation,
            PagedCache, ScoreParams, SeenRange, StepShape, padded, tests::choices::Choices,
        },
        lower::fuses,
        step::SPLIT,
        test_adapters::ADAPTERS,
        tiles::{self, PrefillShape},
    },
    graph::{self, AttentionSpec, Window},
    kv_cache::CacheType,
};

const KV_HEADS: usize = 2;

/// Makes caches with heads of every kind of width: padded, not whole vectors of four elements, and
/// with an odd number of blocks.
fn cache(choices: &mut Choices, cache_type: CacheType) -> PagedCache {
    let keys_only = choices.flag("keys_only");
    let head_dim = match cache_type {
        CacheType::Q8_0 => choices.of("head_dim of q8_0", &[64, 96, 256]),
        CacheType::F32 | CacheType::F16 => choices.of("head_dim", &[64, 70, 80, 256]),
    };
    CacheShape { cache_type, layer: 0, table: 1, tables: 2, kv_heads: KV_HEADS, head_dim, keys_only }.into()
}

/// Returns an attention over the cache.
fn spec_of(cache: &PagedCache) -> AttentionSpec {
    let &PagedCache { kv_heads, head_dim, matrices, .. } = cache;
    let keys_only = matrices == 1;
    AttentionSpec { layer: 0, heads: kv_heads, kv_heads, head_dim, keys_only, scores: 1.0.into() }
}

fn cache_type(choices: &mut Choices) -> CacheType {
    choices.of("cache_type", &all!(CacheType: F32, F16, Q8_0))
}

fn scores(choices: &mut Choices) -> graph::Scores {
    graph::Scores {
        scale: 0.1,
        softcap: choices.option("soft_cap", |_| 50.0),
        window: choices.option("window", |choices| choices.of("kind", &[Window::Sliding(100), Window::Chunk(100)])),
        sees: graph::Sees::Past,
    }
}

fn seen_range(choices: &mut Choices) -> Option<SeenRange> {
    choices.option("range", |choices| SeenRange { at: 12, past: choices.flag("past") })
}

none_missing!(AttentionOutput: F32, Q8);

/// Blocks of int8 must not straddle heads.
fn output(choices: &mut Choices, head_dim: usize) -> AttentionOutput {
    if head_dim.is_multiple_of(32) && choices.flag("writes q8") {
        AttentionOutput::Q8 { blocks: 4 * head_dim / 32, rows: Resource::Q8(0) }
    } else {
        AttentionOutput::F32 { stride: 4 * head_dim, rows: Resource::Slot(0) }
    }
}

impl Sample for Append {
    fn sample(choices: &mut Choices) -> Self {
        let traits = adapter(choices);
        let cache_type = cache_type(choices);
        let cache = cache(choices, cache_type);
        Self {
            workgroup: choices.of("workgroup", &[64, 128]),
            subgroup: traits.subgroup,
            append_ranges_at: 1000,
            k: rows(512),
            v: rows(512),
            before: choices.option("before", |choices| KeyRotation {
                norm: choices.option("norm", |_| Norm::new(cache.head_dim, 1e-6, Resource::Temp(1))),
                rotation: rotation(choices, cache.head_dim),
                records: records(),
            }),
            cache,
        }
    }
}

fn sinks(choices: &mut Choices) -> Option<BoundBuffer> {
    choices.option("sinks", |_| BoundBuffer(Resource::Weight(9, 0, 512)))
}

impl Sample for AttentionPrefill {
    fn sample(choices: &mut Choices) -> Self {
        // An adapter without matrix units.
        let traits = Traits { matrices: false, ..adapter(choices) };
        let cache_type = cache_type(choices);
        let cache = cache(choices, cache_type);
        let PrefillShape::Plain { threads, block } = tiles::prefill(&traits, &spec_of(&cache), cache_type) else {
            panic!("an adapter without matrix units has used them")
        };
        let scores = scores(choices).into();
        Self {
            threads,
            block,
            query_blocks_at: 2000,
            cache,
            heads: 4,
            scores,
            seen_range: seen_range(choices),
            records: records(),
            sinks: sinks(choices),
            q: rows(1024),
            y: rows(1024),
        }
    }
}

impl Sample for AttentionPrefillCoop {
    fn sample(choices: &mut Choices) -> Self {
        let subgroup = Some(choices.of("subgroup_size", &[32, 64]));
        let workgroup_bytes = choices.of("workgroup_bytes", &[48 << 10, 96 << 10]);
        let traits = Traits { matrices: true, subgroup, workgroup_bytes, ..ADAPTERS[0] };
        // Heads of 20 and 72 elements are padded to 32 and 80 in the cache.
        let head_dim = choices.of("head_dim", &[20, 64, 72, 80, 128]);
        let kv_heads = KV_HEADS;
        let cache_type = CacheType::F16;
        let cache =
            CacheShape { cache_type, layer: 0, table: 1, tables: 2, kv_heads, head_dim, keys_only: false }.into();
        let PrefillShape::Coop { block, tile, subgroup_size } = tiles::prefill(&traits, &spec_of(&cache), cache_type)
        else {
            panic!("heads of {head_dim} are not multiplied with matrix units by {traits:?}")
        };
        let scores = scores(choices).into();
        Self {
            block,
            tile,
            subgroup_size,
            query_blocks_at: 2000,
            cache,
            heads: 4,
            scores,
            seen_range: seen_range(choices),
            records: records(),
            sinks: sinks(choices),
            q: rows(1024),
            y: rows(1024),
        }
    }
}

impl Sample for AttentionStep {
    fn sample(choices: &mut Choices) -> Self {
        let traits = adapter(choices);
        let cache_type = cache_type(choices);
        let cache = cache(choices, cache_type);
        let group_heads = choices.of("group_heads", &[1, 2, 3, 8]);
        let heads = group_heads * KV_HEADS;
        let scores = scores(choices);
        let head_dim = cache.head_dim;
        let output = choices.option("output", |choices| output(choices, head_dim));
        let spec = AttentionSpec { heads, scores, ..spec_of(&cache) };
        let fuses = cache.matrices == 2 && fuses(&traits, &spec, cache_type);
        let new = (fuses && choices.flag("new")).then(|| NewToken {
            k: rows(512),
            v: rows(512),
            appends: choices.flag("appends"),
            before: NormedRotation {
                norms: choices.option("norms", |_| HeadNorms {
                    eps: F32(1e-6),
                    reciprocal: F32(1.0 / head_dim as f32),
                    q: Resource::Temp(1),
                    k: Resource::Temp(2),
                }),
                rotation: rotation(choices, head_dim),
            },
        });
        let unsplit_positions = tiles::unsplit_positions(&traits, cache_type);
        Self {
            shape: StepShape::new(
                &traits,
                &cache,
                group_heads,
                output.map(|_| unsplit_positions),
                choices.of("tokens", &[1, 16, usize::MAX]),
            ),
            unsplit_positions,
            subgroup: traits.subgroup,
            cache,
            heads,
            scores: ScoreParams::from(scores),
            records: records(),
            tables_at: 3000,
            sinks: sinks(choices),
            q: rows(2048),
            output,
            new,
        }
    }
}

impl Sample for AttentionCombine {
    fn sample(choices: &mut Choices) -> Self {
        let traits = adapter(choices);
        let head_dim = choices.of("head_dim", &[64, 72, 256]);
        let dim = padded(head_dim);
        let workgroup = ((8 * dim) as u32).next_power_of_two().min(traits.workgroup);
        Self {
            workgroup,
            subgroup: traits.subgroup,
            heads: 4,
            head_dim,
            dim,
            window: choices.option("window", |choices| AttentionWindow { size: 100, chunked: choices.flag("chunked") }),
            unsplit_positions: 1024,
            split: SPLIT,
            groups: workgroup as usize / dim,
            at_once: 8,
            records: records(),
            sinks: sinks(choices),
            output: output(choices, head_dim),
        }
    }
}
