//! Ops that carry a state: a kernel takes a piece of it through all tokens of a run.

use serde_json::json;

use super::{Lowering, Made, place, product::float, slot, stride, with};
use crate::{
    Result,
    backend::webgpu::{
        kernel::{Count, Kernel, Resource, reads, writes},
        step::RUN,
    },
    graph::{ConvSpec, DeltaSpec},
    kv_cache::RUN_CHECKPOINTS,
    plan::PlanStep,
};

const WORKGROUP: usize = 64;
/// Tokens of a channel that a convolution has on their way together.
const AT_ONCE: usize = 8;

impl Lowering<'_> {
    pub(super) fn short_conv(&mut self, op: &'static str, step: &PlanStep, made: &Made, spec: &ConvSpec) -> Result<()> {
        let x = place(&step.inputs[0])?;
        let w = self.vector_resource(&step.inputs[1])?;
        let kernel = Kernel {
            template: "short_conv",
            values: with(
                self.recurrent(spec.state),
                json!({
                    "channels": spec.channels, "kernel": spec.kernel, "at_once": AT_ONCE,
                    "x_stride": stride(&x), "y_stride": stride(&made.place),
                }),
            ),
            bindings: vec![
                reads("x", "f32", slot(&x)),
                reads("w", "f32", w),
                writes("states", "f32", Resource::State(spec.state)),
                writes("y", "f32", slot(&made.place)),
            ],
            groups: [Count::Fixed(spec.channels.div_ceil(WORKGROUP)), Count::Runs, Count::Fixed(1)],
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
        let [qkv, alpha, beta] = [place(&step.inputs[0])?, place(&step.inputs[1])?, place(&step.inputs[2])?];
        let [a, dt] = [self.vector_resource(&step.inputs[3])?, self.vector_resource(&step.inputs[4])?];
        let DeltaSpec { key_heads, value_heads, head_dim, eps, .. } = *spec;
        // As many invocations for a column as leave each whole vectors of four.
        let lanes = if (head_dim / 4).is_multiple_of(8) { 8 } else { 4 };
        let columns = WORKGROUP / lanes;
        let kernel = Kernel {
            template: "gated_delta",
            values: with(
                self.recurrent(spec.state),
                json!({
                    "lanes": lanes, "columns": columns, "key_heads": key_heads, "head_dim": head_dim, "eps": float(eps),
                    "shuffles": self.traits.subgroup.is_some_and(|least| least as usize >= lanes),
                    "x_stride": stride(&qkv), "gate_stride": stride(&alpha), "y_stride": stride(&made.place),
                }),
            ),
            bindings: vec![
                reads("qkv", "vec4<f32>", slot(&qkv)),
                reads("alpha", "f32", slot(&alpha)),
                reads("beta", "f32", slot(&beta)),
                reads("a", "f32", a),
                reads("dt", "f32", dt),
                writes("states", "vec4<f32>", Resource::State(spec.state)),
                writes("y", "f32", slot(&made.place)),
            ],
            groups: [Count::Fixed(value_heads * head_dim / columns), Count::Runs, Count::Fixed(1)],
        };
        self.push(op, kernel);
        self.convert(op, made);
        Ok(())
    }

    /// What both are told of runs and their states.
    fn recurrent(&self, number: usize) -> serde_json::Value {
        let state = self.cache.states[number];
        json!({
            "workgroup": WORKGROUP, "runs_at": self.layout.runs_at(), "run_words": RUN,
            "checkpoints": RUN_CHECKPOINTS, "state": state.rows * state.width,
        })
    }
}
