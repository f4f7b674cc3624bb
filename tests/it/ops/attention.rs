//! Attention: sizes of heads and groups, formats of the cache, pages, ragged batches, large scores.

use inkstone::{graph::LayerCache, kv_cache::CacheType};

use super::case::{Case, Maker, ragged};
use crate::support::interpret::Step;

/// Weights of a softmax keep fewer digits than sums: their errors are those of scores of about ten.
const SOFTMAX: f64 = 1e-11;
/// What keys and values in half precision cost, for normal numbers.
const HALF: f64 = 5e-7;
/// What keys and values in 8 bits cost, for normal numbers.
const EIGHT_BITS: f64 = 2e-4;

const VOCABULARY: usize = 211;
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
                cases.push(exact(&Sizes { head_dim, kv_heads, group }, cache_type, scale, SOFTMAX));
            }
        }
    }
    cases.extend(CACHE_TYPES.map(rounded));
    cases.extend([1.0, -1.0].map(large_scores));
    cases.push(rising_scores());
    cases.push(two_layers());
    cases
}

/// Prefill in chunks that cross a page, one at a time and beside others, and in one piece.
fn steps() -> Vec<Step> {
    let steps: [&[(usize, usize, usize)]; 8] = [
        &[(0, 0, 5)],
        &[(0, 5, 58)],
        &[(0, 63, 1)],
        &[(0, 64, 1), (1, 0, 3)],
        &[(2, 0, 67), (0, 65, 1), (1, 3, 70)],
        &[(1, 73, 1), (0, 66, 1), (2, 67, 1)],
        &[(3, 0, 140)],
        &[(0, 67, 2), (3, 140, 1)],
    ];
    steps.map(|runs| ragged(runs, VOCABULARY)).into()
}

fn name(sizes: &Sizes, cache_type: CacheType) -> String {
    let Sizes { head_dim, kv_heads, group } = sizes;
    format!("attention {kv_heads} x {group} heads of {head_dim}, {cache_type:?}")
}

/// Keys and values that every format of the cache holds exactly.
fn exact(sizes: &Sizes, cache_type: CacheType, scale: f32, nmse: f64) -> Case {
    let Sizes { head_dim, kv_heads, group } = *sizes;
    let mut m = Maker::new(20);
    let [q, k, v] = [kv_heads * group, kv_heads, kv_heads].map(|heads| m.exact_rows(heads * head_dim, VOCABULARY));
    let y = m.b.attention([q, k, v], LayerCache { kv_heads, head_dim }, kv_heads * group, scale);
    let case = m.finish(name(sizes, cache_type), y, steps(), nmse);
    Case { cache_type, ..case }
}

fn rounded(cache_type: CacheType) -> Case {
    let sizes = Sizes { head_dim: 64, kv_heads: 2, group: 2 };
    let mut m = Maker::new(21);
    let [q, k, v] = [256, 128, 128].map(|width| m.normal_rows(width, VOCABULARY));
    let y = m.b.attention([q, k, v], LayerCache { kv_heads: 2, head_dim: 64 }, 4, 0.125);
    let nmse = match cache_type {
        CacheType::F32 => SOFTMAX,
        CacheType::F16 => HALF,
        CacheType::Q8_0 => EIGHT_BITS,
    };
    let case = m.finish(format!("{} of normal numbers", name(&sizes, cache_type)), y, steps(), nmse);
    Case { cache_type, ..case }
}

/// Scores of thousands, which are exact in single precision: their exponentials alone would overflow.
fn large_scores(scale: f32) -> Case {
    let case = exact(&Sizes { head_dim: 32, kv_heads: 1, group: 2 }, CacheType::F16, 16.0 * scale, SOFTMAX);
    Case { name: format!("attention with large scores, scale {scale}"), ..case }
}

/// Every score is larger than all before it, so that every page fades what has been gathered; the first are below
/// any exponential.
fn rising_scores() -> Case {
    let mut m = Maker::new(22);
    let q = m.rows_of(8, &[1.0; 8 * VOCABULARY]);
    let keys: Vec<f32> = (0..8 * VOCABULARY).map(|i| (i / 8) as f32 * 0.5 - 60.0).collect();
    let k = m.rows_of(8, &keys);
    let v = m.exact_rows(8, VOCABULARY);
    let y = m.b.attention([q, k, v], LayerCache { kv_heads: 1, head_dim: 8 }, 1, 0.125);
    m.finish("attention with rising scores", y, steps(), SOFTMAX)
}

/// Two layers of different shapes in one cache, the second reading what the first made.
fn two_layers() -> Case {
    let mut m = Maker::new(23);
    let [q, k, v] = [96, 32, 32].map(|width| m.exact_rows(width, VOCABULARY));
    let x = m.b.attention([q, k, v], LayerCache { kv_heads: 1, head_dim: 32 }, 3, 0.2);
    let [k, v] = [48, 48].map(|width| m.exact_rows(width, VOCABULARY));
    let y = m.b.attention([x, k, v], LayerCache { kv_heads: 2, head_dim: 24 }, 4, 0.2);
    let z = m.b.add(y, x);
    let case = m.finish("attention in two layers", z, steps(), SOFTMAX);
    Case { cache_type: CacheType::F16, ..case }
}
