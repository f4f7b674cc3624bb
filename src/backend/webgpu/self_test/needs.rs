//! Lists the kinds of kernels that a plan uses.

use std::collections::BTreeSet;

use crate::{
    DType,
    graph::{Activation, AttentionSpec, DeltaSpec, FusedOp, Glu, Op, RopeSpec, ScanSpec},
    plan::{Operand, Plan},
};

/// The kinds of kernels that a plan uses.
pub(super) struct Needs {
    pub formats: BTreeSet<u32>,
    pub activations: Vec<Activation>,
    /// Whether the plan has soft caps outside of attention.
    pub capped: bool,
    pub attention: Vec<AttentionSample>,
    pub experts: Vec<ExpertsSample>,
    /// Formats of the matrices of heads.
    pub heads: BTreeSet<u32>,
    /// Lengths in tokens of the short convolutions, and whether they have a bias and SiLU.
    pub convolutions: BTreeSet<(usize, bool, bool)>,
    pub deltas: Vec<DeltaSpec>,
    pub scans: Vec<ScanSpec>,
}

/// Layers of experts: the formats of their matrices, and the gated linear unit.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ExpertsSample {
    pub formats: Vec<DType>,
    pub glu: Glu,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct AttentionSample {
    pub spec: AttentionSpec,
    pub rope: Option<RopeSpec>,
    pub norm: Option<f32>,
}

pub(super) fn needs(plan: &Plan) -> Needs {
    let mut needs = Needs {
        formats: BTreeSet::new(),
        activations: vec![],
        capped: false,
        attention: vec![],
        experts: vec![],
        heads: BTreeSet::new(),
        convolutions: BTreeSet::new(),
        deltas: vec![],
        scans: vec![],
    };
    for step in plan.steps() {
        let table = if step.op == Op::Embed { &step.inputs[..1] } else { &[] };
        for operand in step.matrices().iter().chain(table) {
            if let Operand::Weight { dtype, .. } = operand {
                let of_heads = matches!(step.op, Op::MatMulHeads { .. });
                if of_heads { &mut needs.heads } else { &mut needs.formats }.insert(dtype.ggml());
            }
        }
        match &step.op {
            Op::Activate(activation)
            | Op::Fused(FusedOp::MatMulGlu(activation) | FusedOp::Gated { activation, .. }) => {
                needs.activations.push(*activation);
            }
            Op::SoftCap { .. } => needs.capped = true,
            Op::Experts(spec) => {
                let formats = step.matrices().iter().filter_map(|operand| match operand {
                    Operand::Weight { dtype, .. } => Some(*dtype),
                    Operand::Tokens | Operand::Constant(_) | Operand::Slot(_) => None,
                });
                needs.experts.push(ExpertsSample { formats: formats.collect(), glu: spec.glu });
            }
            Op::Attention(spec) => needs.attention.push(AttentionSample { spec: *spec, rope: None, norm: None }),
            Op::Fused(FusedOp::RotatedAttention { attention, rope, norm }) => {
                needs.attention.push(AttentionSample { spec: *attention, rope: Some(*rope), norm: *norm });
            }
            Op::ShortConv(spec) => _ = needs.convolutions.insert((spec.kernel, step.inputs.len() > 2, spec.silu)),
            Op::StateScan(spec) => needs.scans.push(*spec),
            Op::GatedDelta(spec) => needs.deltas.push(*spec),
            Op::Embed
            | Op::MatMul
            | Op::MatMulHeads { .. }
            | Op::Add
            | Op::Mul
            | Op::Div
            | Op::Slice { .. }
            | Op::Clamp
            | Op::Concat { .. }
            | Op::LayerNorm { .. }
            | Op::JoinRows { .. }
            | Op::InputRows { .. }
            | Op::PlaceRows { .. }
            | Op::AddRows { .. }
            | Op::Temper { .. }
            | Op::MixStreams { .. }
            | Op::Deviation { .. }
            | Op::Interpolate { .. }
            | Op::RmsNorm { .. }
            | Op::Rope(_)
            | Op::SelectOutputs
            | Op::Route(_)
            | Op::Fused(
                FusedOp::MatMulJoined
                | FusedOp::MatMulAdd
                | FusedOp::AddRmsNorm { .. }
                | FusedOp::MatMulAddRmsNorm { .. },
            ) => {}
        }
    }
    if needs.activations.is_empty() {
        // The test of products has a gate in any case.
        needs.activations.push(Activation::Silu);
    }
    needs
}
