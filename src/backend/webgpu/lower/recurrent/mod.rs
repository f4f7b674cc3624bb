//! Ops that carry a state. A convolution's tokens need it where a run begins alone, so the chunks of a run go side by
//! side. A gated delta rule's state goes through all tokens of a run in registers, or through the chunks of a long run as
//! products of matrices.

mod chunked;

pub(in crate::backend::webgpu) use chunked::MIX;

use serde_json::json;

use super::{Lowering, Made, place, product::float, slot, stride, with};
use crate::{
    Result,
    backend::webgpu::{
        kernel::{Count, Kernel, Resource, reads, writes},
        step::{RUN, RUN_CHUNK},
    },
    graph::{ConvSpec, DeltaSpec, HeadOrder},
    kv_cache::RUN_CHECKPOINTS,
    plan::{Place, PlanStep},
};

const WORKGROUP: usize = 64;
/// Inputs of a channel that a convolution has at hand, about: those that later tokens see, for each of the tokens that are
/// on their way together, which are up to 8.
const AT_HAND: usize = 32;

/// A gated delta rule and where everything of it lies.
struct Delta<'a> {
    spec: &'a DeltaSpec,
    qkv: Place,
    alpha: Place,
    beta: Place,
    a: Resource,
    dt: Resource,
    y: &'a Place,
}

impl Lowering<'_> {
    pub(super) fn short_conv(&mut self, op: &'static str, step: &PlanStep, made: &Made, spec: &ConvSpec) -> Result<()> {
        let x = place(&step.inputs[0])?;
        let w = self.vector_resource(&step.inputs[1])?;
        let pieces = if self.few { Count::Runs } else { Count::Chunks };
        let kernel = Kernel {
            template: "short_conv",
            values: with(
                self.recurrent(spec.state),
                json!({
                    "chunked": !self.few, "channels": spec.channels, "kernel": spec.kernel, "at_once": (AT_HAND / spec.kernel).clamp(1, 8),
                    "x_stride": stride(&x), "y_stride": stride(&made.place),
                }),
            ),
            bindings: vec![
                reads("x", "f32", slot(&x)),
                reads("w", "f32", w),
                writes("states", "f32", Resource::State(spec.state)),
                writes("y", "f32", slot(&made.place)),
            ],
            groups: [Count::Fixed(spec.channels.div_ceil(WORKGROUP)), pieces, Count::Fixed(1)],
        };
        self.push(op, kernel);
        self.convert(op, made);
        Ok(())
    }

    pub(super) fn gated_delta(
        &mut self,
        op: &'static str,
        step: &PlanStep,
        made: &Made,
        spec: &DeltaSpec,
    ) -> Result<()> {
        let delta = Delta {
            spec,
            qkv: place(&step.inputs[0])?,
            alpha: place(&step.inputs[1])?,
            beta: place(&step.inputs[2])?,
            a: self.vector_resource(&step.inputs[3])?,
            dt: self.vector_resource(&step.inputs[4])?,
            y: &made.place,
        };
        let chunked = if self.few { None } else { self.chunked(&delta) };
        let kernel = self.by_token(&delta, chunked.is_some());
        self.push(op, kernel);
        chunked.into_iter().flatten().for_each(|kernel| self.push(op, kernel));
        self.convert(op, made);
        Ok(())
    }

    /// Token by token, all runs or those that are not long.
    fn by_token(&self, delta: &Delta<'_>, after_long: bool) -> Kernel {
        let DeltaSpec { value_heads, head_dim, .. } = *delta.spec;
        // As many invocations for a column as leave each whole vectors of four.
        let lanes = if (head_dim / 4).is_multiple_of(8) { 8 } else { 4 };
        let columns = WORKGROUP / lanes;
        let runs = if after_long { Count::ShortRuns } else { Count::Runs };
        Kernel {
            template: "gated_delta",
            values: with(
                self.delta(delta),
                json!({
                    "lanes": lanes, "columns": columns, "after_long": after_long,
                    "shuffles": self.traits.subgroup.is_some_and(|least| least as usize >= lanes),
                }),
            ),
            bindings: vec![
                reads("qkv", "vec4<f32>", slot(&delta.qkv)),
                reads("alpha", "f32", slot(&delta.alpha)),
                reads("beta", "f32", slot(&delta.beta)),
                reads("a", "f32", delta.a),
                reads("dt", "f32", delta.dt),
                writes("states", "vec4<f32>", Resource::State(delta.spec.state)),
                writes("y", "f32", slot(delta.y)),
            ],
            groups: [Count::Fixed(value_heads * head_dim / columns), runs, Count::Fixed(1)],
        }
    }

    /// What kernels of a gated delta rule are told of it.
    fn delta(&self, delta: &Delta<'_>) -> serde_json::Value {
        let DeltaSpec { key_heads, value_heads, order, head_dim, eps, .. } = *delta.spec;
        let key_head = match order {
            HeadOrder::Tiled => format!("head % {key_heads}u"),
            HeadOrder::Grouped => format!("head / {}u", value_heads / key_heads),
        };
        with(
            self.recurrent(delta.spec.state),
            json!({
                "key_heads": key_heads, "key_head": key_head, "value_heads": value_heads, "head_dim": head_dim,
                "eps": float(eps),
                "x_stride": stride(&delta.qkv), "gate_stride": stride(&delta.alpha), "y_stride": stride(delta.y),
            }),
        )
    }

    /// What both are told of runs and their states.
    fn recurrent(&self, number: usize) -> serde_json::Value {
        let state = self.cache.states[number];
        json!({
            "workgroup": WORKGROUP, "runs_at": self.layout.runs_at(), "run_words": RUN, "checkpoints_at": RUN - 2 * RUN_CHECKPOINTS,
            "chunks_at": self.layout.chunks_at(), "chunk_words": RUN_CHUNK, "checkpoints": RUN_CHECKPOINTS, "state": state.rows * state.width,
        })
    }
}
