//! Attention: sizes of heads and groups, formats of the cache, pages, sections, ragged batches,
//! large scores.

use std::collections::HashMap;

use inkstone::{
    CacheType, DType,
    internals::graph::{AttentionSpec, FusedOp, LayerCache, RopeAxes, RopeSpec, RopeStyle, Scores, Sees, Window},
};

use super::case::{Case, Maker, normal, ragged};
use crate::support::{
    drive::{Driver, cpus, label, packed},
    interpret::Step,
};

/// Weights of a softmax keep fewer digits than sums: their errors are those of scores of about ten.
const SOFTMAX: f64 = 1e-11;
/// What keys and values in half precision cost, for normal numbers.
const HALF: f64 = 5e-7;
/// What keys and values in 8 bits cost, for normal numbers.
const EIGHT_BITS: f64 = 2e-4;
/// What activations in 8 bits cost where the largest of 32 stands far out.
const ACTIVATIONS: f64 = 1e-4;

const VOCABULARY: usize = 211;
/// More tokens than any sequence here has positions, so that no section of the cache is like
/// another.
const LONG_VOCABULARY: usize = 1601;
const CACHE_TYPES: [CacheType; 3] = [CacheType::F32, CacheType::F16, CacheType::Q8_0];

struct Sizes {
    head_dim: usize,
    kv_heads: usize,
    group: usize,
}

pub fn cases() -> Vec<Case> {
    let sizes = [(8, 2, 1), (20, 1, 2), (32, 2, 3), (64, 1, 4), (80, 1, 7), (128, 1, 8), (256, 1, 2), (32, 1, 70)];
    let mut cases = Vec::new();
    for (head_dim, kv_heads, group) in sizes {
        for cache_type in CACHE_TYPES {
            if cache_type.row_bytes(head_dim).is_ok() {
                let scale = 1.0 / (head_dim as f32).sqrt();
                cases.push(exact(&Sizes { head_dim, kv_heads, group }, cache_type, scale, steps()));
            }
        }
    }
    cases.extend(CACHE_TYPES.map(rounded));
    cases.extend([1.0, -1.0].map(large_scores));
    cases.push(changing_scores("rising fast", -60.0, 0.5, steps()));
    cases.push(two_layers(steps()));
    // Of windows, some end within a page and some with it; of caps, some bind and some hardly do.
    let sliding = [1, 64, 67].map(Window::Sliding).map(Some);
    for (softcap, window) in [(Some(0.5), None), (Some(50.0), sliding[0]), (None, sliding[1]), (None, sliding[2])] {
        cases.push(seen_through(softcap, window, steps()));
    }
    // Chunks within a page, of whole pages, and across pages.
    for (softcap, size) in [(Some(0.5), 5), (None, 64), (None, 67), (None, 192)] {
        cases.push(seen_through(softcap, Some(Window::Chunk(size)), steps()));
    }
    cases.push(shared_cache(steps()));
    let sizes = [(20, 1, 3), (48, 1, 2), (64, 2, 2), (96, 1, 7), (256, 1, 16), (576, 1, 4)];
    for cache_type in CACHE_TYPES {
        let sizes = sizes.into_iter().filter(|(head_dim, ..)| cache_type.row_bytes(*head_dim).is_ok());
        cases.extend(sizes.map(|(head_dim, kv_heads, group)| {
            keys_as_values(&Sizes { head_dim, kv_heads, group }, cache_type, steps())
        }));
    }
    cases.extend(
        [(4, 2, 32, 1.0), (6, 2, 20, 3.0), (4, 1, 64, 40.0), (2, 2, 16, 200.0)].map(|sizes| sinks(sizes, steps())),
    );
    cases
}

/// Sinks around the scores, and far above and below them.
fn sinks((heads, kv_heads, head_dim, size): (usize, usize, usize, f32), steps: Vec<Step>) -> Case {
    let mut m = Maker::new(26);
    let tokens = vocabulary(&steps);
    let widths = [heads, kv_heads, kv_heads].map(|heads| heads * head_dim);
    let qkv = widths.map(|width| m.exact_rows(width, tokens));
    let sinks: Vec<_> = (0..heads).map(|head| [1.0, -1.0, 0.5, 0.0][head % 4] * size).collect();
    let row = m.floats(heads, &sinks);
    let window = (head_dim == 20).then_some(Window::Sliding(67));
    let scores = Scores { scale: 0.2, softcap: None, window, sees: Sees::Past };
    let y = m.b.attention_with_sinks(qkv, row, LayerCache { kv_heads, head_dim, keys_only: false }, heads, scores);
    let case = m.finish(format!("attention of {heads} heads with sinks up to {size}"), y, steps, SOFTMAX);
    Case { cache_type: CacheType::F32, ..case }
}

/// The cache comes in sections of 512 positions.
pub fn long_cases() -> Vec<Case> {
    let sizes = Sizes { head_dim: 32, kv_heads: 2, group: 2 };
    let mut cases: Vec<_> = CACHE_TYPES.map(|cache_type| exact(&sizes, cache_type, 0.05, long_steps())).into();
    cases.push(changing_scores("rising over sections", -10.0, 1.0 / 64.0, long_steps()));
    cases.push(changing_scores("falling over sections", 10.0, -1.0 / 64.0, long_steps()));
    cases.push(two_layers(long_steps()));
    for window in [64, 500, 513].map(Window::Sliding).into_iter().chain([300, 512, 700].map(Window::Chunk)) {
        cases.push(seen_through(None, Some(window), long_steps()));
    }
    cases.push(sinks((4, 2, 32, 3.0), long_steps()));
    cases
}

/// Sequences that come to a section's end and go past it, in runs short and long, beside others of
/// other lengths; and a token of each of many sequences.
fn long_steps() -> Vec<Step> {
    let mut many = vec![(0, 526, 1), (1, 520, 1), (2, 1026, 1), (3, 5, 1)];
    many.extend((4..20).map(|sequence| (sequence, 0, 1)));
    let steps: [Runs<'_>; 11] = [
        &[(0, 0, 511)],
        &[(0, 511, 1)],
        &[(0, 512, 1)],
        &[(0, 513, 3), (1, 0, 2)],
        &[(2, 0, 1023)],
        &[(2, 1023, 16), (0, 516, 1), (1, 2, 1)],
        &[(0, 517, 8), (2, 1039, 1)],
        &[(1, 3, 509), (2, 1040, 33)],
        &[(2, 1020, 5), (1, 512, 1), (0, 525, 1), (3, 0, 1)],
        &[(2, 1025, 1), (3, 1, 4), (1, 513, 7)],
        &many,
    ];
    steps.map(|runs| ragged(runs, LONG_VOCABULARY)).into()
}

/// Prefill in chunks that cross a page, one at a time and beside others, and in one piece; and a
/// token of each of many sequences.
fn steps() -> Vec<Step> {
    let mut many = vec![(0, 69, 1), (1, 74, 1), (2, 68, 1), (3, 141, 1)];
    many.extend((4..20).map(|sequence| (sequence, 0, 1)));
    let steps: [Runs<'_>; 9] = [
        &[(0, 0, 5)],
        &[(0, 5, 58)],
        &[(0, 63, 1)],
        &[(0, 64, 1), (1, 0, 3)],
        &[(2, 0, 67), (0, 65, 1), (1, 3, 70)],
        &[(1, 73, 1), (0, 66, 1), (2, 67, 1)],
        &[(3, 0, 140)],
        &[(0, 67, 2), (3, 140, 1)],
        &many,
    ];
    steps.map(|runs| ragged(runs, VOCABULARY)).into()
}

fn name(sizes: &Sizes, cache_type: CacheType) -> String {
    let Sizes { head_dim, kv_heads, group } = sizes;
    format!("attention {kv_heads} x {group} heads of {head_dim}, {cache_type:?}")
}

/// One more than the largest token of any step.
fn vocabulary(steps: &[Step]) -> usize {
    steps.iter().flat_map(|step| &step.tokens).max().map_or(0, |token| *token as usize + 1)
}

/// Keys and values that every format of the cache holds exactly.
fn exact(sizes: &Sizes, cache_type: CacheType, scale: f32, steps: Vec<Step>) -> Case {
    let Sizes { head_dim, kv_heads, group } = *sizes;
    let mut m = Maker::new(20);
    let tokens = vocabulary(&steps);
    let [q, k, v] = [kv_heads * group, kv_heads, kv_heads].map(|heads| m.exact_rows(heads * head_dim, tokens));
    let y = m.b.attention([q, k, v], LayerCache { kv_heads, head_dim, keys_only: false }, kv_heads * group, scale);
    let case = m.finish(name(sizes, cache_type), y, steps, SOFTMAX);
    Case { cache_type, ..case }
}

/// Keys that are values too, which every format of the cache holds exactly.
fn keys_as_values(sizes: &Sizes, cache_type: CacheType, steps: Vec<Step>) -> Case {
    let Sizes { head_dim, kv_heads, group } = *sizes;
    let mut m = Maker::new(27);
    let tokens = vocabulary(&steps);
    let [q, k] = [kv_heads * group, kv_heads].map(|heads| m.exact_rows(heads * head_dim, tokens));
    let cache = LayerCache { kv_heads, head_dim, keys_only: true };
    let y = m.b.attention_to_keys([q, k], cache, kv_heads * group, 1.0 / (head_dim as f32).sqrt());
    let case = m.finish(format!("{}, keys as values", name(sizes, cache_type)), y, steps, SOFTMAX);
    Case { cache_type, ..case }
}

/// Scores that are capped, and of which a window's alone count.
fn seen_through(softcap: Option<f32>, window: Option<Window>, steps: Vec<Step>) -> Case {
    let mut m = Maker::new(25);
    let tokens = vocabulary(&steps);
    let [q, k, v] = [128, 64, 64].map(|width| m.exact_rows(width, tokens));
    let scores = Scores { scale: 0.2, softcap, window, sees: Sees::Past };
    let y = m.b.attention([q, k, v], LayerCache { kv_heads: 2, head_dim: 32, keys_only: false }, 4, scores);
    let case = m.finish(format!("attention, softcap {softcap:?}, window {window:?}"), y, steps, SOFTMAX);
    Case { cache_type: CacheType::F16, ..case }
}

fn rounded(cache_type: CacheType) -> Case {
    let sizes = Sizes { head_dim: 64, kv_heads: 2, group: 2 };
    let mut m = Maker::new(21);
    let [q, k, v] = [256, 128, 128].map(|width| m.normal_rows(width, VOCABULARY));
    let y = m.b.attention([q, k, v], LayerCache { kv_heads: 2, head_dim: 64, keys_only: false }, 4, 0.125);
    let nmse = match cache_type {
        CacheType::F32 => SOFTMAX,
        CacheType::F16 => HALF,
        CacheType::Q8_0 => EIGHT_BITS,
    };
    let case = m.finish(format!("{} of normal numbers", name(&sizes, cache_type)), y, steps(), nmse);
    Case { cache_type, ..case }
}

/// Scores of thousands, which are exact in single precision: their exponentials alone would
/// overflow.
fn large_scores(scale: f32) -> Case {
    let case = exact(&Sizes { head_dim: 32, kv_heads: 1, group: 2 }, CacheType::F16, 16.0 * scale, steps());
    Case { name: format!("attention with large scores, scale {scale}"), ..case }
}

/// Every score differs from the one before it by `slope`: with a positive one every page and every
/// section fades what has been gathered, at first from below any exponential; with a negative one
/// each counts for less than the first.
fn changing_scores(how: &str, first: f32, slope: f32, steps: Vec<Step>) -> Case {
    let mut m = Maker::new(22);
    let tokens = vocabulary(&steps);
    let q = m.rows_of(8, &vec![1.0; 8 * tokens]);
    let keys: Vec<f32> = (0..8 * tokens).map(|i| first + (i / 8) as f32 * slope).collect();
    let k = m.rows_of(8, &keys);
    let v = m.exact_rows(8, tokens);
    let y = m.b.attention([q, k, v], LayerCache { kv_heads: 1, head_dim: 8, keys_only: false }, 1, 0.125);
    m.finish(format!("attention with scores {how}"), y, steps, SOFTMAX)
}

/// Attention over queries and keys that it rotates itself, with the norms of their heads and
/// without, as the last op and with a product of quantized weights to follow.
pub fn rotated() -> Vec<Case> {
    let mut cases = Vec::new();
    for (head_dim, kv_heads, group) in [(20, 1, 2), (64, 2, 2), (128, 1, 5)] {
        for cache_type in CACHE_TYPES.into_iter().filter(|cache_type| cache_type.row_bytes(head_dim).is_ok()) {
            for style in [RopeStyle::Halves, RopeStyle::Adjacent] {
                for (norm, multiplied) in [(None, false), (Some(1e-5), true)] {
                    let sizes = Sizes { head_dim, kv_heads, group };
                    cases.push(rotated_case(&sizes, cache_type, style, norm, multiplied));
                }
            }
        }
    }
    cases
}

fn rotated_case(sizes: &Sizes, cache_type: CacheType, style: RopeStyle, norm: Option<f32>, multiplied: bool) -> Case {
    let Sizes { head_dim, kv_heads, group } = *sizes;
    let heads = kv_heads * group;
    let mut m = Maker::new(24);
    let [q, k, v] = [heads, kv_heads, kv_heads].map(|heads| m.normal_rows(heads * head_dim, VOCABULARY));
    // A part of the head is left as it is.
    let pairs = head_dim / 2 - 2;
    let frequencies: Vec<f32> = (0..pairs).map(|i| 10_000f32.powf(-(i as f32) / pairs as f32)).collect();
    let mut inputs = vec![q, k, v, m.b.constant(frequencies)];
    if norm.is_some() {
        let weights = [(); 2].map(|()| normal(head_dim, &mut m.random));
        inputs.extend(weights.iter().map(|weight| m.floats(head_dim, weight)));
    }
    m.b = std::mem::take(&mut m.b).with_cache(LayerCache { kv_heads, head_dim, keys_only: false });
    let attention = AttentionSpec {
        layer: 0,
        heads,
        kv_heads,
        head_dim,
        keys_only: false,
        scores: (1.0 / (head_dim as f32).sqrt()).into(),
    };
    let op = FusedOp::RotatedAttention { attention, rope: RopeSpec { style, head_dim, axes: RopeAxes::First }, norm };
    let mut y = m.b.push(op, &inputs);
    let mut nmse = match cache_type {
        CacheType::F32 => SOFTMAX,
        CacheType::F16 => HALF,
        CacheType::Q8_0 => EIGHT_BITS,
    };
    if multiplied && (heads * head_dim).is_multiple_of(32) {
        let weights = m.random_weight(DType::Q8_0, 24, heads * head_dim);
        y = m.b.matmul(y, weights);
        nmse += ACTIVATIONS;
    }
    let name =
        format!("rotated_attention {kv_heads} x {group} heads of {head_dim}, {style:?}, {cache_type:?}, {norm:?}");
    let case = m.finish(name, y, steps(), nmse);
    Case { cache_type, ..case }
}

/// Two layers of different shapes in one cache, the second reading what the first made.
fn two_layers(steps: Vec<Step>) -> Case {
    let mut m = Maker::new(23);
    let tokens = vocabulary(&steps);
    let [q, k, v] = [96, 32, 32].map(|width| m.exact_rows(width, tokens));
    let x = m.b.attention([q, k, v], LayerCache { kv_heads: 1, head_dim: 32, keys_only: false }, 3, 0.2);
    let [k, v] = [48, 48].map(|width| m.exact_rows(width, tokens));
    let y = m.b.attention([x, k, v], LayerCache { kv_heads: 2, head_dim: 24, keys_only: false }, 4, 0.2);
    let z = m.b.add(y, x);
    let case = m.finish("attention in two layers", z, steps, SOFTMAX);
    Case { cache_type: CacheType::F16, ..case }
}

/// Two layers that read one cache, which the first of them fills, through windows of their own.
fn shared_cache(steps: Vec<Step>) -> Case {
    let mut m = Maker::new(26);
    let tokens = vocabulary(&steps);
    let [q, k, v, other] = [96, 32, 32, 64].map(|width| m.exact_rows(width, tokens));
    let x = m.b.attention([q, k, v], LayerCache { kv_heads: 1, head_dim: 32, keys_only: false }, 3, 0.2);
    let scores = Scores { scale: 0.3, softcap: None, window: Some(Window::Sliding(20)), sees: Sees::Past };
    let y = m.b.shared_attention(other, 0, 2, scores);
    let x = m.b.slice(x, 32, 64, 96);
    let z = m.b.add(y, x);
    let case = m.finish("attention over a shared cache", z, steps, SOFTMAX);
    Case { cache_type: CacheType::F16, ..case }
}

/// Runs `(sequence, start, len)` of a step.
type Runs<'a> = &'a [(usize, usize, usize)];

/// Bit for bit, what the CPU makes of a token is the same on any number of threads, alone and in a
/// run of any length.
#[test]
fn results_do_not_depend_on_threads_or_on_runs() {
    const END: usize = 1060;
    // Each computes the last tokens of a sequence in other runs, some beside another sequence.
    let ways: [&[Runs]; 4] = [
        &[&[(0, 0, END)]],
        &[
            &[(0, 0, 500)],
            &[(0, 500, 523)],
            &[(0, 1023, 1), (1, 0, 600)],
            &[(0, 1024, 30)],
            &[(0, 1054, 6), (1, 600, 1)],
        ],
        &[&[(0, 0, 1040)], &[(0, 1040, 16)], &[(1, 0, 3), (0, 1056, 4)]],
        &[&[(0, 0, END - 3)], &[(0, END - 3, 1)], &[(0, END - 2, 1)], &[(0, END - 1, 1)]],
    ];
    for cache_type in CACHE_TYPES {
        let case = exact(&Sizes { head_dim: 32, kv_heads: 2, group: 3 }, cache_type, 0.1, long_steps());
        let mut by_instruction_set = HashMap::new();
        for backend in cpus() {
            for way in ways {
                let mut driver = Driver::new(&*backend, &case.graph, &packed(&case.tensors), cache_type, [END, END]);
                let driver = driver.as_mut().unwrap_or_else(|e| panic!("{}: {e}", label(&*backend)));
                let mut found = Vec::new();
                for runs in way {
                    let step = ragged(runs, LONG_VOCABULARY);
                    let results = driver.run(&step).unwrap();
                    let mut results = results.chunks(results.len() / step.tokens.len());
                    for run in step.runs {
                        let rows = results.by_ref().take(run.len);
                        found.extend(rows.filter(|_| run.sequence == 0).flatten().map(|x| x.to_bits()));
                    }
                }
                let first = by_instruction_set.entry(backend.device().details.clone()).or_insert_with(|| found.clone());
                assert!(*first == found, "{}, {cache_type:?}: other results in the runs {way:?}", label(&*backend));
            }
        }
    }
}
