//! The choice of experts, and what they compute.

use inkstone::{
    DType,
    internals::graph::{Activation, ExpertGroups, ExpertScore, ExpertsSpec, Glu, RouteSpec, ValueId},
};

use super::case::{Case, Maker, SINGLE, normal, steps_of};

/// What activations in 8 bits cost. Behind a gate the largest of 32 stands out far, and here it is
/// often all there is.
const EIGHT_BITS: f64 = 2e-3;

/// What sums in single precision cost where terms almost cancel.
const SUMS: f64 = 1e-11;

const TOKENS: [usize; 6] = [1, 2, 5, 9, 33, 70];
const VOCABULARY: usize = 24;

pub fn route() -> Vec<Case> {
    let case = |&(width, top_k): &(usize, usize)| {
        let mut m = Maker::new(20);
        let logits = m.normal_rows(width, VOCABULARY);
        let weights = m.b.route(logits, top_k);
        m.finish(format!("route {top_k} of {width}"), weights, steps_of(&TOKENS, VOCABULARY), SINGLE)
    };
    let mut cases: Vec<_> =
        [(1, 1), (2, 1), (5, 5), (8, 2), (17, 4), (33, 8), (128, 8), (300, 10)].iter().map(case).collect();
    cases.push(route_equal());
    cases.extend(routers());
    cases
}

/// Routers of every kind: probabilities, biases, groups and scales.
fn routers() -> Vec<Case> {
    let plain = RouteSpec::from(4);
    let sigmoid = RouteSpec { score: ExpertScore::Sigmoid, ..plain };
    let groups = |count, top_k| Some(ExpertGroups { count, top_k });
    let specs = [
        (24, false, RouteSpec { normalized: false, ..plain }),
        (24, true, plain),
        (24, true, RouteSpec { normalized: false, scale: 0.5, ..plain }),
        (24, false, RouteSpec { scale: 2.5, ..plain }),
        (24, false, sigmoid),
        (24, true, RouteSpec { scale: 2.5, ..sigmoid }),
        (24, true, RouteSpec { normalized: false, ..sigmoid }),
        (24, true, RouteSpec { groups: groups(4, 2), ..sigmoid }),
        (24, false, RouteSpec { groups: groups(12, 2), ..sigmoid }),
        (24, false, RouteSpec { groups: groups(3, 1), ..plain }),
        (256, true, RouteSpec { top_k: 8, groups: groups(8, 4), scale: 2.5, ..sigmoid }),
    ];
    let case = |(width, biased, spec): (usize, bool, RouteSpec)| {
        let mut m = Maker::new(24);
        let logits = m.normal_rows(width, VOCABULARY);
        let bias = biased.then(|| {
            let bias = normal(width, &mut m.random);
            m.floats(width, &bias)
        });
        let weights = m.b.route_with(logits, bias, spec);
        m.finish(format!("{spec:?} of {width}, biased {biased}"), weights, steps_of(&TOKENS, VOCABULARY), SINGLE)
    };
    specs.map(case).into()
}

/// Of equal logits the first are taken, also where others were there before.
fn route_equal() -> Case {
    let mut m = Maker::new(21);
    let logits = m.rows_of(5, &[1.0, 2.0, 2.0, 2.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0, -1e30, 3.0, -1e30, 3.0]);
    let weights = m.b.route(logits, 3);
    m.finish("route among equals", weights, steps_of(&[3], 3), SINGLE)
}

/// The sizes of a layer of experts: hidden, in one, how many and how many of them a token uses.
#[derive(Clone, Copy)]
struct Sizes([usize; 4]);

impl Sizes {
    fn spec(self, activation: Activation) -> ExpertsSpec {
        let Self([_, _, experts, top_k]) = self;
        ExpertsSpec { experts, top_k, glu: activation.into(), biased: false }
    }
}

/// Sizes that a format's rows allow, with experts' rows of no whole groups where they do.
fn sizes(dtype: DType) -> Sizes {
    Sizes(match dtype.block_weights() {
        1 => [20, 23, 9, 3],
        32 => [96, 32, 9, 3],
        _ => [256, 256, 5, 2],
    })
}

pub fn experts(dtype: DType) -> Vec<Case> {
    let [hidden, ffn, experts, _] = sizes(dtype).0;
    let apart = |m: &mut Maker| {
        vec![m.random_weight(dtype, experts * ffn, hidden), m.random_weight(dtype, experts * ffn, hidden)]
    };
    let joined = |m: &mut Maker| vec![m.random_weight(dtype, 2 * experts * ffn, hidden)];
    vec![case(dtype, Activation::Silu, &apart), case(dtype, Activation::Gelu, &joined)]
}

fn case(dtype: DType, activation: Activation, gate_up: &dyn Fn(&mut Maker) -> Vec<ValueId>) -> Case {
    let sizes = sizes(dtype);
    let Sizes([hidden, ffn, experts, top_k]) = sizes;
    let mut m = Maker::new(22);
    let (x, logits) = (m.exact_rows(hidden, VOCABULARY), m.normal_rows(experts, VOCABULARY));
    let weights = m.b.route(logits, top_k);
    let mut matrices = gate_up(&mut m);
    matrices.push(m.random_weight(dtype, experts * hidden, ffn));
    let y = m.b.experts(x, weights, &matrices, sizes.spec(activation));
    let nmse = if dtype.is_float() { SUMS } else { EIGHT_BITS };
    let name = format!("experts {dtype}, {activation:?}, {} matrices", matrices.len());
    m.finish(name, y, steps_of(&TOKENS, VOCABULARY), nmse)
}

/// What a family may do besides: matrices in formats of several kinds, weights that are no softmax,
/// rows with no expert or more than they may have, all tokens with one expert, and one that takes
/// every token.
pub fn unusual() -> Vec<Case> {
    let sizes = Sizes([256, 256, 3, 2]);
    let mixed = [DType::F16, DType::Q4_K, DType::F32];
    let coded = [DType::Q6_K, DType::Q4_K, DType::Q8_0];
    let weights = [1.5, 0.0, -0.25, 0.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.5, 1.0, 9.0];
    let crowd = [0.0, 0.75, 0.0];
    let shared = Sizes([256, 512, 1, 1]);
    let mut cases: Vec<_> = [DType::F32, DType::MXFP4, DType::Q4_K].map(biased).into();
    cases.extend([
        of_weights("experts in mixed formats", sizes, mixed, &weights),
        of_weights("experts in several coded formats", sizes, coded, &weights),
        of_weights("experts of which all take one", sizes, [DType::Q4_K; 3], &crowd),
        of_weights("an expert that takes all", shared, [DType::Q4_0; 3], &[0.25, 0.75, 1.0]),
    ]);
    cases
}

/// Experts with biases and clamped gated linear units, of which some numbers are beyond the limits.
fn biased(dtype: DType) -> Case {
    let sizes = sizes(dtype);
    let Sizes([hidden, ffn, experts, top_k]) = sizes;
    let mut m = Maker::new(25);
    let (x, logits) = (m.exact_rows(hidden, VOCABULARY), m.normal_rows(experts, VOCABULARY));
    let weights = m.b.route(logits, top_k);
    let of_gates_and_ups = normal(2 * experts * ffn, &mut m.random).into_iter().map(|x| 6.0 * x);
    let of_downs = normal(experts * hidden, &mut m.random).into_iter().map(|x| 2.0 * x);
    let biases: Vec<_> = of_gates_and_ups.chain(of_downs).collect();
    let biases = m.floats(biases.len(), &biases);
    let gate = m.random_weight(dtype, experts * ffn, hidden);
    let up = m.random_weight(dtype, experts * ffn, hidden);
    let down = m.random_weight(dtype, experts * hidden, ffn);
    let spec = ExpertsSpec { experts, top_k, glu: Glu::Clamped, biased: true };
    let y = m.b.experts(x, weights, &[biases, gate, up, down], spec);
    let nmse = if dtype.is_float() { SUMS } else { EIGHT_BITS };
    m.finish(format!("experts {dtype} with biases"), y, steps_of(&TOKENS, VOCABULARY), nmse)
}

fn of_weights(name: &str, sizes: Sizes, formats: [DType; 3], weights: &[f32]) -> Case {
    let Sizes([hidden, ffn, experts, _]) = sizes;
    let mut m = Maker::new(23);
    let rows = weights.len() / experts;
    let elements = normal(rows * hidden, &mut m.random);
    let (x, weights) = (m.rows_of(hidden, &elements), m.rows_of(experts, weights));
    let [gate, up, down] = formats;
    let matrices = [
        m.random_weight(gate, experts * ffn, hidden),
        m.random_weight(up, experts * ffn, hidden),
        m.random_weight(down, experts * hidden, ffn),
    ];
    let y = m.b.experts(x, weights, &matrices, sizes.spec(Activation::Silu));
    m.finish(name, y, steps_of(&[1, 4, 150], rows), EIGHT_BITS)
}
