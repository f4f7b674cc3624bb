//! Tests plans: their steps compute the graph's result in their slots, and the slots are no larger
//! than the live values need.

use std::collections::HashMap;

use inkstone::{
    DType,
    internals::{
        graph::{Builder, FusedOp, Graph, Op, Rows, Shape, ValueId},
        optimize::{Target, optimize},
        plan::{Operand, Place, Plan, SlotId},
    },
};
use proptest::prelude::*;

use crate::support::{
    graphs::{self, SMALL, VOCABULARY, llama_like, qwen3_0_6b, qwen3_like, random_graph, steps, weights_for},
    interpret::{self, Interpreter, Matrix, Step},
};

const ALL_OPS: Target<'static> = Target { supports: &|_| true, vector: &|_, _| None };

fn optimized(graph: &Graph) -> Graph {
    optimize(graph, &ALL_OPS).unwrap().graph
}

/// Optimizes for a backend without fused norms after products, and without fused rotation, like the
/// CPU.
fn optimized_for_cpu(graph: &Graph) -> Graph {
    let supports = |op: &FusedOp| !matches!(op, FusedOp::MatMulAddRmsNorm { .. } | FusedOp::RotatedAttention { .. });
    optimize(graph, &Target { supports: &supports, ..ALL_OPS }).unwrap().graph
}

/// The slots' memory while a plan runs.
struct Slots {
    data: Vec<Vec<f64>>,
}

impl Slots {
    fn new(plan: &Plan, step: &Step) -> Self {
        let sizes = plan.slots().iter().map(|slot| step.rows(slot.rows) * slot.width);
        Self { data: sizes.map(|size| vec![f64::NAN; size]).collect() }
    }

    fn read(&self, place: Place, step: &Step) -> Matrix {
        let rows = step.rows(place.shape.rows);
        Matrix::new(rows, place.shape.width, self.data[place.slot.index()][..rows * place.shape.width].to_vec())
    }

    fn write(&mut self, place: Place, value: &Matrix) {
        self.data[place.slot.index()][..value.data.len()].copy_from_slice(&value.data);
    }

    fn poison(&mut self, slot: SlotId) {
        self.data[slot.index()].fill(f64::NAN);
    }
}

/// Runs a plan step by step. The slots of results are filled with NaN before operands, except one
/// updated in place, are read. Slots without a live value are filled with NaN after each step.
fn run_plan(graph: &Graph, plan: &Plan, interpreter: &mut Interpreter<'_>, step: &Step) -> Matrix {
    let mut slots = Slots::new(plan, step);
    let mut places: HashMap<ValueId, Place> = HashMap::new();
    for (index, (planned, node)) in plan.steps().iter().zip(graph.nodes()).enumerate() {
        assert_eq!(planned.op, node.op);
        let updated =
            planned.in_place().map(|operand| (operand, read(&planned.inputs[operand], interpreter, &slots, step)));
        planned.outputs.iter().for_each(|place| slots.poison(place.slot));
        let mut inputs: Vec<_> =
            planned.inputs.iter().map(|operand| read(operand, interpreter, &slots, step)).collect();
        if let Some((operand, value)) = updated {
            assert_eq!(Some(operand), node.op.properties().in_place);
            inputs[operand] = value;
        }
        for (place, value) in planned.outputs.iter().zip(interpreter.apply(&planned.op, &inputs, step)) {
            slots.write(*place, &value);
        }
        places.extend(node.outputs.iter().copied().zip(planned.outputs.iter().copied()));
        let live = live_after(graph, index, &places);
        let unused: Vec<_> = slots_of(plan).filter(|slot| !live.contains(slot)).collect();
        unused.into_iter().for_each(|slot| slots.poison(slot));
    }
    slots.read(plan.logits(), step)
}

fn slots_of(plan: &Plan) -> impl Iterator<Item = SlotId> + '_ {
    let mut slots: Vec<_> = plan.steps().iter().flat_map(|step| &step.outputs).map(|place| place.slot).collect();
    slots.sort();
    slots.dedup();
    assert_eq!(slots.len(), plan.slots().len(), "every slot is used");
    slots.into_iter()
}

fn read(operand: &Operand, interpreter: &Interpreter<'_>, slots: &Slots, step: &Step) -> Matrix {
    match operand {
        Operand::Tokens => interpret::token_column(step),
        Operand::Weight { slice, shape, .. } => interpreter.weight(slice, *shape),
        Operand::Constant(row) => interpret::constant_row(row),
        Operand::Slot(place) => slots.read(*place, step),
    }
}

/// Returns the slots of live values: values made up to node `index` that a later node, or the
/// caller, reads. Fails if two of them share a slot.
fn live_after(graph: &Graph, index: usize, places: &HashMap<ValueId, Place>) -> Vec<SlotId> {
    let later = &graph.nodes()[index + 1..];
    let is_live = |id: &ValueId| *id == graph.logits() || later.iter().any(|node| node.inputs.contains(id));
    let mut slots: Vec<_> = places.iter().filter(|(id, _)| is_live(id)).map(|(_, place)| place.slot).collect();
    let live = slots.len();
    slots.sort();
    slots.dedup();
    assert_eq!(slots.len(), live, "two live values share a slot after node {index} of\n{graph}");
    slots
}

fn assert_plan_runs(graph: &Graph, vocabulary: usize) {
    let weights = weights_for(graph, 3);
    let plan = Plan::new(graph).unwrap();
    assert_slots(graph, &plan);
    let (mut by_graph, mut by_plan) = (Interpreter::new(&weights), Interpreter::new(&weights));
    for step in steps(vocabulary) {
        let expected = by_graph.run(graph, &step);
        assert!(expected.data.iter().all(|x| x.is_finite()));
        assert_eq!(run_plan(graph, &plan, &mut by_plan, &step), expected, "{graph}");
    }
}

/// Checks that slots have the values' kind of rows and are wide enough, and that results share
/// slots only as `PlanStep` allows.
fn assert_slots(graph: &Graph, plan: &Plan) {
    for (step, node) in plan.steps().iter().zip(graph.nodes()) {
        for (place, id) in step.outputs.iter().zip(&node.outputs) {
            let slot = plan.slots()[place.slot.index()];
            assert_eq!(place.shape, graph.shape(*id));
            assert!(slot.rows == place.shape.rows && slot.width >= place.shape.width);
        }
        for (output, place) in step.outputs.iter().enumerate() {
            assert!(step.outputs[..output].iter().all(|other| other.slot != place.slot));
            for (input, operand) in step.inputs.iter().enumerate() {
                let shares = matches!(operand, Operand::Slot(operand) if operand.slot == place.slot);
                assert!(!shares || (output == 0 && Some(input) == step.op.properties().in_place));
            }
        }
    }
}

#[test]
fn plans_of_transformers_compute_the_graphs_result() {
    for graph in [qwen3_like(SMALL), llama_like(SMALL)] {
        assert_plan_runs(&graph, SMALL.vocabulary);
        assert_plan_runs(&optimized(&graph), SMALL.vocabulary);
    }
}

#[test]
fn memory_does_not_depend_on_the_number_of_layers() {
    let plan = |layers| Plan::new(&optimized(&qwen3_like(qwen3_0_6b(layers)))).unwrap();
    let (two, all) = (plan(2), plan(28));
    for (tokens, outputs) in [(1, 1), (512, 1), (512, 512), (7, 0)] {
        assert_eq!(two.bytes(tokens, outputs), all.bytes(tokens, outputs));
    }
    assert_eq!(two.slots().len(), all.slots().len());
}

#[test]
fn slots_are_as_large_as_the_values_alive_at_once() {
    let sizes = qwen3_0_6b(28);
    let plan = Plan::new(&optimized_for_cpu(&qwen3_like(sizes))).unwrap();
    let widths = |rows| plan.slots().iter().filter(|slot| slot.rows == rows).map(|slot| slot.width).sum::<usize>();
    // At the attention five values are alive: its result, Q, K, V and the residual. The
    // feed-forward network, the widest value, shares one of their slots.
    let (q, kv) = (sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim);
    assert_eq!(widths(Rows::Tokens), sizes.feed_forward + q + 2 * kv + sizes.embedding);
    // After the last attention only output rows are left. The feed-forward network, its normed
    // input and the residual are alive; the logits come when the first two are dead, and share a
    // slot with one of them.
    assert_eq!(widths(Rows::Outputs), sizes.vocabulary + 2 * sizes.embedding);
    let bytes = |tokens, outputs| 4 * (tokens * widths(Rows::Tokens) + outputs * widths(Rows::Outputs));
    assert_eq!(plan.bytes(512, 3), bytes(512, 3));
    assert_eq!(plan.bytes(usize::MAX, 1), usize::MAX);
}

#[test]
fn residual_is_updated_in_place() {
    let fused = Plan::new(&optimized(&qwen3_like(SMALL))).unwrap();
    let products = fused.steps().iter().filter(|step| matches!(step.op, Op::Fused(FusedOp::MatMulAddRmsNorm { .. })));
    assert_eq!(products.map(|step| step.in_place()).collect::<Vec<_>>(), [Some(2); 4]);
    let plan = Plan::new(&optimized_for_cpu(&qwen3_like(SMALL))).unwrap();
    let updates =
        |op: &Op| plan.steps().iter().filter(|step| step.op == *op).map(|step| step.in_place()).collect::<Vec<_>>();
    assert_eq!(updates(&Op::Fused(FusedOp::MatMulAdd)), [Some(2); 4]);
    let ropes: Vec<_> = plan.steps().iter().filter(|step| matches!(step.op, Op::Rope(_))).collect();
    assert!(ropes.len() == 4 && ropes.iter().all(|step| step.in_place() == Some(0)));
}

#[test]
fn operands_with_another_reader_are_not_overwritten() {
    let mut b = Builder::new();
    let tokens = b.tokens();
    let table = b.weight("table", DType::F32, VOCABULARY, 8);
    let x = b.embed(table, tokens);
    let doubled = b.add(x, x);
    let active = b.silu(doubled);
    let y = b.mul(active, doubled);
    let bias = b.weight("bias", DType::F32, 1, 8);
    let constant = b.constant([1.0; 8]);
    let row = b.add(bias, constant);
    let y = b.add(y, row);
    let graph = b.finish(y).unwrap();
    let plan = Plan::new(&graph).unwrap();
    let in_place: Vec<_> = plan.steps().iter().map(|step| step.in_place()).collect();
    // embed, x + x, silu with its operand read later, mul, bias + constant over a weight, add,
    // select.
    assert_eq!(in_place, [None, None, None, Some(0), None, Some(0), None]);
    assert!(plan.slots().iter().any(|slot| slot.rows == Rows::Fixed(1)));
    assert_eq!(plan.logits().shape, Shape::new(Rows::Outputs, 8));
    assert_plan_runs(&graph, VOCABULARY);
}

#[test]
fn logits_stay_alive_after_their_last_reader() {
    let mut b = Builder::new();
    let tokens = b.tokens();
    let table = b.weight("table", DType::F32, VOCABULARY, 8);
    let x = b.embed(table, tokens);
    let logits = b.push(Op::SelectOutputs, &[x]);
    b.silu(logits);
    assert_plan_runs(&b.finish(logits).unwrap(), VOCABULARY);
}

proptest! {
    /// Plans of random graphs, plain and optimized, compute the graph's result.
    #[test]
    fn plans_of_random_graphs_compute_the_graphs_result(choices in prop::collection::vec(any::<graphs::Choice>(), 0..24)) {
        let graph = random_graph(&choices);
        assert_plan_runs(&graph, VOCABULARY);
        assert_plan_runs(&optimized(&graph), VOCABULARY);
    }
}
