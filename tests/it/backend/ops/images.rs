//! Cases of the ops that images need: rows that the step gives, joined rows, tables between whose
//! rows places lie, rotation by several positions, and attention to a span or a run.

use std::ops::Range;

use inkstone::{
    CacheType, DType,
    internals::{
        backend::Taps,
        graph::{LayerCache, RopeAxes, RopeSpec, RopeStyle, Scores, Sees, Window},
    },
};

use super::case::{Case, Maker, SINGLE, normal, ragged, steps_of};
use crate::support::{
    graphs::Random,
    interpret::{Run, Step},
};

/// Numbers of tokens: of both programs of a GPU, and of several workgroups.
const TOKENS: [usize; 4] = [1, 9, 17, 70];
const WIDTHS: [usize; 4] = [1, 30, 64, 200];
const VOCABULARY: usize = 90;

/// What the order of sums in a softmax costs.
const SOFTMAX: f64 = 1e-11;

pub fn clamp() -> Vec<Case> {
    let case = |width| {
        let mut m = Maker::new(40);
        let x = m.normal_rows(width, VOCABULARY);
        let (lower, upper) = (m.floats(1, &[-0.5]), m.b.constant([0.75]));
        let y = m.b.clamp(x, [lower, upper]);
        m.finish(format!("clamp, width {width}"), y, steps_of(&TOKENS, VOCABULARY), SINGLE)
    };
    WIDTHS.map(case).into()
}

pub fn concat() -> Vec<Case> {
    let case = |widths: &[usize], groups: usize| {
        let mut m = Maker::new(41);
        let parts: Vec<_> = widths.iter().map(|width| m.normal_rows(*width, VOCABULARY)).collect();
        let y = m.b.concat_groups(&parts, groups);
        m.finish(format!("concat of {groups} groups of {widths:?}"), y, steps_of(&TOKENS, VOCABULARY), SINGLE)
    };
    let whole = [case(&[64], 1), case(&[3, 70], 1), case(&[64, 1, 200], 1)];
    whole.into_iter().chain([case(&[21, 70], 7), case(&[64, 16], 4), case(&[3, 6, 3], 3)]).collect()
}

pub fn layer_norm() -> Vec<Case> {
    let case = |(width, mean): (usize, f32)| {
        let mut m = Maker::new(42);
        let elements: Vec<_> = normal(VOCABULARY * width, &mut m.random).iter().map(|x| x + mean).collect();
        let x = m.rows_of(width, &elements);
        let [w, b] = [0, 1].map(|_| {
            let row = normal(width, &mut m.random);
            m.floats(width, &row)
        });
        let y = m.b.layer_norm(x, [w, b], 1e-5);
        // The operand is read once more, so that one norm is not in place.
        let z = m.b.add(y, x);
        m.finish(format!("layer_norm, width {width}, mean {mean}"), z, steps_of(&TOKENS, VOCABULARY), SINGLE)
    };
    let heads = |(groups, len): (usize, usize)| {
        let mut m = Maker::new(48);
        let width = groups * len;
        let x = m.normal_rows(width, VOCABULARY);
        let [w, b] = [0, 1].map(|_| {
            let row = normal(width, &mut m.random);
            m.floats(width, &row)
        });
        let y = m.b.layer_norms(x, [w, b], 1e-5, groups);
        m.finish(format!("layer_norm of {groups} groups of {len}"), y, steps_of(&TOKENS, VOCABULARY), SINGLE)
    };
    let mut cases: Vec<_> = WIDTHS.map(|width| case((width, 0.0))).into();
    cases.push(case((130, 30.0)));
    cases.extend([(2, 8), (3, 17), (5, 2), (16, 64)].map(heads));
    cases
}

pub fn join_rows() -> Vec<Case> {
    let case = |(width, count): (usize, usize)| {
        let mut m = Maker::new(43);
        let x = m.normal_rows(width, VOCABULARY);
        let y = m.b.join_rows(x, count);
        let step = |blocks: usize| {
            let step = ragged(&[(0, 0, blocks * count)], VOCABULARY);
            Step { outputs: (0..blocks).map(|block| block * count).collect(), ..step }
        };
        let mut apart = step(6);
        apart.outputs = vec![0, 2 * count + 1 - count.min(2), 5 * count];
        m.finish(format!("join_rows, {count} of {width}"), y, vec![step(1), step(7), apart], SINGLE)
    };
    vec![case((64, 4)), case((30, 9)), case((1, 2)), case((70, 1)), case((200, 16))]
}

/// Rows that are all there is, that replace rows, all or the marked ones, and whose parts are added
/// to rows.
pub fn given_rows() -> Vec<Case> {
    let case = |width: usize| {
        let mut m = Maker::new(44);
        let x = m.normal_rows(width, VOCABULARY);
        let given = m.b.input_rows(width);
        let x = m.b.place_rows(x, 0);
        let y = m.b.add_rows(x, width);
        let z = m.b.add_rows(y, 2 * width);
        let z = m.b.place_marked_rows(z, 3 * width + 1);
        let sum = m.b.add(z, given);
        let mut steps = steps_of(&TOKENS, VOCABULARY);
        let mut random = Random::new(45);
        for (step, tokens) in steps.iter_mut().skip(1).zip([vec![0, 8], vec![], (3..66).collect()]) {
            let mark = |token: usize| [0.0, 1.0, -0.0, -0.5][token % 4];
            let mut row =
                |token| [normal(3 * width, &mut random), vec![mark(token)], normal(width, &mut random)].concat();
            step.rows = tokens.into_iter().map(|token| (token, row(token))).collect();
        }
        m.finish(format!("given rows, width {width}"), sum, steps, SINGLE)
    };
    WIDTHS.map(case).into()
}

pub fn interpolate() -> Vec<Case> {
    let case = |(width, dtype): (usize, DType)| {
        let mut m = Maker::new(46);
        let tables = [7, 1].map(|rows| m.random_weight(dtype, rows, width));
        let [x, y] = [0, 1].map(|set| m.b.interpolate(tables[set], set));
        let sum = m.b.add(x, y);
        let mut steps = steps_of(&TOKENS, VOCABULARY);
        let mut random = Random::new(47);
        for step in &mut steps {
            let mut taps = |rows: usize| -> Vec<Taps> {
                let mut tap = || (random.below(rows) as u32, random.between(-1.0, 1.0));
                step.tokens.iter().map(|_| [tap(), tap(), tap(), (0, 0.0)]).collect()
            };
            step.taps = vec![taps(7), taps(1)];
        }
        m.finish(format!("interpolate, width {width}, {dtype}"), sum, steps, SINGLE)
    };
    vec![case((30, DType::F32)), case((64, DType::F16)), case((200, DType::F32)), case((256, DType::Q8_0))]
}

/// Rotation by three positions, of text and of images.
pub fn rope() -> Vec<Case> {
    let case = |(style, axes): (RopeStyle, RopeAxes)| {
        let mut m = Maker::new(48);
        let (head_dim, pairs) = (40, 12);
        let x = m.normal_rows(2 * head_dim, VOCABULARY);
        let frequencies: Vec<f32> = (0..pairs).map(|i| 50f32.powf(-(i as f32) / pairs as f32)).collect();
        let frequencies = m.b.constant(frequencies);
        let y = m.b.rope(x, frequencies, RopeSpec { style, head_dim, axes });
        let z = m.b.rope(y, frequencies, RopeSpec { style, head_dim, axes: RopeAxes::First });
        let mut steps = vec![ragged(&[(0, 3, 5)], VOCABULARY), ragged(&[(0, 8, 4), (1, 0, 30), (2, 7, 1)], VOCABULARY)];
        let image = |run: &Run| (0..run.len).map(|i| [7, 7 + i as u32 / 5, 7 + i as u32 % 5]).collect();
        steps[0].runs[0].rotary = image(&steps[0].runs[0]);
        steps[1].runs[1].rotary = image(&steps[1].runs[1]);
        steps[1].runs[2].rotary = vec![[3; 3]];
        m.finish(format!("rope {style:?} by {axes:?}"), z, steps, SINGLE)
    };
    let axes = [RopeAxes::First, RopeAxes::Sections([4, 5, 3]), RopeAxes::Interleaved([5, 4, 3])];
    let styles = [RopeStyle::Adjacent, RopeStyle::Halves, RopeStyle::Quarters];
    let mut cases: Vec<_> = styles.into_iter().flat_map(|style| axes.map(|axes| case((style, axes)))).collect();
    cases.push(case((RopeStyle::Halves, RopeAxes::Sections([0, 6, 6]))));
    cases.push(rotated_attention());
    cases
}

/// Rotation by three positions before attention, which a GPU computes in one kernel.
fn rotated_attention() -> Case {
    let mut m = Maker::new(49);
    let cache = LayerCache { kv_heads: 2, head_dim: 32, keys_only: false };
    let [q, k, v] = [128, 64, 64].map(|width| m.normal_rows(width, VOCABULARY));
    let frequencies = m.b.constant((0..16).map(|i| 0.8f32.powi(i)).collect::<Vec<_>>());
    let spec = RopeSpec { style: RopeStyle::Halves, head_dim: 32, axes: RopeAxes::Interleaved([6, 5, 5]) };
    let [q, k] = [q, k].map(|x| m.b.rope(x, frequencies, spec));
    let y = m.b.attention([q, k, v], cache, 4, 0.2);
    let mut steps = vec![ragged(&[(0, 0, 40)], VOCABULARY), ragged(&[(0, 40, 1)], VOCABULARY)];
    steps[0].runs[0].rotary = (0..40).map(|i| [2, 2 + i / 8, 2 + i % 8]).collect();
    steps[1].runs[0].rotary = vec![[10; 3]];
    m.finish("attention of queries and keys rotated by three positions", y, steps, SOFTMAX)
}

/// Attention to spans, with text before, between and after, and to whole runs.
pub fn attention() -> Vec<Case> {
    let mut cases = Vec::new();
    for (head_dim, cache_type) in
        [(32, CacheType::F32), (64, CacheType::F16), (72, CacheType::F32), (72, CacheType::F16)]
    {
        let whole = Scores { sees: Sees::Run, ..0.2.into() };
        let windows = Scores { sees: Sees::Span, ..0.2.into() };
        cases.push(of_the_step(head_dim, cache_type, [whole, windows]));
        for window in [None, Some(20), Some(600)].map(|size| size.map(Window::Sliding)) {
            let scores = Scores { scale: 0.2, softcap: None, window, sees: Sees::PastAndSpan };
            cases.push(past_and_spans(head_dim, cache_type, scores));
        }
    }
    cases
}

/// Two attentions that share a cache layer: over whole runs, then over windows.
fn of_the_step(head_dim: usize, cache_type: CacheType, scores: [Scores; 2]) -> Case {
    let mut m = Maker::new(50);
    let cache = LayerCache { kv_heads: 2, head_dim, keys_only: false };
    let mut heads = || [0; 3].map(|_| m.exact_rows(2 * head_dim, VOCABULARY));
    let [first, second] = [heads(), heads()];
    let x = m.b.step_attention(first, cache, 2, scores[0]);
    let y = m.b.step_attention(second, cache, 2, scores[1]);
    let y = m.b.add(x, y);
    let mut steps = vec![
        ragged(&[(0, 0, 150), (1, 0, 9), (2, 0, 1)], VOCABULARY),
        ragged(&[(3, 0, 600)], VOCABULARY),
        ragged(&[(4, 0, 6)], VOCABULARY),
    ];
    steps[0].runs[0].spans = vec![0..64, 64..100, 100..150];
    steps[0].runs[1].spans = vec![0..4, 4..9];
    steps[1].runs[0].spans = (0..6).map(|window| 100 * window..100 * (window + 1)).collect();
    let case = m.finish(format!("attention within the step, heads of {head_dim}"), y, steps, SOFTMAX);
    Case { cache_type, ..case }
}

fn past_and_spans(head_dim: usize, cache_type: CacheType, scores: Scores) -> Case {
    let mut m = Maker::new(51);
    let cache = LayerCache { kv_heads: 2, head_dim, keys_only: false };
    let [q, k, v] = [4, 2, 2].map(|heads| m.exact_rows(heads * head_dim, VOCABULARY));
    let y = m.b.attention([q, k, v], cache, 4, scores);
    let mut steps = vec![
        ragged(&[(0, 0, 90)], VOCABULARY),
        ragged(&[(0, 90, 12), (1, 0, 5)], VOCABULARY),
        ragged(&[(0, 102, 1)], VOCABULARY),
        ragged(&[(2, 0, 1000)], VOCABULARY),
        ragged(&[(2, 1000, 30), (0, 103, 40)], VOCABULARY),
    ];
    steps[0].runs[0].spans = vec![3..19, 25..85];
    steps[1].runs[0].spans = vec![Range { start: 1, end: 11 }];
    steps[3].runs[0].spans = vec![10..266, 700..1000];
    steps[4].runs[1].spans = vec![Range { start: 0, end: 40 }];
    let name = format!("attention to the past and spans, heads of {head_dim}, window {:?}", scores.window);
    let case = m.finish(name, y, steps, SOFTMAX);
    Case { cache_type, ..case }
}
