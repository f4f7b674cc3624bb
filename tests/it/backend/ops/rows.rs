//! Ops on rows that are no products: element by element, norms, rotations, selections.

use inkstone::{
    DType,
    internals::graph::{Activation, FusedOp, Op, RopeAxes, RopeSpec, RopeStyle, ValueId},
};

use super::case::{Case, Maker, SINGLE, normal, ragged, steps_of};
use crate::support::quantize::quantize;

/// Widths around those of vectors.
const WIDTHS: [usize; 8] = [1, 7, 8, 15, 16, 17, 33, 100];

/// The cost of products of normal numbers in 8 bits: the largest of 32 is about 10 standard
/// deviations with a squared gate, so the step is 10 / 127 of one, and the squared error 5e-4.
const GATED: f64 = 5e-4;

const TOKENS: [usize; 4] = [1, 2, 5, 33];
const VOCABULARY: usize = 40;

pub fn pairwise() -> Vec<Case> {
    let ops = [Op::Add, Op::Mul, Op::Div];
    ops.iter().flat_map(|op| WIDTHS.iter().flat_map(|width| pairwise_of(op, *width))).collect()
}

/// With a row for each row (also the same one twice), one row of a weight, a constant row, and one
/// number.
fn pairwise_of(op: &Op, width: usize) -> Vec<Case> {
    type Second = fn(&mut Maker, ValueId, usize) -> ValueId;
    let seconds: [(&str, Second); 6] = [
        ("rows", |m, _, width| away_from_zero_rows(m, width)),
        ("itself", |_, x, _| x),
        ("a weight", |m, _, width| away_from_zero_weight(m, DType::F32, width)),
        ("a half-precision weight", |m, _, width| away_from_zero_weight(m, DType::F16, width)),
        ("a constant", |m, _, width| {
            let row = away_from_zero(width, m);
            m.b.constant(row)
        }),
        ("a number", |m, _, _| away_from_zero_weight(m, DType::F32, 1)),
    ];
    let case = |(name, second): &(&str, Second)| {
        let mut m = Maker::new(10);
        let x = away_from_zero_rows(&mut m, width);
        let y = second(&mut m, x, width);
        let z = m.b.push(op.clone(), &[x, y]);
        // The operands once more, so that a result that overwrote the wrong one shows.
        let again = m.b.push(op.clone(), &[z, y]);
        let sum = m.b.add(again, x);
        m.finish(format!("{} with {name}, width {width}", op.name()), sum, steps_of(&TOKENS, VOCABULARY), SINGLE)
    };
    seconds.iter().map(case).collect()
}

fn away_from_zero(count: usize, m: &mut Maker) -> Vec<f32> {
    (0..count).map(|_| m.random.between(0.5, 2.0) * [1.0, -1.0][m.random.below(2)]).collect()
}

fn away_from_zero_rows(m: &mut Maker, width: usize) -> ValueId {
    let elements = away_from_zero(width * VOCABULARY, m);
    m.rows_of(width, &elements)
}

fn away_from_zero_weight(m: &mut Maker, dtype: DType, width: usize) -> ValueId {
    let row = away_from_zero(width, m);
    m.weight(dtype, 1, width, quantize(dtype, &row))
}

const ACTIVATIONS: [Activation; 7] = [
    Activation::Silu,
    Activation::Gelu,
    Activation::GeluErf,
    Activation::QuickGelu,
    Activation::Sigmoid,
    Activation::Relu,
    Activation::SquaredRelu,
];

pub fn activations() -> Vec<Case> {
    ACTIVATIONS.into_iter().flat_map(activation).collect()
}

fn activation(activation: Activation) -> Vec<Case> {
    // The square of a number beyond 1e19 is not finite.
    let largest = if activation == Activation::SquaredRelu { 1e19 } else { f32::MAX };
    let extremes = [0.0, -0.0, 100.0, -100.0, 87.0, -87.0, 88.7, -88.7, 89.0, -89.0, 3.0e38, -3.0e38, 1e-30, -1e-30];
    let extremes = extremes.map(|x: f32| x.min(largest));
    let case = |width: usize| {
        let mut m = Maker::new(11);
        let x = m.normal_rows(width, VOCABULARY);
        let y = m.b.activate(activation, x);
        m.finish(format!("{activation:?}, width {width}"), y, steps_of(&TOKENS, VOCABULARY), SINGLE)
    };
    let extreme = |x: &f32| {
        let mut m = Maker::new(12);
        // Beside a one, whose result sets how small is small.
        let row = m.rows_of(2, &[*x, 1.0]);
        let y = m.b.activate(activation, row);
        m.finish(format!("{activation:?} of {x:?}"), y, steps_of(&[1], 1), SINGLE)
    };
    WIDTHS.map(case).into_iter().chain(extremes.iter().map(extreme)).collect()
}

/// Halves of heads, a few columns of all, everything.
pub fn slice() -> Vec<Case> {
    let case = |(width, first, len, every): (usize, usize, usize, usize)| {
        let mut m = Maker::new(18);
        let x = m.normal_rows(width, VOCABULARY);
        let y = m.b.slice(x, first, len, every);
        m.finish(format!("slice {first} {len} {every} of {width}"), y, steps_of(&TOKENS, VOCABULARY), SINGLE)
    };
    [(12, 0, 2, 4), (12, 2, 2, 4), (37, 5, 3, 37), (64, 8, 8, 32), (96, 33, 1, 48), (20, 0, 20, 20)].map(case).into()
}

/// One sum of one part, several of each, and more sums than parts.
pub fn mix_streams() -> Vec<Case> {
    let case = |(streams, outputs, width): (usize, usize, usize)| {
        let mut m = Maker::new(21);
        let x = m.normal_rows(streams * width, VOCABULARY);
        let weights = m.normal_rows(outputs * streams, VOCABULARY);
        let y = m.b.mix_streams(x, weights, outputs);
        let name = format!("mix_streams of {streams} parts of {width} to {outputs}");
        m.finish(name, y, steps_of(&TOKENS, VOCABULARY), SINGLE)
    };
    [(1, 1, 1), (1, 1, 33), (4, 4, 32), (1, 4, 17), (3, 1, 100), (4, 3, 7), (6, 1, 1), (2, 5, 64)].map(case).into()
}

/// Rows around 0 and far from it, and rows of one number.
pub fn deviation() -> Vec<Case> {
    let case = |(width, centered): (usize, bool)| {
        let mut m = Maker::new(22);
        let x = m.normal_rows(width, VOCABULARY);
        let ones = m.b.constant(vec![3.0; width]);
        let x = m.b.add(x, ones);
        let y = m.b.deviation(x, centered);
        let y = m.b.mix_streams(x, y, 1);
        m.finish(format!("deviation, width {width}, centered {centered}"), y, steps_of(&TOKENS, VOCABULARY), SINGLE)
    };
    WIDTHS.into_iter().chain([300]).flat_map(|width| [case((width, false)), case((width, true))]).collect()
}

pub fn soft_cap() -> Vec<Case> {
    let case = |cap: f32| {
        let mut m = Maker::new(16);
        let x = m.normal_rows(37, VOCABULARY);
        let y = m.b.soft_cap(x, cap);
        // The cap's own rounding is left in numbers that are small beside it.
        m.finish(format!("soft_cap {cap}"), y, steps_of(&TOKENS, VOCABULARY), SINGLE * f64::from(cap).max(1.0))
    };
    let mut m = Maker::new(17);
    let x = m.rows_of(6, &[0.0, 29.0, -100.0, 3.0e38, -3.0e38, 1.0]);
    let y = m.b.soft_cap(x, 30.0);
    let extreme = m.finish("soft_cap of large numbers", y, steps_of(&[1], 1), SINGLE);
    [0.5, 2.0, 30.0].map(case).into_iter().chain([extreme]).collect()
}

pub fn rms_norm() -> Vec<Case> {
    let case = |(groups, group): (usize, usize)| {
        let mut m = Maker::new(13);
        let x = m.normal_rows(groups * group, VOCABULARY);
        let w = normal(group, &mut m.random);
        let w = m.floats(group, &w);
        let y = m.b.rms_norm(x, w, 1e-5);
        let z = m.b.mul(y, x);
        m.finish(format!("rms_norm of {groups} groups of {group}"), z, steps_of(&TOKENS, VOCABULARY), SINGLE)
    };
    let mut cases: Vec<_> = WIDTHS.map(|width| case((1, width))).into();
    cases.extend([(4, 8), (3, 20), (2, 7), (16, 128), (5, 1)].map(case));
    // The largest eps that matters, and rows of zeros.
    let mut m = Maker::new(14);
    let x = m.rows_of(9, &[[0.0; 9], [1e-3; 9]].concat());
    let w = m.b.constant([1.0; 9]);
    let y = m.b.rms_norm(x, w, 1e-6);
    cases.push(m.finish("rms_norm of nothing", y, steps_of(&[2], 2), SINGLE));
    cases
}

/// Both results are read, in both kinds of rows.
pub fn add_rms_norm() -> Vec<Case> {
    let case = |(width, outputs): (usize, bool)| {
        let mut m = Maker::new(15);
        let mut inputs = [m.normal_rows(width, VOCABULARY), m.normal_rows(width, VOCABULARY)];
        if outputs {
            inputs = inputs.map(|x| m.b.push(Op::SelectOutputs, &[x]));
        }
        let w = normal(width, &mut m.random);
        let w = m.floats(width, &w);
        let [sum, normed] = m.b.push_all(FusedOp::AddRmsNorm { eps: 1e-5 }, &[inputs[0], inputs[1], w])[..] else {
            panic!("two results")
        };
        let product = m.b.mul(sum, normed);
        let y = m.b.add(product, inputs[1]);
        m.finish(format!("add_rms_norm, width {width}"), y, steps_of(&TOKENS, VOCABULARY), SINGLE)
    };
    WIDTHS.into_iter().flat_map(|width| [case((width, false)), case((width, true))]).collect()
}

/// Gates with every activation, and with norms of groups; a product reads the result as int8.
pub fn gated() -> Vec<Case> {
    let case = |(width, len, activation): (usize, Option<usize>, Activation)| {
        let mut m = Maker::new(17);
        let inputs = [m.normal_rows(width, VOCABULARY), m.normal_rows(width, VOCABULARY)];
        let mut inputs = inputs.to_vec();
        if let Some(len) = len {
            let w = normal(len, &mut m.random);
            inputs.push(m.floats(len, &w));
        }
        let y = m.b.push(FusedOp::Gated { activation, norm: len.map(|_| 1e-5) }, &inputs);
        if !width.is_multiple_of(32) {
            return m.finish(format!("gated {activation:?}, width {width}"), y, steps_of(&TOKENS, VOCABULARY), SINGLE);
        }
        let w = m.random_weight(DType::Q8_0, width, width);
        let product = m.b.matmul(y, w);
        let name = format!("gated {activation:?}, read as int8, width {width}");
        m.finish(name, product, steps_of(&TOKENS, VOCABULARY), GATED)
    };
    let widths = WIDTHS.into_iter().map(|width| (width, None, Activation::Silu));
    let activations = ACTIVATIONS.into_iter().map(|activation| (64, None, activation));
    let groups = [(64, 32), (96, 32), (48, 16), (30, 10), (400, 80), (1024, 512), (320, 64)];
    let groups = groups.into_iter().map(|(width, len)| (width, Some(len), Activation::Silu));
    widths.chain(activations).chain(groups).chain([(544, None, Activation::Sigmoid)]).map(case).collect()
}

pub fn rope() -> Vec<Case> {
    let case = |(style, head_dim, pairs, heads): (RopeStyle, usize, usize, usize)| {
        let mut m = Maker::new(16);
        let x = m.normal_rows(heads * head_dim, VOCABULARY);
        let frequencies: Vec<f32> = (0..pairs).map(|i| 10_000f32.powf(-(i as f32) / pairs as f32)).collect();
        let frequencies = m.b.constant(frequencies);
        let y = m.b.rope(x, frequencies, RopeSpec { style, head_dim, axes: RopeAxes::First });
        // A second rotation by the same angles, and the operand once more.
        let y = m.b.rope(y, frequencies, RopeSpec { style, head_dim, axes: RopeAxes::First });
        let y = m.b.add(y, x);
        let steps = vec![
            ragged(&[(0, 0, 5)], VOCABULARY),
            ragged(&[(0, 5, 1), (1, 130_000, 3), (2, 1_000_003, 2)], VOCABULARY),
            ragged(&[(1, 130_003, 1), (0, 6, 33)], VOCABULARY),
        ];
        m.finish(format!("rope {style:?}, {pairs} pairs in heads of {head_dim}"), y, steps, SINGLE)
    };
    let sizes = [(8, 4, 1), (20, 10, 3), (64, 32, 2), (128, 64, 2), (10, 3, 2), (80, 16, 2), (7, 1, 3), (2, 1, 1)];
    let styles = [RopeStyle::Adjacent, RopeStyle::Halves];
    let mut cases = Vec::new();
    for style in styles {
        cases.extend(sizes.map(|(head_dim, pairs, heads)| case((style, head_dim, pairs, heads))));
    }
    cases.push(two_ropes());
    cases
}

/// Positions around the ends of intervals, and far from the start.
pub fn temper() -> Vec<Case> {
    let case = |(width, scale, interval, offset): (usize, f32, usize, usize)| {
        let mut m = Maker::new(19);
        let x = m.normal_rows(width, VOCABULARY);
        let y = m.b.temper(x, scale, interval, offset);
        // In place, and the operand once more.
        let y = m.b.temper(y, scale, 2 * interval, 0);
        let y = m.b.add(y, x);
        let steps = vec![
            ragged(&[(0, 0, 20)], VOCABULARY),
            ragged(&[(0, 20, 1), (1, 130_000, 3), (2, 1_000_003, 2)], VOCABULARY),
        ];
        m.finish(format!("temper by {scale} each {interval} from {offset}, width {width}"), y, steps, SINGLE)
    };
    [(1, 0.1, 8192, 1), (17, 0.4, 12, 0), (64, 2.0, 1, 0), (33, -0.5, 7, 1)].map(case).into()
}

/// Two sets of frequencies in one graph, of which one is a weight.
fn two_ropes() -> Case {
    let mut m = Maker::new(17);
    let x = m.normal_rows(16, VOCABULARY);
    let first = m.b.constant([1.0, 0.1, 0.01, 0.001]);
    let second = m.floats(2, &[0.5, 0.25]);
    let spec = RopeSpec { style: RopeStyle::Halves, head_dim: 8, axes: RopeAxes::First };
    let y = m.b.rope(x, first, spec);
    let z = m.b.rope(x, second, spec);
    let sum = m.b.add(y, z);
    let steps = vec![ragged(&[(0, 3, 4)], VOCABULARY), ragged(&[(1, 70, 2), (0, 7, 1)], VOCABULARY)];
    m.finish("rope by two sets of frequencies", sum, steps, SINGLE)
}

/// No rows, some and all, of two values.
pub fn select_outputs() -> Vec<Case> {
    let case = |width: usize| {
        let mut m = Maker::new(18);
        let x = m.normal_rows(width, VOCABULARY);
        let y = m.b.silu(x);
        let [x, y] = [x, y].map(|x| m.b.push(Op::SelectOutputs, &[x]));
        let y = m.b.mul(y, x);
        let mut steps = vec![ragged(&[(0, 0, 6), (1, 0, 1), (2, 0, 4)], VOCABULARY); 6];
        steps[0].outputs = vec![10];
        steps[1].outputs = vec![];
        steps[2].outputs = vec![0, 5, 6, 10];
        steps[4].outputs = vec![0];
        steps[5].outputs = vec![3, 4];
        m.finish(format!("select_outputs, width {width}"), y, steps, SINGLE)
    };
    WIDTHS.map(case).into()
}
